"""A script's part in a run of one host, or of several processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import seedflood
from seedflood.config import RunSettings, merge, spell
from seedflood.embedded import MODEL_FOLDER, texts

RUN = {"task": "own", "estimate": "gradient", "rank": 4, "steps": 12, "clients": 1}


@pytest.fixture
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL_FOLDER)


@pytest.fixture
def batches(tokenizer: Any) -> Callable[[int], Any]:
    """The batch of a step: eight sentences of one length, with labels."""
    rows = [row["text"] for row in texts("train")][:1024]

    def batch(step: int) -> Any:
        options = {"padding": "max_length", "max_length": 32, "truncation": True}
        tokens = tokenizer(rows[8 * step : 8 * step + 8], return_tensors="pt", **options)
        return {**tokens, "labels": tokens.input_ids.masked_fill(tokens.attention_mask == 0, -100)}

    return batch


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a peers.toml of one host that is a run by itself, with these keys of `[run]` besides."""

    def written(node: dict[str, Any] | None = None, **keys: Any) -> Path:
        told = {"run": RunSettings.place(RUN | keys), "node": merge({"http": "", "listen": ""}, node or {})}
        path = tmp_path / "peers.toml"
        path.write_text(spell(told))
        return path

    return written


@pytest.fixture
def join(model: Any, write: Callable[..., Path]) -> Callable[..., seedflood.Participant]:
    return lambda **keys: seedflood.join(model, write(**keys))
