from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedcluster_app.messages as declared
from fedcluster_app.errors import WireError
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.packing import flatten, listed, read_array, unflatten, unlisted
from fedcluster_app.transport import from_records, to_records
from fedcluster_app.wire import LARGEST, LAYOUTS, ArraySpec, Payload, ScalarSpec, decode, encode

# Other tests may have declared messages of their own.
KINDS = {name: kind for name, (kind, _) in LAYOUTS.items() if kind.__module__.startswith(declared.__name__)}
# Messages of components, whose fields must go together.
COMPONENTS = ("ask.pool.round", "ask.pool.end", "pool.summary", "pool.end", "gaussians")
every_kind = pytest.mark.parametrize("name", KINDS)


def scalars(spec: ScalarSpec, classes: int) -> st.SearchStrategy[Any]:
    if spec.kind is tuple:
        # Some tuples must be settings, and all may look like them.
        settings = st.text().map(lambda name: f"{name}=1.5")
        return st.lists(settings, min_size=classes, max_size=classes).map(tuple)
    if spec.kind is float:
        finite = st.floats(-LARGEST if spec.low is None else spec.low, LARGEST)
        return finite | st.just(np.nan) if spec.missing else finite
    if spec.kind is int:
        return st.integers(int(spec.low or 0), 2**63 - 1)
    return st.booleans() if spec.kind is bool else st.text()


def arrays(spec: ArraySpec, sizes: dict[str, int]) -> st.SearchStrategy[Any]:
    shape = tuple(sizes[letter] for letter in spec.shape.split())
    if spec.whole:
        low = int(-(2**63) if spec.low is None else spec.low)
        high = int(2**63 - 1 if spec.high is None else spec.high)
        return hnp.arrays(np.int64, shape, elements=st.integers(low, high))
    low, high = -LARGEST if spec.low is None else spec.low, LARGEST if spec.high is None else spec.high
    elements = st.floats(low, high)
    return hnp.arrays(np.float64, shape, elements=elements)


@st.composite
def mixtures(draw: st.DrawFn, features: int) -> Mixture:
    """A mixture of full covariances."""
    k, number = draw(st.integers(1, 3)), st.floats(-1e3, 1e3)
    weights = draw(hnp.arrays(np.float64, k, elements=st.floats(0.1, 1.0)))
    roots = draw(hnp.arrays(np.float64, (k, features, features), elements=number))
    covariances = roots @ roots.transpose(0, 2, 1) + 1e3 * np.eye(features)
    means = draw(hnp.arrays(np.float64, (k, features), elements=number))
    return Mixture(weights / weights.sum(), means, covariances)


@st.composite
def fitting(draw: st.DrawFn, values: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """Those of the fields that must go together in a message of components."""
    if "members" in values and draw(st.booleans()):
        return dict.fromkeys(("members", "counts", "means", "covariances")) | {"neighbours": ()}
    if "members" in values:
        names = draw(st.integers(1, sizes["m"]))
        members = draw(st.permutations([number % names for number in range(sizes["m"])]))
        return {
            "members": np.array(members),
            "neighbours": tuple(f"site {number}" for number in range(names)),
        }
    if "places" not in values:
        return {}
    k, rows, columns = sizes["k"], *np.tril_indices(sizes["q"])
    places = draw(st.permutations(range(sizes["s"])))[:k]
    chosen = {"weights": np.full(k, 1 / k), "covariances": np.tile(1.0 * (rows == columns), (k, 1))}
    absent = draw(st.sets(st.sampled_from(["trust", "attached"])))
    return chosen | {"places": np.array(places)} | dict.fromkeys(absent)


@st.composite
def messages(draw: st.DrawFn, name: str) -> Any:
    """A message of any content that its layout allows."""
    kind, layout = LAYOUTS[name]
    letters = {
        letter
        for spec in layout.fields.values()
        if isinstance(spec, ArraySpec)
        for letter in spec.shape.split()
    }
    sizes = {letter: draw(st.integers(1, 4)) for letter in sorted(letters)}
    if name in COMPONENTS:
        features = sizes["f" if "f" in sizes else "q"]
        sizes |= {"t": features * (features + 1) // 2, "s": sizes.get("k", 1) + sizes.get("s", 0)}
    values = {
        field: draw(arrays(spec, sizes) if isinstance(spec, ArraySpec) else scalars(spec, sizes.get("c", 2)))
        for field, spec in layout.fields.items()
    }
    if name not in COMPONENTS and (hasattr(kind, "mixtures") or hasattr(kind, "mixture")):
        edges = sizes.get("e", 0)
        several = draw(st.integers(1, 3)) if hasattr(kind, "mixtures") else 1
        parts = stacked([draw(mixtures(2)) for _ in range(1 + edges if "edges" in values else several)])
        parts["runs"] = np.zeros(several, dtype=np.int64)
        values |= {field: part for field, part in parts.items() if field in values}
        if edges:
            values["neighbours"] = tuple(f"site {number}" for number in range(edges))
        return kind(**values)
    if name in COMPONENTS:
        return kind(**values | draw(fitting(values, sizes)))
    optional = [f for f, spec in layout.fields.items() if isinstance(spec, ArraySpec) and spec.optional]
    absent = draw(st.sets(st.sampled_from(optional))) if optional else ()
    try:
        return kind(**{**values, **dict.fromkeys(absent)})
    except WireError:  # some come together or not at all
        return kind(**{**values, **dict.fromkeys(optional)})


def bits(payload: Payload) -> tuple[Any, Any]:
    """All of a payload, to the bit and the type."""
    parts = {name: (part.dtype.str, part.shape, part.tobytes()) for name, part in payload.arrays.items()}
    return parts, {name: (type(value), repr(value)) for name, value in payload.scalars.items()}


@every_kind
@given(data=st.data())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_every_message_survives_every_form_bit_for_bit(name: str, data: st.DataObject) -> None:
    value = data.draw(messages(name))
    payload = encode(value)
    assert bits(encode(decode(payload, KINDS[name], sender="a"))) == bits(payload)
    assert bits(unlisted(*listed(payload))) == bits(payload)
    assert bits(unflatten(flatten(payload))) == bits(payload)
    assert bits(from_records(to_records(payload))) == bits(payload)
    # As it travels: packed for Flower, unpacked at the site into the call of its NumPyClient, and back.
    far = from_records(to_records(unlisted(*listed(from_records(to_records(payload))))))
    assert bits(far) == bits(payload)
    back = decode(far, KINDS[name], sender="a")
    for field in LAYOUTS[name][1].fields:
        before, after = getattr(value, field), getattr(back, field)
        assert (before is None) == (after is None)
        np.testing.assert_array_equal(after, before, strict=isinstance(before, np.ndarray))


@every_kind
@given(data=st.data())
@settings(max_examples=10, deadline=None, derandomize=True)
def test_whatever_else_comes_is_taken_or_refused_by_name(name: str, data: st.DataObject) -> None:
    payload = encode(data.draw(messages(name)))
    wrong = data.draw(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=20)
    )
    spoilt = data.draw(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3)))
    field = data.draw(st.sampled_from(sorted(LAYOUTS[name][1].fields)))
    if isinstance(LAYOUTS[name][1].fields[field], ArraySpec):
        payload.arrays[field] = spoilt
    else:
        payload.scalars[field] = wrong
    said = f"site 'a': {name}"
    try:
        decode(payload, KINDS[name], sender="site 'a'")
    except WireError as error:
        said = str(error)
    assert said.startswith(f"site 'a': {name}")


@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_bytes_are_an_array_or_a_wire_error(data: st.DataObject) -> None:
    whole = flatten(Payload({"x": np.arange(6.0).reshape(2, 3)}, {}))["x.npy"]
    assert isinstance(whole, bytes)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + data.draw(st.binary(max_size=4)) + whole[place + data.draw(st.integers(0, 3)) :]
    try:
        found: object = read_array(damaged, "x")
    except WireError as error:
        found = str(error)
    assert isinstance(found, np.ndarray) or str(found).startswith("x: cannot be read as an array")
