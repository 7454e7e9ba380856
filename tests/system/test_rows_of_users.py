"""Rows as people have them, given to `seedflood local`: what they are for is guessed, told, and learned by two daemons
that end with one digest; or they are refused in one sentence that says what to write."""

import csv
import gzip
import json
import lzma
import re
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import datasets
import pytest
from forks import run_command

from seedflood import embedded
from seedflood.cli.options import with_guess
from seedflood.cluster.display import understood
from seedflood.config import load_settings, merge
from seedflood.errors import ExitCode
from seedflood.training.loading import load_rows
from seedflood.training.models import load_model

pytestmark = pytest.mark.system

TEMPLATE = """{%- for message in messages %}{{ message.role + ' : ' + message.content + eos_token + '\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}"""
WORDS = ("dull", "fine")
FILMS = [(f"a {word} film in {n} acts", label) for n in range(30) for label, word in enumerate(WORDS)]
SAID = [{"sentence": text, "label": WORDS[label]} for text, label in FILMS]
NUMBERED = [{"text": text, "label": label} for text, label in FILMS]
TEXTS = [{"text": text} for text, _ in FILMS]
CHATS = [
    {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "it was " + WORDS[label]}]}
    for text, label in FILMS
]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_csv(path):
    """As spreadsheets do: with quotes, commas and line breaks in cells."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, ["sentence", "label"])
        table.writeheader()
        table.writerows(row | {"sentence": f'"{row["sentence"]}",\nthey said'} for row in SAID)


def write_tsv(path):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{WORDS[label]}\n" for text, label in FILMS))


def write_parquet(path):
    datasets.Dataset.from_list([{"prompt": f"{text} was", "completion": " fine"} for text, _ in FILMS]).to_parquet(path)


def save_to_disk(path):
    """With names of labels, a test split and none for validation."""
    rows = datasets.Dataset.from_list(NUMBERED).cast_column("label", datasets.ClassLabel(names=WORDS))
    datasets.DatasetDict(train=rows, test=rows.select(range(7))).save_to_disk(path)


def write_folder(path, other):
    path.mkdir()
    (path / "train.jsonl").write_text(lines(TEXTS))
    (path / other).write_text(lines(TEXTS[:7]))


KINDS = {
    "rows.jsonl": (
        lambda path: path.write_text(lines(SAID)),
        "prompted: 45 .* 15 to evaluate \\(held out\\)",
        "(dull|fine)",
    ),
    "rows.csv": (write_csv, "prompted: 45 .* 15 to evaluate \\(held out\\)", "(dull|fine)"),
    "rows.tsv": (write_tsv, "prompted: 45 rows .* columns text → label", "(dull|fine)"),
    "saved": (save_to_disk, "prompted: 45 rows .* columns text → label", "(dull|fine)"),
    "rows.json": (lambda path: path.write_text(json.dumps({"data": TEXTS})), "lm: 45 rows .* columns text;", ".*"),
    "rows.txt": (
        lambda path: path.write_text("\n\n".join(text for text, _ in FILMS)),
        "lm: 45 rows .* columns text;",
        ".*",
    ),
    "rows.txt.gz": (lambda path: path.write_bytes(gzip.compress(b"a film\nwas fine\n" * 30)), "lm: ", ".*"),
    "rows.jsonl.xz": (lambda path: path.write_bytes(lzma.compress(lines(TEXTS).encode())), "lm: 45 rows", ".*"),
    "splits": (lambda path: write_folder(path, "dev.jsonl"), "lm: 60 rows to train, 7 to evaluate", ".*"),
    "tested#train,test": (lambda path: write_folder(path, "test.jsonl"), "lm: 60 rows .* 7 to evaluate", ".*"),
    "rows.parquet": (write_parquet, "completion: 45 rows .* columns prompt → completion", ".*</s>"),
    "chats.jsonl": (lambda path: path.write_text(lines(CHATS)), "chat: 45 rows .* columns messages", ".*</s>"),
}
"""By the name of rows: how they are written, what is said of them, and what of a row is learned."""

REFUSED = {
    "rows.csv": ("text,label\na,0\nb,1\n", "no words for these: say --task prompted --set"),
    "rows.md": ("# Films\n", "of no known kind: rows are in files that end in .jsonl"),
    "asked.jsonl": (
        lines([{"ask": "Judge.", "about": text, "reply": "fine"} for text, _ in FILMS]),
        r"""--task completion --set 'run.objective.template="{ask}\n{about} "' --set run.objective""",
    ),
    "turns.jsonl": (
        lines([{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in CHATS]),
        "put both into one column, messages",
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(embedded.MODEL_FOLDER, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def local(data: Path, model: Path) -> CompletedProcess[str]:
    told = ("--nodes", "2", "--topology", "path", "--steps", "2", "--estimate", "gradient", "--json")
    return run_command("local", *told, "--model", model, "--data", data)


LONG = pytest.mark.long
LEARNED = (
    pytest.param("rows.jsonl", marks=LONG),
    pytest.param("tested#train,test", marks=LONG),
    pytest.param("rows.parquet", marks=LONG),
    "chats.jsonl",
)
"""One of each task: two daemons take seven seconds of a core."""


@pytest.fixture(scope="module")
def base(model):
    return load_model(str(model))


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_any_kind_are_understood_and_told(tmp_path, model, base, name):
    write, told, learned = KINDS[name]
    write(tmp_path / name.partition("#")[0])
    data = str(tmp_path / name)
    said = {"run": {"model": str(model), "clients": 2}, "node": {"data": data, "shard": "1/2"}}
    settings = load_settings(None, merge(said, with_guess({}, None, data, 2)))
    line = understood(load_rows(settings.run, settings.node, base).describe())
    assert re.search(f"task {told}", line)
    assert re.search(f"learned: .*⟦{learned}⟧", line)


@pytest.mark.parametrize("name", LEARNED)
def test_rows_are_understood_told_and_learned(tmp_path, model, name):
    write, told, learned = KINDS[name]
    write(tmp_path / name.partition("#")[0])
    ended = local(tmp_path / name, model)
    assert ended.returncode == 0, ended.stderr
    assert re.search(f"task {told}", ended.stderr)
    assert re.search(f"learned: .*⟦{learned}⟧", ended.stderr)
    result = json.loads(ended.stdout)
    assert result["digests_equal"]
    assert len(result["nodes"]) == 2
    figure = "accuracy" if "prompted" in told else "perplexity"
    assert all(f"{figure}_after" in node for node in result["nodes"])
    has_answers = "chat" in told or "completion" in told
    assert [set(one) for one in result["samples"]] == [{"prompt", "wanted", "before", "after"}] * (3 * has_answers)


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_do_not_tell_what_is_learned_are_refused_with_what_to_say(tmp_path, model, name):
    text, remedy = REFUSED[name]
    (tmp_path / name).write_text(text)
    ended = local(tmp_path / name, model)
    assert (ended.returncode, ended.stdout) == (int(ExitCode.CONFIG), "")
    assert remedy in ended.stderr
    assert "Traceback" not in ended.stderr
