"""What rows are for, by their columns: the settings of `[run.objective]` if nobody has said them.

Only commands that make a run guess, and write what they have guessed into it: all hosts of a run must learn the same.
"""

from collections.abc import Sequence
from typing import Any

from seedflood.errors import ConfigError
from seedflood.training.rows import Row, Splits
from seedflood.training.sources import read_data

LABELS_MAX = 32
"""A column with more different words than that holds no labels."""


def guess_objective(data: str) -> dict[str, Any]:
    """The keys of `[run.objective]` for these rows. data: as `read_data` takes it. Raises DataError, or ConfigError
    with what could be said if the columns do not tell."""
    splits = read_data(data)
    columns = splits.train.rows[0].columns
    if "messages" in columns:
        return {"task": "chat"}
    if "conversations" in columns:
        return {"task": "chat", "label_column": "conversations"}
    if columns.keys() >= {"prompt", "completion"}:
        if isinstance(columns["prompt"], list):
            raise ConfigError(
                f"{data} has prompts and completions that are lists of messages: put both into one column, messages, "
                "which is learned as a chat."
            )
        return {"task": "completion"}
    texts = [name for name, value in columns.items() if isinstance(value, str) and name != "label"]
    if "label" in columns and len(texts) == 1:
        return _prompted(data, splits, texts[0])
    if "text" in columns and "label" not in columns:
        return {"task": "lm"}
    *questions, answer = texts if len(texts) > 1 else ("QUESTION", *(texts or ["ANSWER"]))
    question = "\\n".join(f"{{{name}}}" for name in questions)
    raise ConfigError(
        f"{data} has the columns {', '.join(map(str, columns))}, which do not tell what is learned: say --task lm "
        f"--set 'run.objective.template=\"{{{answer}}}\"', or --task completion --set 'run.objective.template="
        f'"{question} "\' --set run.objective.label_column={answer}, or --task prompted for labels.'
    )


def _prompted(data: str, splits: Splits, text: str) -> dict[str, Any]:
    """Rows of a text with a label: the words are known if labels have names, or are words. Raises ConfigError."""
    words = splits.train.label_names.get("label") or _words([*splits.train.rows, *splits.validation.rows])
    if words:
        return {"task": "prompted", "template": f"{{{text}}}\nLabel:", "label_words": words}
    labels = sorted({str(row.columns.get("label")) for row in splits.train.rows})[:LABELS_MAX]
    named = ", ".join(f'"WORD FOR {label}"' for label in labels)
    raise ConfigError(
        f"{data} has texts with labels, but no words for these: say --task prompted --set 'run.objective.template="
        f"\"{{{text}}} It was\"' --set 'run.objective.label_words=[{named}]', or a known task."
    )


def _words(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels of the rows if they are words, of which there are a few; else none."""
    labels = [row.columns.get("label") for row in rows]
    words = {label for label in labels if isinstance(label, str) and label and not label.isdecimal()}
    is_told = all(isinstance(label, str) and label in words for label in labels)
    return tuple(sorted(words)) if is_told and 2 <= len(words) <= LABELS_MAX else ()
