"""Rows as people have them, given to `seedflood local`: what they are for is guessed, told, and learned."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import pytest

from seedflood import embedded
from seedflood.errors import ExitCode

pytestmark = pytest.mark.system

MAIN = "from seedflood.cli import main; main()"

TEMPLATE = """{%- for message in messages %}{{ message.role + ' : ' + message.content + eos_token + '\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}"""
FILMS = [{"sentence": f"a {word} film in {n} acts", "label": word} for n in range(30) for word in ("fine", "dull")]


def write_csv(folder: Path) -> Path:
    lines = ["sentence;label", *(";".join(row.values()) for row in FILMS)]
    (folder / "films.csv").write_text("\n".join(lines))
    return folder / "films.csv"


def write_parquet(folder: Path) -> Path:
    rows = [{"prompt": row["sentence"] + " was", "completion": " " + row["label"]} for row in FILMS]
    datasets.Dataset.from_list(rows).to_parquet(folder / "train.parquet")
    return folder / "train.parquet"


def write_chats(folder: Path) -> Path:
    turns = [(("user", row["sentence"]), ("assistant", "it was " + row["label"])) for row in FILMS]
    rows = [{"messages": [{"role": role, "content": text} for role, text in turn]} for turn in turns]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "chats.jsonl"


def model_for_chats(folder: Path) -> Path:
    shutil.copytree(embedded.MODEL_FOLDER, folder / "model")
    (folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
    return folder / "model"


def local(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", MAIN, "local", "--nodes", "1", "--steps", "2", "--json", *map(str, words))
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("write", "task", "learned"),
    [
        (write_csv, "task prompted: 57 rows of label, sentence to train, 3 to evaluate (held out)", "⟦(fine|dull)⟧"),
        (write_parquet, "task completion: 57 rows of completion, prompt to train", "⟦.*</s>⟧"),
        (write_chats, "task chat: 57 rows of messages to train", "⟦.*</s>⟧"),
    ],
)
def test_rows_are_understood_told_and_learned(tmp_path, write, task, learned):
    ended = local("--model", model_for_chats(tmp_path), "--data", write(tmp_path), "--estimate", "gradient")
    assert ended.returncode == 0, ended.stderr
    assert task in ended.stderr
    assert re.search(f"learned: .*{learned}", ended.stderr)
    result = json.loads(ended.stdout)
    assert result["digests_equal"]
    figure = "accuracy" if "prompted" in task else "perplexity"
    assert all(f"{figure}_after" in node for node in result["nodes"])


def test_rows_that_do_not_tell_what_is_learned_are_refused_with_what_to_say(tmp_path):
    (tmp_path / "rows.csv").write_text("sentence,label\na,0\nb,1\n")
    ended = local("--data", tmp_path / "rows.csv")
    assert (ended.returncode, ended.stdout) == (int(ExitCode.CONFIG), "")
    assert "no words for these: say --task prompted --set" in ended.stderr
    assert "Traceback" not in ended.stderr
