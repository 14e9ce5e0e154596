from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedcluster_app import __version__
from fedcluster_app.cli import main
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.methods import COLUMNS, METHODS
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.results.model import Model, labels_text

LABELS = "row,cluster\n0,0\n1,1\n2,1\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two clusters apart in the sum of two columns; the second column counts ten times."""
    scaling = Scaling(np.array([1.0, 0.0]), np.array([1.0, 0.1]))
    clusters = Mixture(np.full(2, 0.5), np.array([[0.0, 0.0], [10.0, 10.0]]), np.ones(2))
    path = tmp_path / "model.npz"
    Model(("a", "b"), scaling, clusters).save(path)
    return path


def table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "new.csv"
    path.write_text(text)
    return str(path)


def predict(model: Path, data: str, *more: str) -> int:
    return main(["predict", "--model", str(model), "--data", data, *more])


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,0\n11,1\n2,1.2\n",
        "b,a\n0,1\n1,11\n1.2,2\n",
        "id,b,note,a,site\nx,0,first,1,w\n,1,,11,w\nz,1.2,n/a,2,e\n",
    ],
    ids=["as in the run", "reordered", "with others between"],
)
def test_labels_go_to_standard_output(
    model: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(model, table(tmp_path, text)) == 0
    assert capsys.readouterr() == (LABELS, "")


def test_labels_go_to_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "labels.csv"
    assert predict(model, table(tmp_path, "a,b\n1,0\n11,1\n2,1.2\n"), "--output", str(output)) == 0
    assert output.read_text() == LABELS
    assert capsys.readouterr() == ("", "")


def test_the_rows_of_one_site_may_weigh_the_clusters(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nearly all rows are in cluster 0, so one just beyond the middle is taken for one of them.
    near = np.random.default_rng(0).normal(size=(200, 2))
    rows = np.vstack([[[5.1, 5.1]], near, [[9.0, 9.0]]]) * [1.0, 0.1] + [1.0, 0.0]
    data = table(tmp_path, "a,b\n" + "".join(f"{a},{b}\n" for a, b in rows.tolist()))
    assert predict(model, data) == 0
    plain = capsys.readouterr().out.splitlines()
    assert predict(model, data, "--own-weights") == 0
    own = capsys.readouterr().out.splitlines()
    assert (plain[1], own[1]) == ("0,1", "0,0")
    assert plain[2:] == own[2:]
    assert own[-1] == "201,1"
    assert predict(model, table(tmp_path, "a,b\n"), "--own-weights") == 0
    assert capsys.readouterr().out == "row,cluster\n"


def test_a_npz_table_and_one_without_rows(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.npz"
    np.savez(path, X=[[9.0, 0.0, 1.0], [9.0, 1.2, 2.0]], feature_names=["c", "b", "a"])
    assert predict(model, str(path)) == 0
    assert capsys.readouterr().out == labels_text(np.array([0, 1]))
    assert predict(model, table(tmp_path, "a,b\n")) == 0
    assert capsys.readouterr().out == "row,cluster\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,c\n1,2\n", "new rows: '{data}' lacks 1 of the 2 columns, first 'b'; it has 'a', 'c'"),
        ("c,d\n1,2\n", "lacks 2 of the 2 columns, first 'a'; it has 'c', 'd'"),
        ("a,b\n1,\n2,3\n", "column 'b' has 1 of 2 values missing or not finite (50.0 %)"),
        ("a,b\n1,red\n2,3\n", "column 'b' has 1 of 2 values that are not numbers (50.0 %)"),
        ("", "the file has no header line"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    model: Path, tmp_path: Path, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path, text)
    assert predict(model, data) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedcluster: ")
    assert reason.format(data=data) in said.err
    assert said.err.count("\n") == 1


def test_files_that_are_not_there(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict(model, str(tmp_path / "gone.csv")) == 1
    assert "there is no data file" in capsys.readouterr().err
    data = table(tmp_path, "a,b\n1,0\n")
    assert predict(tmp_path / "gone.npz", data) == 1
    assert capsys.readouterr().err == (
        f"fedcluster: model {tmp_path / 'gone.npz'}: no such file; a run leaves model.npz in its folder\n"
    )
    model.write_bytes(b"")
    assert predict(model, data) == 1
    assert "not the model of a fedcluster run" in capsys.readouterr().err


def test_an_output_that_cannot_be_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path, "a,b\n1,0\n")
    assert predict(model, data, "--output", str(Path(data) / "labels.csv")) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedcluster: ")
    assert data in said.err


def test_wrong_arguments_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["predict"], ["predict", "--model", "m.npz"], ["fit"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "the following arguments are required: --data" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["predict", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "--output" in said
    assert "rows that are all from one site" in " ".join(said.split())
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"fedcluster {__version__}\n")


def python(program: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout


MODULE = """
import runpy, sys
try:
    runpy.run_module("fedcluster_app", run_name="__main__", alter_sys=True)
except SystemExit as stop:
    print("exit", stop.code)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_the_module_predicts_with_numpy_alone(model: Path, tmp_path: Path) -> None:
    data = table(tmp_path, "a,b\n1,0\n11,1\n2,1.2\n")
    said = python(MODULE, "predict", "--model", str(model), "--data", data)
    *lines, last, modules = said.splitlines()
    assert "\n".join(lines) + "\n" == LABELS
    assert last == "exit 0"
    assert "numpy" in modules.split()
    assert not {"flwr", "ray", "sklearn", "scipy", "simulations", "strategies"} & set(modules.split())


def test_the_client_app_is_light() -> None:
    # Every message starts a new Python process at a real site.
    modules = python(
        "import sys, fedcluster_app.client_app; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    assert "flwr" in modules.split()
    heavy = {"sklearn", "scipy", "matplotlib", "pandas", "ray", "simulations", "strategies"}
    assert not heavy & set(modules.split())


def test_the_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    assert main(["methods", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(METHODS)
    for row in rows:
        assert set(row) == {*COLUMNS, "required"}
        assert all(row[column] for column in COLUMNS)
        assert f"\n{row['name']}\n" in f"\n{text}"
        assert f"  needs   {row['needs']}\n" in text
    assert {row["name"]: row["required"] for row in rows}["kfed"] == ["k"]
