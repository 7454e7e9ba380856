"""Rows of parquet files, and of what the library `datasets` writes."""

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from seedflood.errors import DataError
from seedflood.training.files import read_file
from seedflood.training.sources import read_data
from seedflood.training.tables import UNREAD

KINDS = ("parquet", "arrow", "saved")


def columns_by_kind(table, folder, kind):
    """The rows of a table that `datasets` wrote, as they are read again."""
    table.save_to_disk(folder / "saved")
    table.to_parquet(folder / "rows.parquet")
    place = {
        "parquet": folder / "rows.parquet",
        "arrow": next((folder / "saved").glob("*.arrow")),
        "saved": folder / "saved",
    }[kind]
    splits = read_data(f"{place}#train,train")
    return [dict(row.columns) for row in splits.train.rows]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_datasets_keeps_as_json_are_what_they_spell(tmp_path, kind):
    rows = [
        {"text": "a", "call": [{"of": {"a": None}, "id": "1"}]},
        {"text": 'say "x"', "call": [{"of": ["b", 1], "id": None}]},
    ]
    call = {"of": datasets.Json(), "id": datasets.Value("string")}
    features = datasets.Features({"text": datasets.Json(), "call": datasets.List(call)})
    read = columns_by_kind(datasets.Dataset.from_list(rows, features=features), tmp_path, kind)
    assert read == [rows[0], {"text": 'say "x"', "call": [{"of": ["b", 1]}]}]


def test_null_in_a_map_is_data_as_in_json(tmp_path):
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    table = pyarrow.table({"map": pyarrow.array([[("a", None), ("b", "c")], None], kind)})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    rows = read_file(tmp_path / "rows.parquet").rows
    assert [row.columns for row in rows] == [{"map": {"a": None, "b": "c"}}, {"map": None}]


def test_nulls_in_lists_and_in_objects_of_lists_are_kept_and_keys_of_nothing_are_not(tmp_path):
    table = pyarrow.table({"more": [[{"a": 1, "b": None}, None, {"a": None, "b": [None, 2]}], []]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    rows = read_file(tmp_path / "rows.parquet").rows
    assert [row.columns["more"] for row in rows] == [[{"a": 1}, None, {"b": [None, 2]}], []]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_numbers_are_lists(tmp_path, kind):
    features = datasets.Features({"text": datasets.Value("string"), "grid": datasets.Array2D((1, 2), "int32")})
    rows = [{"text": "a", "grid": [[1, 2]]}, {"text": "b", "grid": [[3, 4]]}]
    assert columns_by_kind(datasets.Dataset.from_list(rows, features=features), tmp_path, kind) == rows


IMAGES = pyarrow.array([{"bytes": b"no image" * 999, "path": None}] * 2)
BYTES = pyarrow.array([b"sound"] * 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [IMAGES, BYTES, pyarrow.array([IMAGES.to_pylist()] * 2)], ids=["one", "raw", "many"])
def test_images_and_sounds_are_named_and_not_read(tmp_path, kind, images):
    table = datasets.Dataset(pyarrow.table({"image": images, "text": ["a", "b"]}))
    read = columns_by_kind(table, tmp_path, kind)
    assert read == [{"image": UNREAD, "text": "a"}, {"image": UNREAD, "text": "b"}]
    assert list(read[0]) == ["image", "text"]


def test_a_column_of_images_that_is_broken_does_no_harm(tmp_path):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"image": IMAGES, "text": ["a", "b"]}), path)
    place = pyarrow.parquet.read_metadata(path).row_group(0).column(0).dictionary_page_offset
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"broken" * 9)
    assert [row.columns["text"] for row in read_file(path).rows] == ["a", "b"]


def test_a_column_that_has_a_point_in_its_name_is_read(tmp_path):
    table = pyarrow.table({"image": BYTES, "a.b": ["c", "d"], "a": [{"b": "e"}, {"b": "f"}]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    assert read_file(tmp_path / "rows.parquet").rows[0].columns == {"image": UNREAD, "a.b": "c", "a": {"b": "e"}}


def test_the_name_of_a_folder_is_no_column(tmp_path):
    folder = tmp_path / "lang=en"
    folder.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), folder / "rows.parquet")
    assert read_file(folder / "rows.parquet").rows[0].columns == {"text": "a"}


def test_a_table_of_images_alone_is_told_to_hold_no_text(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"image": IMAGES}), tmp_path / "rows.parquet")
    row, _ = read_file(tmp_path / "rows.parquet").rows
    with pytest.raises(DataError, match='column "image" is not text'):
        row.texts(("image",))
