"""The model card: a README.md beside an exported model or adapter, which says what it is and how to make it again."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from seedflood import VERSION
from seedflood.config import CARD_FILE, RunSettings, spell

BASE_DIGEST = "digest of the base model"
"""The name of a row of the card, which is read again from an adapter's."""

HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
"""Only such a base model can be linked with."""

_SETTINGS = re.compile(r"^```toml\n(.*?)^```$", re.M | re.S)
"""In a card: those of the run."""

_LOADING = {
    "model": """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")""",
    "adapter": """from peft import PeftModel
from transformers import AutoModelForCausalLM

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("the base model"), "this folder")""",
}


@dataclass(frozen=True, slots=True)
class Learned:
    """What a node knows of what it exports. digest: of what was learned. rows: counts by name. figures: of evaluations
    by name, None for what is no finite number."""

    run: RunSettings
    base_digest: bytes
    digest: bytes
    rows: Mapping[str, int]
    figures: Mapping[str, float | None]


def named_base(folder: Path) -> str | None:
    """The digest of the base model, 64 hex digits, by the model card in a folder. None if it does not say."""
    try:
        found = re.search(rf"^\| {BASE_DIGEST} \| (\w+) \|$", (folder / CARD_FILE).read_text(errors="replace"), re.M)
    except OSError:
        return None
    return found and found[1]


def named_objective(folder: Path) -> dict[str, Any]:
    """`[run.objective]` of the run that made this model or adapter, by its model card. Empty if it does not say."""
    try:
        spelled = _SETTINGS.search((folder / CARD_FILE).read_text(errors="replace"))
        found = tomllib.loads(spelled[1])["run"]["objective"] if spelled else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def model_card(learned: Learned, kind: Literal["model", "adapter"] = "model", notes: str = "") -> str:
    """The text, in Markdown. notes: what else a reader must know, in sentences."""
    run = learned.run
    base = f"`{PurePath(run.model).name if run.model.startswith('/') else run.model}`"
    head = {"library_name": "peft" if kind == "adapter" else "transformers", "pipeline_tag": "text-generation"}
    if HUB_NAME.fullmatch(run.model):
        head["base_model"] = run.model
    facts = {
        "run": run.run_id().hex(),
        "digest (equal on all hosts)" if run.mode == "seedflood" else "digest": learned.digest.hex(),
        "base model": base.strip("`"),
        BASE_DIGEST: learned.base_digest.hex(),
        **learned.rows,
        **{name.replace("_", " "): value for name, value in learned.figures.items() if value is not None},
    }
    settings: dict[str, Any] = json.loads(run.canonical())
    settings.setdefault("objective", {}).setdefault("task", run.objective.task)  # a reader may not know the default
    lines = [
        "---",
        *(f"{key}: {value}" for key, value in head.items()),
        "---",
        "",
        f"# {run.name}",
        "",
        f"What hosts have trained together of {base} on `{run.objective.task}`, with seedflood {VERSION}."
        f" {notes}".rstrip(),
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "```python",
        _LOADING[kind],
        "```",
        "",
        "To train it again, with the same rows, give all hosts these settings:",
        "",
        "```toml",
        spell({"run": settings}).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)
