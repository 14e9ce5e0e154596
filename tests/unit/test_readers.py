from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcluster_app.data.readers import read_table
from fedcluster_app.errors import DataError

Write = Callable[..., str]


@pytest.fixture
def csv_file(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> str:
        path = tmp_path / "table.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def npz_file(tmp_path: Path) -> Write:
    def write(**arrays: object) -> str:
        path = tmp_path / "table.npz"
        np.savez(path, **arrays)
        return str(path)

    return write


def failure(path: str, label_column: str = "") -> str:
    with pytest.raises(DataError, match=r"^site 'a': ") as caught:
        read_table(path, label_column=label_column, site="a")
    return str(caught.value)


def test_csv_with_text_labels_and_a_site_column(csv_file: Write) -> None:
    table = read_table(
        csv_file("site,x,kind,y\n1,0.5,frog,-2\n1,1e3,crab,7\n2,3,frog,8\n"), site="a", label_column="kind"
    )
    assert table.columns == ("x", "y")
    np.testing.assert_array_equal(table.X, [[0.5, -2.0], [1000.0, 7.0], [3.0, 8.0]])
    assert table.label_names == ("crab", "frog")
    assert table.labels is not None
    assert table.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize("text", ["7\n-3\n7\n", "7.0\n-3\n7e0\n"])
def test_csv_whole_number_labels_are_kept(csv_file: Write, text: str) -> None:
    rows = "".join(f"1,{label}\n" for label in text.split())
    table = read_table(csv_file("x,y\n" + rows), site="a", label_column="y")
    assert table.labels is not None
    assert table.labels.tolist() == [7, -3, 7]
    assert table.label_names == ()


def test_csv_a_class_may_be_called_none(csv_file: Write) -> None:
    table = read_table(csv_file("x,y\n1,none\n2,none\n"), site="a", label_column="y")
    assert table.label_names == ("none",)


def test_csv_dialect_quotes_bom_windows_lines_and_blank_ends(csv_file: Write) -> None:
    content = b'\xef\xbb\xbf"a, b","say ""c""", Na \r\n"1", 2 ,3\r\n4,"5",6\r\n\r\n'
    table = read_table(csv_file(content), site="a")
    assert table.columns == ("a, b", 'say "c"', "Na")
    np.testing.assert_array_equal(table.X, [[1, 2, 3], [4, 5, 6]])


def test_csv_without_a_last_newline_and_columns_named_by_number(csv_file: Write) -> None:
    table = read_table(csv_file("label,0,1\n9,1,2"), site="a", label_column="label")
    assert table.columns == ("0", "1")
    np.testing.assert_array_equal(table.X, [[1, 2]])


def test_csv_with_a_header_only_is_a_table_without_rows(csv_file: Write) -> None:
    table = read_table(csv_file("x,kind\n"), site="a", label_column="kind")
    assert table.X.shape == (0, 1)
    assert table.labels is not None
    assert table.labels.shape == (0,)


def test_csv_numbers_survive_to_the_last_bit(csv_file: Write) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-98, 99, 98)
    text = "".join(",".join(map(repr, row)) + "\n" for row in X.tolist())
    np.testing.assert_array_equal(read_table(csv_file("a,b,c\n" + text), site="a").X, X)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no header line"),
        ("\n1,2\n", "no header line"),
        ("5.1,3.5\n4.9,3.0\n", "first line has numbers"),
        ("x;y\n1;2\n", "no comma"),
        (",x\n0,1\n", "column 1 has no name"),
        ("x,x\n0,1\n", "'x' occurs more than once"),
        ("site\n1\n", "no numeric column"),
        ("x,y\n1,2\n3\n", "line 3 of the file has 1 fields, expected 2"),
        ('x,y\n"1\n",2\n\n3,4,5\n', "line 5 of the file has 3 fields, expected 2"),
        ('x,y\n1,"2\n', "line 2 of the file cannot be read"),
        ('x,y\n1,"2"3\n', "line 2 of the file cannot be read"),
        (b"x\n\xe9\n", "is not UTF-8"),
        ("x,c\n1,red\n2,red\n3,4\n", r"column 'c' has 2 of 3 values that are not numbers (66.7 %)"),
        ("x,c\n1,12_3\n", r"column 'c' has 1 of 1 values that are not numbers"),
        ("x,c\n1,\n2,3\n4,inf\n", "column 'c' has 2 of 3 values missing or not finite (66.7 %)"),
    ],
)
def test_csv_errors(csv_file: Write, content: str | bytes, message: str) -> None:
    assert message in failure(csv_file(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,2\n", "no label column 'kind'; the file has 'x', 'y'"),
        ("x,kind\n1,a\n2,\n", "label column 'kind' has 1 of 2 values missing"),
        ("x,kind\n1,0.25\n2,1\n", "numbers that are not whole"),
    ],
)
def test_csv_label_errors(csv_file: Write, content: str, message: str) -> None:
    assert message in failure(csv_file(content), "kind")


@pytest.mark.parametrize(
    "content",
    [
        "x,c\n1,4711\n2,secret-4711\n",
        "4711,5\n1,2\n",
        "x,y\n4711,2\n3\n",
        'x,y\n1,"4711"x\n',
        "x,c\n4711,\n",
        "4711;1\n",
    ],
)
def test_errors_never_show_a_value(csv_file: Write, content: str) -> None:
    path = csv_file(content)
    with pytest.raises(DataError) as caught:
        read_table(path, site="a")
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "4711" not in str(seen)
        seen = seen.__cause__ or seen.__context__


def test_npz_images_are_flattened_and_labels_read_on_request_only(npz_file: Write) -> None:
    X = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    path = npz_file(X=X, y=np.array([1, 0, 1], dtype=np.int16), class_names=np.array(["no", "yes"]))
    plain = read_table(path, site="a")
    assert plain.labels is None
    assert plain.columns == ("x0", "x1", "x2", "x3")
    np.testing.assert_array_equal(plain.X, X.reshape(3, 4))
    labelled = read_table(path, site="a", label_column="y")
    assert labelled.label_names == ("no", "yes")
    assert labelled.labels is not None
    assert labelled.labels.tolist() == [1, 0, 1]


def test_npz_names_and_other_label_arrays(npz_file: Write) -> None:
    path = npz_file(
        X=np.eye(2, dtype=np.float16),
        feature_names=np.array(["u", "v"]),
        genus=np.array([1.0, 0.0]),
        genus_names=np.array(["p", "q"]),
        colour=np.array(["red", "blue"]),
        site=np.array([0, 1]),
    )
    by_genus = read_table(path, site="a", label_column="genus")
    assert by_genus.columns == ("u", "v")
    assert by_genus.label_names == ("p", "q")
    assert read_table(path, site="a", label_column="colour").label_names == ("blue", "red")


def test_npz_errors(npz_file: Write) -> None:
    X = np.zeros((3, 2))
    assert "no array 'X' in the file; it has 'pca'" in failure(npz_file(pca=X))
    assert "'X' has shape (3,)" in failure(npz_file(X=np.zeros(3)))
    assert "expected numbers" in failure(npz_file(X=np.array([["a", "b"]])))
    assert "Python objects" in failure(npz_file(X=np.array([[1, None]], dtype=object)))
    assert "'feature_names' has shape (3,), expected (2,)" in failure(
        npz_file(X=X, feature_names=list("abc"))
    )
    assert "no label column 'z'; the file has 'X', 'y'" in failure(npz_file(X=X, y=[0, 1, 2]), "z")
    assert "has shape (2,), expected (3,)" in failure(npz_file(X=X, y=[0, 1]), "y")
    assert "has 1 of 3 values missing" in failure(npz_file(X=X, y=[0, np.nan, 2]), "y")
    assert "of type complex128" in failure(npz_file(X=X, y=[0j, 1, 2]), "y")
    assert "column 'x1' has 1 of 3" in failure(npz_file(X=np.where(np.eye(3, 2, 1), np.nan, X)))


def test_npz_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(b"not an archive")
    assert "is not a NumPy archive" in failure(str(path))
    path.write_bytes(b"")
    assert "is not a NumPy archive" in failure(str(path))
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 2)))
    assert "holds a single array" in failure(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY broken")
    assert "damaged" in failure(str(path))


def test_files_that_are_not_there_or_not_known(tmp_path: Path) -> None:
    assert "there is no data file" in failure(str(tmp_path / "no.csv"))
    assert "expected .csv or .npz" in failure(str(tmp_path / "t.xlsx"))
    (tmp_path / "folder.csv").mkdir()
    assert "there is no data file" in failure(str(tmp_path / "folder.csv"))


def test_real_file_with_missing_values_is_refused_by_name(shared_data: Callable[[str], str]) -> None:
    assert "column 'trestbps' has 59 of 920 values missing" in failure(
        shared_data("heart_disease_4sites.npz")
    )
