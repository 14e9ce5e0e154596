from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from fedcluster_app import messages
from fedcluster_app.errors import WireError
from fedcluster_app.messages import (
    AskConsensusRound,
    AskFedGEMRound,
    AskGTVRound,
    AskLabels,
    AskPoolEnd,
    AskPoolRound,
    ConsensusAnswered,
    ConsensusMemory,
    FedGEMBalls,
    FedGEMStart,
    Hello,
    Labelled,
    PoolEnd,
    PoolMemory,
    PoolSummary,
    SiteFolder,
    SiteGaussians,
)
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.packing import flatten, listed, read_array, unflatten, unlisted
from fedcluster_app.transport import Memory, from_records, to_records
from fedcluster_app.wire import (
    LAYOUTS,
    ArraySpec,
    Layout,
    Payload,
    ScalarSpec,
    array,
    decode,
    encode,
    layout_of,
    message,
)

SIZES = {
    "d": 3,
    "t": 6,
    "q": 2,
    "f": 2,
    "k": 4,
    "m": 5,
    "s": 7,
    "c": 3,
    "e": 3,
    "p": 3,
    "r": 2,
    "n": 6,
    "b": 2,
}
# Messages of components whose fields must go together, all in two features.
COMPONENTS = (AskPoolRound, AskPoolEnd, PoolSummary, PoolEnd, SiteGaussians)
SCALARS = {str: "text", int: 3, float: 0.5, bool: True, tuple: ("a=1", "b=2", "c=3")}


def example(kind: type) -> Any:
    """A message with every field filled in, made from its layout."""
    values: dict[str, Any] = {}
    sizes = SIZES | ({"t": 3} if kind in COMPONENTS else {})
    for name, spec in layout_of(kind).fields.items():
        if isinstance(spec, ArraySpec):
            shape = [sizes[letter] for letter in spec.shape.split()]
            values[name] = np.arange(1, np.prod(shape) + 1, dtype=spec_dtype(spec)).reshape(shape)
            if spec.high is not None:
                np.minimum(values[name], spec.high, out=values[name], casting="unsafe")
        else:
            values[name] = SCALARS[spec.kind]
    if kind in COMPONENTS:
        fitting = {"members": np.array([2, 0, 1, 1, 0]), "places": np.array([3, 6, 0, 1])}
        fitting |= {
            "weights": np.full(4, 0.25),
            "covariances": np.tile([1.0, 0.5, 1.0], (len(values["means"]), 1)),
        }
        values |= {name: part for name, part in fitting.items() if name in values}
    elif "covariances" in values and kind not in (
        AskLabels,
        ConsensusAnswered,
        ConsensusMemory,
        PoolMemory,
    ):  # with fields that must be mixtures
        mixture = Mixture(
            np.array([0.25, 0.75]), np.array([[1.0, 2.0], [3.0, 4.0]]), np.tile(np.eye(2), (2, 1, 1))
        )
        parts = stacked([mixture] * (1 + SIZES["e"] if "edges" in values else 1))
        parts["runs"] = np.zeros(1, dtype=np.int64)
        values |= {name: part for name, part in parts.items() if name in values}
    return kind(**values)


def spec_dtype(spec: ArraySpec) -> type:
    return np.int64 if spec.whole else np.float64


# Other tests may have declared messages of their own.
KINDS = {name: kind for name, (kind, _) in LAYOUTS.items() if kind.__module__.startswith(messages.__name__)}
FIELDS = [(kind, name, spec) for kind in KINDS.values() for name, spec in layout_of(kind).fields.items()]
ARRAYS = [
    pytest.param(*field, id=f"{field[0].__name__}.{field[1]}")
    for field in FIELDS
    if isinstance(field[2], ArraySpec)
]
SCALAR_FIELDS = [
    pytest.param(*field, id=f"{field[0].__name__}.{field[1]}")
    for field in FIELDS
    if isinstance(field[2], ScalarSpec)
]


def failure(payload: Payload, *expected: type, **sizes: int) -> str:
    with pytest.raises(WireError) as caught:
        decode(payload, *expected, sender="site 'a'", sizes=sizes)
    return str(caught.value)


def where(kind: type, name: str) -> str:
    return f"site 'a': {layout_of(kind).name}.{name}: "


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_message_comes_back_as_it_was(kind: type) -> None:
    value = example(kind)
    back: Any = decode(encode(value), kind, sender="a")
    assert type(back) is kind
    for name, spec in layout_of(kind).fields.items():
        before, after = getattr(value, name), getattr(back, name)
        if isinstance(spec, ArraySpec):
            assert (after.dtype, after.tobytes()) == (before.dtype, before.tobytes())
        else:
            assert (type(after), after) == (type(before), before)


def test_the_layouts_speak_for_themselves() -> None:
    declared = [item for item in vars(messages).values() if isinstance(item, type)]
    assert set(declared) == set(KINDS.values())
    for name, kind in KINDS.items():
        layout = layout_of(kind)
        assert layout.name == name
        assert layout.fields
        assert kind.__doc__
        assert layout.leaves_site == (not name.startswith(("ask.", "site.")) and name != "scaling")
        for spec in layout.fields.values():
            assert len(spec.meaning.split()) > 1
            assert "|" not in spec.meaning


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_numbers_that_sums_of_squares_cannot_hold_are_refused(value: float) -> None:
    payload = encode(example(FedGEMStart))
    payload.scalars["silhouette"] = value
    assert "expected a number up to 1e+150 in size" in failure(payload, FedGEMStart)


def test_an_undeclared_class_has_no_layout() -> None:
    with pytest.raises(TypeError, match="dict has no layout"):
        encode({})


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_another_version_is_refused(version: Any) -> None:
    payload = encode(example(Hello))
    payload.scalars["wire"] = version
    text = failure(payload, Hello)
    assert text == f"site 'a': wire version {version!r}, expected 1; use the same fedcluster"


def test_a_message_of_another_kind_is_refused() -> None:
    assert failure(encode(example(Hello)), FedGEMStart, FedGEMBalls) == (
        "site 'a': expected message fedgem.start or fedgem.balls, got 'hello'"
    )
    assert "got 'gossip'" in failure(Payload({}, {"wire": 1, "kind": "gossip"}), Hello)
    assert "wire version None" in failure(Payload({}, {}), Hello)


@pytest.mark.parametrize(("kind", "name", "spec"), ARRAYS)
def test_every_array_is_checked(kind: type, name: str, spec: ArraySpec) -> None:
    good = getattr(example(kind), name)

    def refused(wrong: np.ndarray) -> str:
        payload = encode(example(kind))
        payload.arrays[name] = wrong
        text = failure(payload, kind)
        assert text.startswith(where(kind, name))
        return text

    assert f"expected shape ({spec.shape})" in refused(good[None])
    assert refused(np.array(1.0)).endswith(", got ()")
    assert "which holds nothing" in refused(good[:0])
    other = np.float64 if spec.whole else np.int64
    assert f"expected {np.dtype(spec_dtype(spec))}, got {np.dtype(other)}" in refused(good.astype(other))
    assert "got float32" in refused(good.astype(np.float32))
    assert "expected" in refused(good.astype(np.dtype(good.dtype).newbyteorder()))
    if not spec.whole:
        for bad in (np.nan, np.inf, -np.inf):
            wrong = good.copy()
            wrong.flat[[0, -1]] = bad
            assert f"has {len({0, wrong.size - 1})} entries that are NaN or infinite" in refused(wrong)
        wrong = good.copy()
        wrong.flat[-1] = 1e151  # its square would be infinite
        assert "entries up to 1e+150 in size" in refused(wrong)
    if spec.low is not None:
        wrong = good.copy()
        wrong.flat[-1] = spec.low - 1
        assert f"expected entries of at least {spec.low:g}, got {spec.low - 1:g}" in refused(wrong)
    if spec.high is not None:
        wrong = good.copy()
        wrong.flat[-1] = spec.high + 1
        assert f"expected entries of at most {spec.high:g}, got {spec.high + 1:g}" in refused(wrong)


@pytest.mark.parametrize(("kind", "name", "spec"), ARRAYS)
def test_only_optional_arrays_may_be_missing(kind: type, name: str, spec: ArraySpec) -> None:
    payload = encode(example(kind))
    del payload.arrays[name]
    if not spec.optional:
        expected = f"missing, expected an array of shape ({spec.shape})"
        assert failure(payload, kind) == where(kind, name) + expected
    elif (kind, name) == (AskGTVRound, "edges"):
        assert "0 edges for the site and 3 neighbours" in failure(payload, kind)
    elif kind in (AskPoolRound, AskPoolEnd) and name not in ("components", "score_scale"):
        assert "expected all of a component, or no component" in failure(payload, kind)
    elif kind is AskConsensusRound and name not in ("components", "score_scale"):
        assert "for 3 neighbours" in failure(payload, kind)
    elif kind is not Labelled:
        assert getattr(decode(payload, kind, sender="a"), name) is None


@pytest.mark.parametrize(("kind", "name", "spec"), SCALAR_FIELDS)
def test_every_scalar_is_checked(kind: type, name: str, spec: ScalarSpec) -> None:
    def refused(wrong: Any) -> str:
        payload = encode(example(kind))
        payload.scalars[name] = wrong
        text = failure(payload, kind)
        assert text.startswith(where(kind, name))
        assert text.endswith(f"got {wrong!r}")
        return text

    expected = "a list of strings" if spec.kind is tuple else spec.kind.__name__
    for wrong in (None, b"bytes", [1], 1 + 0j):
        assert f"expected {expected}" in refused(wrong)
    for kind_of_other, other in {bool: True, int: 1, float: 1.0, str: "1"}.items():
        if kind_of_other is not spec.kind:
            assert f"expected {expected}" in refused(other)
    if spec.kind is float:
        for wrong in (float("inf"), float("-inf"), *([] if spec.missing else [float("nan")])):
            assert "expected a finite number" in refused(wrong)
    if spec.low is not None:
        below = spec.kind(spec.low - 1)
        assert f"expected at least {spec.low:g}" in refused(below)


@pytest.mark.parametrize(
    "text", ["", "a,b", "{}", '"a"', '["a"', '["a", 1]', '[["a"]]', "null", "[" * 100_000]
)
def test_a_broken_list_of_names_is_refused(text: str) -> None:
    payload = encode(example(Hello))
    payload.scalars["columns"] = text
    assert failure(payload, Hello) == f"site 'a': hello.columns: expected a list of strings, got {text!r}"


def test_a_missing_silhouette_is_nan_and_nothing_else() -> None:
    payload = encode(example(FedGEMStart))
    payload.scalars["silhouette"] = float("nan")
    assert np.isnan(decode(payload, FedGEMStart, sender="a").silhouette)


@pytest.mark.parametrize("text", ["alpha", "alpha=", "alpha=large", "alpha=nan", "alpha=1e999", "=="])
def test_a_choice_that_is_no_number_is_refused(text: str) -> None:
    payload = encode(example(FedGEMStart))
    payload.scalars["chosen"] = json.dumps(["tau=5", text])
    assert failure(payload, FedGEMStart) == (
        f"site 'a': fedgem.start.chosen: expected name=number, got {('tau=5', text)!r}"
    )


def test_choices_are_read_by_name() -> None:
    payload = encode(example(FedGEMStart))
    payload.scalars["chosen"] = json.dumps(["alpha=1.5", "min_mass=10", "p=1e-04"])
    started = decode(payload, FedGEMStart, sender="a")
    assert started.choices() == {"alpha": 1.5, "min_mass": 10.0, "p": 0.0001}


def test_a_letter_stands_for_one_size_throughout() -> None:
    payload = encode(example(FedGEMBalls))
    payload.arrays["radii"] = np.ones(3)
    assert (
        failure(payload, FedGEMBalls)
        == "site 'a': fedgem.balls.radii: expected shape (k) with k = 4, got (3,)"
    )


def test_sizes_that_are_known_are_demanded() -> None:
    payload = encode(example(FedGEMBalls))
    assert decode(payload, FedGEMBalls, sender="a", sizes={"k": 4, "q": 2}).means.shape == (4, 2)
    text = failure(payload, FedGEMBalls, k=4, q=3)
    assert text == "site 'a': fedgem.balls.means: expected shape (k q) with k = 4, q = 3, got (4, 2)"


@pytest.fixture
def own_layouts() -> Iterator[None]:
    kept = dict(LAYOUTS)
    yield
    LAYOUTS.clear()
    LAYOUTS.update(kept)


@pytest.mark.usefixtures("own_layouts")
def test_a_shape_may_have_a_number() -> None:
    @message("test.edge", leaves_site=True)
    class Edge:
        """Two ends of every edge."""

        ends: np.ndarray = array("e 2", "two ends", whole=True, low=0)

    assert LAYOUTS["test.edge"] == (Edge, Layout("test.edge", True, LAYOUTS["test.edge"][1].fields))
    payload = encode(Edge(np.zeros((7, 2), dtype=np.int64)))
    assert decode(payload, Edge, sender="a").ends.shape == (7, 2)
    payload.arrays["ends"] = np.zeros((7, 3), dtype=np.int64)
    assert failure(payload, Edge) == "site 'a': test.edge.ends: expected shape (e 2) with e = 7, got (7, 3)"


def test_sums_of_labels_come_together_or_not_at_all() -> None:
    payload = encode(example(Labelled))
    del payload.arrays["within"]
    assert failure(payload, Labelled) == "site 'a': labelled: expected counts and all sums, or none of them"
    payload = encode(example(Labelled))
    payload.scalars["class_names"] = '["one"]'
    assert failure(payload, Labelled) == "site 'a': labelled: 1 class names for 3 rows of counts"


def test_counts_of_classes_are_of_the_global_clusters() -> None:
    payload = encode(example(Labelled))
    payload.arrays["own_contingency"] = np.ones((3, 2), dtype=np.int64)
    assert "labelled.own_contingency: expected shape (c m)" in failure(payload, Labelled)


def test_components_are_of_the_neighbours_that_are_named() -> None:
    payload = encode(example(AskPoolRound))
    found = decode(payload, AskPoolRound, sender="a").summaries
    assert {name: part.counts.tolist() for name, part in found.items()} == {
        "a=1": [2.0, 5.0],
        "b=2": [3.0, 4.0],
        "c=3": [1.0],
    }
    for name, part in found.items():
        np.testing.assert_array_equal(part.covariances, part.covariances.transpose(0, 2, 1), err_msg=name)
    payload.arrays["members"] = np.array([0, 0, 1, 1, 0])
    assert "ask.pool.round: components of 2 neighbours for 3 names" in failure(payload, AskPoolRound)
    for field in ("members", "counts", "means", "covariances"):
        del payload.arrays[field]
    assert "ask.pool.round: components of 0 neighbours for 3 names" in failure(payload, AskPoolRound)
    payload.scalars["neighbours"] = "[]"
    assert decode(payload, AskPoolRound, sender="a").summaries == {}


@pytest.mark.parametrize("kind", COMPONENTS)
def test_triangles_are_of_the_features(kind: type) -> None:
    payload = encode(example(kind))
    payload.arrays["covariances"] = np.ones((len(payload.arrays["means"]), 4))
    assert f"{layout_of(kind).name}: " in failure(payload, kind)


@pytest.mark.parametrize("places", [[0, 1, 2, 7], [0, 1, 2, 2]])
def test_components_have_places_of_their_own(places: list[int]) -> None:
    payload = encode(example(PoolEnd))
    payload.arrays["places"] = np.array(places)
    text = f"site 'a': pool.end.places: expected different ones under 7, got {places}"
    assert failure(payload, PoolEnd) == text


def test_an_end_is_a_mixture() -> None:
    payload = encode(example(PoolEnd))
    payload.arrays["weights"] = np.full(4, 0.5)
    assert failure(payload, PoolEnd).startswith("site 'a': pool.end: Mixture.weights: expected")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_form_of_a_message_is_undone(kind: type) -> None:
    payload = encode(example(kind))
    arrays, scalars = listed(payload)
    for back in (unlisted(arrays, scalars), unflatten(flatten(payload)), from_records(to_records(payload))):
        assert back.scalars == payload.scalars
        assert {name: part.tobytes() for name, part in back.arrays.items()} == {
            name: part.tobytes() for name, part in payload.arrays.items()
        }
        assert back.nbytes == payload.nbytes


def test_bytes_are_those_of_the_content() -> None:
    small, large = (encode(AskFedGEMRound(1, np.ones((k, 10)))) for k in (1, 101))
    assert large.nbytes - small.nbytes == 100 * 10 * 8


def test_arrays_without_their_names_are_refused() -> None:
    arrays, scalars = listed(encode(example(FedGEMBalls)))
    with pytest.raises(WireError, match=r"^site 'a': 1 arrays, expected 2 as named in 'arrays'"):
        unlisted(arrays[:1], scalars, sender="site 'a'")
    assert unlisted([], {"wire": 1}).arrays == {}


def npy(values: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, **options)
    return buffer.getvalue()


def archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, means=np.ones(3))
    return buffer.getvalue()


def huge() -> bytes:
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


UNREADABLE = {
    "nothing": b"",
    "text": b"one, two",
    "cut": npy(np.ones(9))[:-1],
    "header": npy(np.ones(9))[:20],
    "archive": archive(),
    "objects": npy(np.array([{}]), allow_pickle=True),
    "huge": huge(),
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_bytes_that_are_no_array_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=r"^site 'a': means: cannot be read as an array \("):
        read_array(data, "site 'a': means")
    with pytest.raises(WireError, match=r"^site 'a': means: cannot be read as an array \("):
        unflatten({"means.npy": data}, sender="site 'a'")
    records = to_records(encode(example(FedGEMBalls)))
    records["arrays"] = ArrayRecord({"means": Array("float64", (9,), "numpy.ndarray", data)})
    with pytest.raises(WireError, match=r"^site 'a': means: cannot be read as an array \("):
        from_records(records, sender="site 'a'")


def test_missing_records_are_empty_and_others_are_refused() -> None:
    assert from_records(RecordDict()) == Payload({}, {})
    with pytest.raises(WireError, match="expected records of arrays and of scalars"):
        from_records(RecordDict({"arrays": ConfigRecord({"a": 1})}))


def test_records_are_never_shared() -> None:
    payload = encode(example(FedGEMBalls))
    first, second = to_records(payload), to_records(payload)
    assert first["arrays"] is not second["arrays"]
    first["scalars"]["kind"] = "changed"
    assert second["scalars"]["kind"] == payload.scalars["kind"] == "fedgem.balls"


def test_memory_keeps_the_last_value_of_every_type() -> None:
    context = Context(1, 2, {}, RecordDict(), {})
    memory = Memory(context)
    assert memory.load(SiteFolder) is None
    memory.save(SiteFolder("/old"))
    memory.save(SiteFolder("/new"))
    memory.save(example(messages.FedGEMMemory))
    again = Memory(context)
    folder, kept = again.load(SiteFolder), again.load(messages.FedGEMMemory)
    assert folder is not None
    assert folder.path == "/new"
    assert kept is not None
    np.testing.assert_array_equal(kept.released, example(messages.FedGEMMemory).released)
    assert sorted(context.state) == [
        "site.fedgem.arrays",
        "site.fedgem.scalars",
        "site.folder.arrays",
        "site.folder.scalars",
    ]


def test_optional_parts_that_are_gone_are_forgotten() -> None:
    memory = Memory(Context(1, 2, {}, RecordDict(), {}))
    full = example(messages.FedGEMMemory)
    memory.save(full)
    memory.save(messages.FedGEMMemory(full.center, full.scale, None, None, full.released, 1.0))
    kept = memory.load(messages.FedGEMMemory)
    assert kept is not None
    assert kept.components is kept.score_scale is None
