"""The Flower App Bundle: what `flwr run` really ships, alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedcluster_app", "strategies", "simulations")
ALONE = """
import json, sys
from pathlib import Path

checkout, folder = map(Path, sys.argv[1:])
# An editable install would fill in for what the bundle lacks.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != checkout]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]

import fedcluster_app.client_app, fedcluster_app.server_app, simulations, strategies
from fedcluster_app.config import parse_run_config
from simulations.federation import run_locally

outcome = run_locally(parse_run_config({}), 3, run_folder=str(folder)).outcome
found = [Path(module.__file__) for name, module in sys.modules.items() if name.split(".")[0] in PACKAGES]
strangers = [str(path) for path in found if not path.is_relative_to(Path.cwd())]
print(json.dumps([outcome.status, outcome.k_hat, len(found) > 30, strangers]))
""".replace("PACKAGES", repr(PACKAGES))


def project_files() -> list[Path]:
    """All files of the project but those that git ignores, relative to the checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout, so nothing says which files are the project's")
    return [Path(name) for name in listed.stdout.split("\0") if name and (CHECKOUT / name).is_file()]


def flower_environment(home: Path) -> dict[str, str]:
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home)}
    return {**os.environ, **quiet, "FEDCLUSTER_HOME": str(home)}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The FAB of the project's files, unpacked."""
    scratch = tmp_path_factory.mktemp("fab")
    copy = scratch / "fedcluster"  # Flower asks of the folder's name what it asks of the project's
    for name in project_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, copy / name)
    flwr = Path(sys.executable).with_name("flwr")
    environment = flower_environment(scratch / "home")
    built = subprocess.run(
        [flwr, "build", "--app", copy], cwd=scratch, env=environment, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (fab,) = [*scratch.glob("*.fab"), *copy.glob("*.fab")]
    unpacked = scratch / "unpacked"
    with zipfile.ZipFile(fab) as archive:
        archive.extractall(unpacked)
    return unpacked


def test_the_bundle_holds_the_packages_and_nothing_else(bundle: Path) -> None:
    held = {path.relative_to(bundle) for path in bundle.rglob("*") if path.is_file()}
    code = {name for name in project_files() if name.parts[0] in PACKAGES and name.suffix == ".py"}
    other = {Path("pyproject.toml"), Path("README.md"), Path("LICENSE")}
    assert code | other <= held
    assert {name for name in held - code - other if name.parts[0] != ".info"} == set()


def test_the_bundle_runs_alone(bundle: Path, tmp_path: Path) -> None:
    environment = flower_environment(tmp_path)
    environment.pop("PYTHONSAFEPATH", None)
    environment.pop("PYTHONPATH", None)
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, CHECKOUT, tmp_path / "run"],
        cwd=bundle,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    status, k_hat, several, strangers = json.loads(ran.stdout.splitlines()[-1])
    assert (status, several, strangers) == ("finished", True, [])
    assert k_hat > 1
    assert len(list((tmp_path / "run" / "labels").iterdir())) == 3
