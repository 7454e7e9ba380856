"""Every kind of file that rows may be in holds the same rows here, and each fault of one is a sentence."""

import bz2
import gzip
import json
import lzma

import datasets
import pyarrow
import pytest

from seedflood.errors import DataError
from seedflood.training.files import read_file, split_of
from seedflood.training.sources import read_data

ROWS = [{"sentence": f'a "fine" film; number {number},\nor so', "label": number % 2} for number in range(60)]
CHATS = [
    {"messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": str(n)}]} for n in range(60)
]
TEXTS = [{"text": f"None of the films, number {number}"} for number in range(60)]


def spell_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def spell_cells(rows, divider):
    lines = [divider.join(rows[0])]
    lines += [divider.join('"' + str(cell).replace('"', '""') + '"' for cell in row.values()) for row in rows]
    return ("\r\n".join(lines) + "\r\n").encode("utf-8-sig")


def compress_zstd(content):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def save_parquet(path, rows):
    datasets.Dataset.from_list(rows).to_parquet(path)


def save_arrow(path, rows):
    datasets.Dataset.from_list(rows).save_to_disk(path.with_suffix(""))
    (saved,) = path.with_suffix("").glob("*.arrow")
    saved.rename(path)


KINDS = {
    "rows.jsonl": lambda path, rows: path.write_bytes(spell_lines(rows)),
    "rows.json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
    "within.json": lambda path, rows: path.write_text(json.dumps({"version": 1, "data": rows})),
    "tagged.json": lambda path, rows: path.write_text(json.dumps({"tags": ["a", "b"], "data": rows})),
    "columns.json": lambda path, rows: path.write_text(
        json.dumps({name: [row[name] for row in rows] for name in rows[0]})
    ),
    "pandas.json": lambda path, rows: path.write_text(
        json.dumps({name: {str(k): row[name] for k, row in enumerate(rows)} for name in rows[0]})
    ),
    "index.json": lambda path, rows: path.write_text(json.dumps({str(k): row for k, row in enumerate(rows)})),
    "split.json": lambda path, rows: path.write_text(
        json.dumps({"columns": [*rows[0]], "index": [*range(len(rows))], "data": [[*row.values()] for row in rows]})
    ),
    "lines.json": lambda path, rows: path.write_bytes(spell_lines(rows)),
    "rows.csv": lambda path, rows: path.write_bytes(spell_cells(rows, ",")),
    "european.csv": lambda path, rows: path.write_bytes(spell_cells(rows, ";")),
    "rows.tsv": lambda path, rows: path.write_bytes(spell_cells(rows, "\t")),
    "rows.parquet": save_parquet,
    "rows.arrow": save_arrow,
    "rows.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(spell_lines(rows))),
    "rows.jsonl.bz2": lambda path, rows: path.write_bytes(bz2.compress(spell_lines(rows))),
    "rows.csv.xz": lambda path, rows: path.write_bytes(lzma.compress(spell_cells(rows, ","))),
    "rows.jsonl.zst": lambda path, rows: path.write_bytes(compress_zstd(spell_lines(rows))),
}
OF_CHATS = [name for name in KINDS if "csv" not in name and "tsv" not in name]


def columns(table):
    return [row.columns for row in table.rows]


def as_text(rows):
    return [{name: str(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_any_kind_holds_the_same_rows(tmp_path, name):
    KINDS[name](tmp_path / name, ROWS)
    assert as_text(columns(read_file(tmp_path / name))) == as_text(ROWS)


@pytest.mark.parametrize("name", OF_CHATS)
def test_chats_are_read_from_every_kind_that_can_hold_lists(tmp_path, name):
    KINDS[name](tmp_path / name, CHATS)
    assert columns(read_file(tmp_path / name)) == CHATS


def test_a_line_of_a_text_file_is_a_text(tmp_path):
    (tmp_path / "film.txt").write_text("a film\n\n it was good\n")
    assert columns(read_file(tmp_path / "film.txt")) == [{"text": "a film"}, {"text": " it was good"}]


def test_a_word_that_others_take_for_a_missing_value_stays_text(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\nNone,NA\n,null\n")
    assert columns(read_file(tmp_path / "rows.csv")) == [{"text": "None", "label": "NA"}, {"text": "", "label": "null"}]


@pytest.mark.parametrize("save", ["parquet", "disk"])
def test_names_of_labels_are_kept(tmp_path, save):
    rows = datasets.Dataset.from_list(ROWS).cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    if save == "disk":
        rows.save_to_disk(tmp_path / "rows")
    else:
        rows.to_parquet(tmp_path / "rows.parquet")
    splits = read_data(str(tmp_path / ("rows" if save == "disk" else "rows.parquet")))
    assert splits.train.label_names == {"label": ("bad", "good")}
    assert splits.train.rows[0].columns["label"] in (0, 1)


def test_a_folder_that_datasets_saved_has_its_splits(tmp_path):
    parts = {name: datasets.Dataset.from_list(rows) for name, rows in (("train", ROWS[:9]), ("test", ROWS[9:]))}
    datasets.DatasetDict(parts).save_to_disk(tmp_path)
    splits = read_data(f"{tmp_path}#train,test")
    assert (columns(splits.train), columns(splits.validation)) == (ROWS[:9], ROWS[9:])


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train.jsonl", "train"),
        ("data/train-00000-of-00003.parquet", "train"),
        ("sst2_dev.csv", "validation"),
        ("val/part1.csv", "validation"),
        ("test/train.csv", "train"),
        ("Test.tsv", "test"),
        ("testSet.csv", "test"),
        ("TRAIN.csv", "train"),
        ("trainset.csv", "train"),
        ("latest.csv", None),
        ("restraint.jsonl", None),
    ],
)
def test_a_file_or_a_folder_names_a_split_by_a_whole_word(tmp_path, path, split):
    assert split_of(tmp_path.relative_to(tmp_path) / path) == split


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(spell_lines([{"from": name}]) * 2)
    return str(folder)


def origins(table):
    return [row.columns["from"] for row in table.rows]


def test_a_folder_has_splits_of_several_files_also_below_it(tmp_path):
    write(
        tmp_path, "train-1.jsonl", "more/train-2.jsonl", "dev.jsonl", "test.jsonl", "notes.jsonl", ".cache/train.jsonl"
    )
    splits = read_data(str(tmp_path))
    assert set(origins(splits.train)) == {"train-1.jsonl", "more/train-2.jsonl"}
    assert set(origins(splits.validation)) == {"dev.jsonl"}


def test_files_that_name_no_split_are_for_training(tmp_path):
    splits = read_data(write(tmp_path, "a.jsonl", "b.jsonl"))
    assert set(origins(splits.train)) | set(origins(splits.validation)) == {"a.jsonl", "b.jsonl"}
    assert splits.copies is not None


def test_files_that_name_no_split_are_for_training_beside_others_for_testing(tmp_path):
    splits = read_data(write(tmp_path, "reviews.jsonl", "more.jsonl", "test.jsonl"))
    assert set(origins(splits.train)) | set(origins(splits.validation)) == {"reviews.jsonl", "more.jsonl"}


def test_a_file_for_testing_is_read_if_it_is_named(tmp_path):
    (tmp_path / "test.jsonl").write_bytes(spell_lines(ROWS))
    splits = read_data(str(tmp_path / "test.jsonl"))
    assert len(splits.train.rows) + len(splits.validation.rows) == len(ROWS)


def test_a_csv_file_may_have_spaces_behind_its_commas(tmp_path):
    (tmp_path / "rows.csv").write_text('text, label\na film, 1\n"a, b", 0\n')
    assert columns(read_file(tmp_path / "rows.csv")) == [
        {"text": "a film", "label": "1"},
        {"text": "a, b", "label": "0"},
    ]


def test_a_cell_may_say_what_its_column_is_called(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("word,kind\nword,noun\n" + "say,verb\n" * 199)
    assert read_file(path).rows[0].columns == {"word": "word", "kind": "noun"}


def test_a_csv_file_may_have_a_column_without_a_name(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label,\na film,1,\n")
    assert columns(read_file(tmp_path / "rows.csv")) == [{"text": "a film", "label": "1", "": ""}]


@pytest.mark.parametrize(
    ("name", "pack"), [("rows.jsonl", bytes), ("rows.jsonl.gz", gzip.compress), ("rows.jsonl.bz2", bz2.compress)]
)
def test_a_list_of_rows_is_read_though_its_name_promises_lines(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(b'[\n {"a": 1},\n {"a": 2}\n]\n'))
    assert columns(read_file(tmp_path / name)) == [{"a": 1}, {"a": 2}]


def test_of_a_file_and_its_compressed_form_one_is_read(tmp_path):
    folder = write(tmp_path, "train.jsonl", "validation.jsonl")
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress((tmp_path / "train.jsonl").read_bytes()))
    assert len(read_data(folder).train.rows) == 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.xlsx", b"PK", r"rows\.xlsx is of no known kind: rows are in files that end in \.jsonl, .* \.zst\.$"),
        ("rows", b"a", "rows is of no known kind"),
        ("rows.csv", b"", r"rows\.csv has no rows: add some"),
        ("rows.csv", b"text,label\n", r"rows\.csv has no rows"),
        ("rows.csv", b"text,label\na b,c\ntext,label\n", r"line 3: the first line of the file comes again"),
        ("rows.json", b"[]", r"rows\.json has no rows"),
        ("rows.jsonl", b"\n\n", r"rows\.jsonl has no rows"),
        ("rows.csv", b"a,b\n1,2\n1,2,3\n", "line 3: not as many cells as the first line, which has 2: correct it"),
        ("rows.csv", b"a film,1\na play,0\n", "begins with a row: write the names of the columns into its first line"),
        ("rows.csv", b"a film,good\na play,bad\na book,good\n", "begins with a row"),
        ("rows.tsv", b"a\tb\n1\n", "line 2: not as many cells"),
        ("rows.csv", b"text,label,text\na,x,b\n", 'has several columns "text": give each a name of its own'),
        ("rows.csv", b'a,b\n"x" y,1\n', r"line 2: broken quotes \(.*\): put a cell that has quotes into quotes"),
        ("rows.csv", "a,b\nü,1\n".encode("latin-1"), r"rows\.csv is not text in UTF-8: save it as UTF-8"),
        ("rows.txt", b"\xff\xfe", r"rows\.txt is not text in UTF-8"),
        ("rows.json", b'[{"a": 1}, 2]', "line 2: not a JSON object"),
        ("rows.json", b'[{"a": 1},\n{"a": 2}', r"line 2: not valid JSON \(Expecting ',' delimiter\)"),
        ("rows.jsonl", b'[{"a": 1},\n{"a" 2}]', r"line 2: not valid JSON \(Expecting ':' delimiter\)"),
        ("rows.jsonl", b'{"a": 1}\n["a"]\n', "line 2: not a JSON object"),
        ("rows.jsonl", b'{"a": "\\ud83d\\ude00"}\n{"a": "\\ud83d"}\n', "line 2: half of a character"),
        ("rows.json", b'[{"a": "\\uD83D"}]', "line 1: half of a character"),
        ("rows.parquet", b"PAR1 no", r"Cannot read .*rows\.parquet \(.*\): copy the file anew"),
        ("rows.arrow", b"no", r"Cannot read .*rows\.arrow \(.*\): copy the file anew"),
        (
            "rows.jsonl.gz",
            gzip.compress(b'{"a": 1}\n', mtime=0)[:-9],
            r"Cannot decompress .*\.gz \(.*\): copy the file anew",
        ),
        ("rows.jsonl.gz", b"{}", "Cannot decompress"),
        ("rows.jsonl.bz2", b"{}", "Cannot decompress"),
        ("rows.jsonl.xz", b"{}", "Cannot decompress"),
        ("rows.jsonl.zst", b"{}", "Cannot decompress"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_one_sentence(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read_data(str(tmp_path / name))
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_row_of_a_compressed_file_is_told_with_its_line(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n["text"]\n', mtime=0))
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz, line 2: not a JSON object"):
        read_file(tmp_path / "rows.jsonl.gz")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "has no rows: rows are in files that end in"),
        (["train.jsonl", "train.csv"], r"has files of several kinds \(train\.csv, train\.jsonl\): name the one"),
        (["test.jsonl", "dev.jsonl"], "has no split train: name one of validation, test behind it"),
    ],
)
def test_a_folder_that_cannot_be_read_is_told_in_one_sentence(tmp_path, names, words):
    with pytest.raises(DataError, match=words):
        read_data(write(tmp_path, *names))


def test_a_folder_with_a_broken_copy_of_what_datasets_saved_is_told_in_one_sentence(tmp_path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(DataError, match=r"Cannot read .*: copy the file anew"):
        read_data(str(tmp_path))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.json", "rows.txt"])
def test_a_file_in_utf_16_is_told_to_be_saved_as_utf_8(tmp_path, name):
    (tmp_path / name).write_bytes('{"text": "a"}\n{"text": "b"}\n'.encode("utf-16"))
    with pytest.raises(DataError, match="is not text in UTF-8: save it as UTF-8"):
        read_file(tmp_path / name)
