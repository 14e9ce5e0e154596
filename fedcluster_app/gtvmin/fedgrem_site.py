"""FedGrEM at a site: responsibilities, and a gradient step on the components."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks, blocks, mixture_of
from fedcluster_app.gtvmin.fedgrem_settings import TUNED, GrEMSettings
from fedcluster_app.gtvmin.projection import project
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.release import released
from fedcluster_app.mixtures.statistics import collect
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True, eq=False)
class SiteModel:
    """One site's upload: its mixture and its number of rows."""

    mixture: Mixture
    rows: int


def client_step(
    X: FloatArray, model: Mixture, settings: GrEMSettings = TUNED, *, min_count: float = 0.0
) -> SiteModel:
    """One round at a site: responsibilities, new weights, and a gradient step on the components.

    Parameters
    ----------
    X : array of shape (n, d), n >= 0
        May be fewer rows than components. Without rows the model goes back as it came, with no say.
    model : Mixture
        As the server sent it.
    settings : GrEMSettings
    min_count : float, >= 0
        A component that holds less mass goes back as it came, and other rows may be left out with its own
        (see `mixtures.release.released`). Components that go back share the weight that the others leave.

    Returns
    -------
    SiteModel

    Notes
    -----
    mu <- mu + eta' (mean of its rows - mu), Sigma <- Sigma + eta' (their covariance about the old mu - Sigma)
    with eta' = eta min(1, N / (n pi)) for the mass N of the component and its weight pi as received: no more
    than the way to the EM update, and none for a component that the site's rows do not know. Cost O(n k d²).

    **Source**: Tian, Weng and Feng, Towards the theory of unsupervised federated learning: non-asymptotic
    analysis of federated EM algorithms, arXiv:2310.15330, algorithm 1 for Gaussian mixtures. Deviations: pi
    is the weight at the start there, and eta' has no limit. Covariances are an extension: gradients scaled by
    Sigma / N and 2 Sigma · Sigma / N, which is the way to the EM update.

    Plain steps are eta times the gradient of the mean log-likelihood in mu and in Sigma.
    """
    theta = blocks(model)
    if settings.covariances == "identity":
        theta = replace(theta, covariances=np.broadcast_to(np.eye(X.shape[1]), theta.covariances.shape))
    if not len(X):
        return SiteModel(mixture_of(theta), 0)
    R, _ = responsibilities(X, mixture_of(theta))
    stats = collect(X, released(R, min_count), "full")
    shares = stats.mass / len(X)
    held = stats.mass > 0
    shift = stats.means - theta.means
    apart = np.zeros_like(theta.covariances)
    if settings.covariances == "estimated":
        mass = np.where(held, stats.mass, 1.0)[:, None, None]
        apart = stats.scatters / mass + shift[:, :, None] * shift[:, None, :] - theta.covariances
    if settings.step == "plain":
        way, precisions = settings.step_size * shares, np.linalg.inv(theta.covariances)
        shift = np.einsum("kij,kj->ki", precisions, shift)
        apart = 0.5 * precisions @ apart @ precisions
    else:
        way = settings.step_size * np.minimum(shares / theta.weights, 1.0)
    way = np.where(held, way, 0.0)
    rest = np.where(held, 0.0, theta.weights)
    weights = shares + rest * ((1.0 - shares.sum()) / (rest.sum() or 1.0))
    moved = Blocks(
        weights, theta.means + way[:, None] * shift, theta.covariances + way[:, None, None] * apart
    )
    return SiteModel(mixture_of(project(moved, settings.bounds)), len(X))
