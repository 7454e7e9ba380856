"""What rows are for, by their columns: the settings of `[run.objective]` if nobody has said them.

Only commands that make a run guess, and write what they have guessed into it: all hosts of a run must learn the same.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from seedflood.config import READ_BY, read_objective
from seedflood.errors import ConfigError, DataError
from seedflood.training.files import CHATS
from seedflood.training.formats import choose_format
from seedflood.training.messages import as_list
from seedflood.training.rows import Splits
from seedflood.training.sources import read_data

LABELS_MAX = 32
"""A column with more different values than that holds no labels."""

ROWS_PER_LABEL = 4
"""A column that is called otherwise holds labels if its values come so often on average."""

LABELS = (
    "label",
    "labels",
    "sentiment",
    "emotion",
    "category",
    "class",
    "rating",
    "stars",
    "intent",
    "topic",
    "target",
)
"""Beside a `text`, only columns of these names hold labels: any other may just describe it, as its language does."""

PROMPTS = "prompt", "question", "problem", "instruction", "messages"
RIGHT_ANSWERS = "answer", "solution", "completion"
"""Of rows whose answers are rewarded: the prompt, and what is right."""

CONTEXTS, ANSWERS = ("input", "context"), ("output", "response")
"""Beside an `instruction`, or a `prompt`: what it is about, and what is learned."""

CHOICES = ("choices", "options", "endings", "candidates")
"""Columns that hold a list of answers, of which the label names one."""

TEXTS = ("text", "sentence")
"""Columns that hold the text if several could."""

NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
"""A label that is no word."""


def guess_objective(data: str, given: Mapping[str, Any], hosts: int = 1) -> dict[str, Any]:
    """The keys of `[run.objective]` for these rows that nobody has said, by which all of them can be read.

    data: as `read_data` takes it. given: those that somebody has. hosts: how many share the rows. Raises DataError, or
    ConfigError with what could be said if the columns do not tell.
    """
    label = read_objective(given).label_column
    splits = read_data(data)
    columns = _columns(splits)
    if label is not None and label not in columns:
        named = ", ".join(map(str, columns))
        raise ConfigError(f'{data} has no column "{label}" (columns: {named}): correct label_column of the run.')
    if given.keys().isdisjoint(READ_BY) and columns.keys() >= {"chosen", "rejected"}:
        raise ConfigError(
            f"{data} tells which of two answers is better, and that is not learned: to learn the chosen ones alone, "
            f"{_how_to_learn_chosen(columns)}."
        )
    guessed = _guess(data, splits, given) if given.get("task", "prompted") == "prompted" else {}
    if given.get("task") in ("completion", "chat"):
        with suppress(ConfigError, DataError):  # of columns that do not tell
            guess = _guess(data, splits, {key: value for key, value in given.items() if key != "task"})
            guessed = {key: guess[key] for key in guess.keys() - given.keys() if guess["task"] == given["task"]}
    if given.get("task") == "reward":
        found = _first_of(PROMPTS, columns), _first_of(RIGHT_ANSWERS, columns)
        usual = {"template": found[0] and f"{{{found[0]}}}", "label_column": found[1]}
        guessed = {key: value for key, value in usual.items() if value is not None and key not in given}
    form = choose_format(read_objective({**guessed, **given}), columns)
    for table in (splits.train, splits.validation):
        for row in form.learned_rows(table):
            form.check(row)
    if (rows := len(splits.train.rows)) < hosts:
        raise ConfigError(f"the rows to train ({rows}) cannot be shared by {hosts} nodes: use fewer (--nodes).")
    return guessed


def _guess(data: str, splits: Splits, given: Mapping[str, Any]) -> dict[str, Any]:
    columns = _columns(splits)
    is_prompted = "task" in given or "label_words" in given
    if not is_prompted and (name := _chat_column(columns)):
        return {"task": "chat"} if name == "messages" else {"task": "chat", "label_column": name}
    if not is_prompted and columns.keys() >= {"prompt", "completion"}:
        if isinstance(columns["prompt"], list):
            raise ConfigError(
                f"{data} has prompts and completions that are lists of messages: put both into one column, messages, "
                "which is learned as a chat."
            )
        if isinstance(columns.get("label"), bool):
            raise ConfigError(
                f'{data} has a "label" that calls completions good or bad: keep the good ones without it, or learn all '
                "of them by --task completion."
            )
        return {"task": "completion"}
    prompt = _first_of(("instruction",) if "label" in columns else ("instruction", "prompt"), columns)
    if not is_prompted and prompt and (answer := _first_of(ANSWERS, columns)):
        context = _first_of(CONTEXTS, columns)
        template = f"{{{prompt}}}\n" + (f"{{{context}}}\n" if context else "")
        template = ("{history}" if "history" in columns else "") + template
        template = ("{system}\n" if "system" in columns else "") + template
        return {"task": "completion", "template": template, "label_column": answer}
    label: str | None = given.get("label_column") or _label_column(splits, is_prompted=is_prompted)
    strings = [name for name, value in columns.items() if isinstance(value, str) and name != label]
    texts = [name for name in strings if _has_spaces(splits, name)] or strings
    text = texts[0] if len(texts) == 1 else next((name for name in TEXTS if name in texts), None)
    if label is not None and label in columns and (text is not None or "template" in given):
        choices = _first_of(CHOICES, columns)
        if "template" not in given and choices is not None and isinstance(columns[choices], list | Mapping):
            raise ConfigError(
                f'{data} has lists of answers in column "{choices}", which a prompt cannot show: write them into the '
                f"text of each row, or ask without them by --set 'run.objective.template=\"{{{text}}}\\nLabel:\"'."
            )
        return _prompted(data, splits, given.get("template") or f"{{{text}}}\nLabel:", label, given)
    if "text" in columns and not is_prompted and label is None:
        return {"task": "lm"}
    named = texts if len(texts) > 1 else strings
    *questions, answer = named if len(named) > 1 else ("QUESTION", *(named or ["ANSWER"]))
    question = "\\n".join(f"{{{name}}}" for name in questions)
    prompted = "run.objective.label_column=LABEL"
    if label is not None and label in columns and texts:
        asked = "\\n".join(f"{{{name}}}" for name in texts)
        prompted = f"'run.objective.template=\"{asked}\\nLabel:\"'{_option(label)}"
    head = "" if all(name.isidentifier() for name in columns) else " (the first line of a CSV file must name them)"
    raise ConfigError(
        f"{data} has the columns {', '.join(map(str, columns))}{head}, which do not tell what is learned: say --task "
        f"lm --set 'run.objective.template=\"{{{answer}}}\"', or --task completion --set 'run.objective.template="
        f'"{question} "\' --set run.objective.label_column={answer}, or --task prompted --set '
        f"{prompted}, or --task reward for prompts after which the model is to write."
    )


def _how_to_learn_chosen(columns: Mapping[str, Any]) -> str:
    is_whole = "prompt" not in columns
    if _is_chat(columns["chosen"]):
        of_whole = "say --task chat --set run.objective.label_column=chosen"
        return of_whole if is_whole else "put prompt and chosen into one column, messages"
    option = "--task completion --set run.objective.label_column=chosen"
    return f"say {option}" if not is_whole else "say --task lm --set 'run.objective.template=\"{chosen}\"'"


def _columns(splits: Splits) -> dict[str, Any]:
    """The columns of all rows, of which the first may lack some, each with its first value."""
    columns: dict[str, Any] = {}
    for row in splits.rows:
        if not row.columns.keys() <= columns.keys():
            columns = {**row.columns, **columns}
    return columns


def _option(label: str) -> str:
    return "" if label == "label" else f" --set run.objective.label_column={label}"


def _first_of(names: Sequence[str], columns: Mapping[str, Any]) -> str | None:
    return next((name for name in names if name in columns), None)


def _chat_column(columns: Mapping[str, Any]) -> str | None:
    """Of a usual name, or the only one with a list of messages, if its name does not call it half of a chat."""
    found = [name for name, value in columns.items() if _is_chat(value)]
    is_one = len(found) == 1 and found[0] not in (*PROMPTS, *RIGHT_ANSWERS, *ANSWERS, "history")
    return _first_of(CHATS, columns) or (found[0] if is_one else None)


def _is_chat(value: Any) -> bool:
    """A list of messages."""
    value = as_list(value) if isinstance(value, Mapping) else value
    keys = [{*one} for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
    return 0 < len(keys) == len(value) and all(one >= {"role", "content"} or one >= {"from", "value"} for one in keys)


def _label_column(splits: Splits, *, is_prompted: bool) -> str | None:
    """The column of labels: "label", or the only one that has a few values which often come again. Beside a `text` it
    needs a usual name, unless `is_prompted` was said."""
    columns, found, often = _columns(splits), [], len(splits.train.rows) // ROWS_PER_LABEL
    if "label" in columns:
        return "label"
    for name in columns:
        if "text" in columns and not is_prompted and str(name).lower() not in LABELS:
            continue
        cells = (row.columns.get(name) for row in splits.train.rows)
        values = {one for one in cells if isinstance(one, str | int) or (isinstance(one, float) and one.is_integer())}
        if 2 <= len(values) <= (often if str(name).lower() in LABELS else min(LABELS_MAX, often)):
            found.append(str(name))
    words = [name for name in found if not _has_spaces(splits, name)]
    return words[0] if len(words) == 1 else None


def _has_spaces(splits: Splits, column: str) -> bool:
    """Have most rows more than one word there?"""
    values = [row.columns.get(column) for row in splits.train.rows]
    return 2 * sum(isinstance(value, str) and " " in value.strip() for value in values) > len(values)


def _prompted(data: str, splits: Splits, template: str, label: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a text with a label: the words are known if labels have names, or are words. Raises ConfigError."""
    column = {} if label == "label" else {"label_column": label}
    for row in splits.rows:
        value = row.columns.get(label)
        if value in (None, "") or value != value:  # NaN
            raise row.error(f'nothing in column "{label}", which has the labels: correct or remove the row.')
    words = given.get("label_words") or splits.train.label_names.get(label) or _words(data, splits, label)
    if words:
        return {"task": "prompted", "template": template, "label_words": words, **column}
    labels = sorted({str(row.columns.get(label)) for row in splits.rows})
    if len(labels) > LABELS_MAX:
        prompt = template.replace("\n", "\\n")
        raise ConfigError(
            f'{data} has {len(labels)} different labels in column "{label}", too many to guess words for: learn them '
            f"as completions if they are text (--task completion --set run.objective.label_column={label} --set "
            f"'run.objective.template=\"{prompt} \"'), or say --task prompted with all words as label_words."
        )
    if all(NUMBER.fullmatch(one) for one in labels):
        numbers = [float(one) for one in labels]
        if not all(one.is_integer() and one >= 0 for one in numbers):
            raise ConfigError(
                f'{data} has numbers as labels in column "{label}" ({", ".join(labels[:4])}): write words in their '
                "place, or whole numbers that count words from 0."
            )
        labels = list(map(str, range(min(LABELS_MAX, int(max(numbers)) + 1))))
    if len(labels) == 1:
        raise ConfigError(f'{data} has one label in all rows, "{labels[0]}": add rows of others.')
    named = ", ".join(f'"WORD FOR {one}"' for one in labels)
    raise ConfigError(
        f"{data} has texts with labels, but no words for these: say --task prompted{_option(label)} --set "
        f"'run.objective.label_words=[{named}]', perhaps with a prompt of your own as run.objective.template, or a "
        "known task, or --task lm, which learns the texts themselves."
    )


def _words(data: str, splits: Splits, column: str) -> tuple[str, ...]:
    """The labels of the rows if they are words, of which there are a few; else none. Raises ConfigError if two of them
    look like one."""
    labels = [row.columns.get(column) for row in splits.rows]
    words = {label for label in labels if isinstance(label, str) and label and not NUMBER.fullmatch(label)}
    is_told = all(isinstance(label, str) and label in words for label in labels)
    if not is_told or not 2 <= len(words) <= LABELS_MAX:
        return ()
    alike = Counter(word.strip().casefold() for word in words)
    if twins := sorted(word for word in words if alike[word.strip().casefold()] > 1):
        named = ", ".join(f'"{word}"' for word in twins)
        raise ConfigError(
            f'{data} has labels in column "{column}" that differ by case or spaces alone ({named}): spell them alike, '
            "or name all as label_words if they are not the same."
        )
    return tuple(sorted(words))
