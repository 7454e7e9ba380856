"""How rows become prompts or texts: the formats of the built-in tasks, and those that settings spell out.

Classification uses prompts, as MeZO does (arXiv 2305.17333, appendix D). A template makes a prompt of a row, and the
answer is the label word whose first token the model finds most likely right after it. "lm" is language modelling of
what a template makes of a row, "completion" and "chat" of the answers alone. "reward" has prompts alone: the model
itself writes what it learns from.
"""

import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seedflood import embedded
from seedflood.config import EMBEDDED, ObjectiveSettings
from seedflood.errors import ConfigError
from seedflood.training.messages import as_list, role_of
from seedflood.training.rewards.scores import columns_of
from seedflood.training.rows import Row, Splits, Table, choose_splits
from seedflood.training.sources import read_embedded, read_hub

OPTIONAL = ("system", "history", "input", "context")
"""Columns of a template that a row may lack, as rows of Alpaca do."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a row is read; `tasks.ENCODERS` has an encoder for each kind."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that must have text."""
        return ()

    def check(self, row: Row) -> None:
        """Raises DataError if a row has not the columns, or no label, that this format reads."""
        row.texts(self.columns, OPTIONAL)

    def check_names(self, table: Table) -> None:
        """Raises DataError if a table that names its labels counts them in another order than this format."""


@dataclass(frozen=True, slots=True)
class TemplateFormat(Format):
    """template: what is made of a row, columns in braces."""

    template: str

    @property
    def columns(self) -> tuple[str, ...]:
        return fields_of(self.template)


BOOLEANS = {"false": ("false", "no", "0"), "true": ("true", "yes", "1")}
"""By what a file says, in the order of the labels: the words that mean it."""


@dataclass(frozen=True, slots=True)
class PromptFormat(TemplateFormat):
    """template: the prompt. label_words: in the order of the labels."""

    label_words: tuple[str, ...]
    label_column: str = "label"

    def check(self, row: Row) -> None:
        Format.check(self, row)
        self.label(row)

    def check_names(self, table: Table) -> None:
        for place, name in enumerate(table.label_names.get(self.label_column, ())):
            if name in self.label_words and self.label_words.index(name) != place:
                raise table.rows[0].error(
                    f'label {place} in column "{self.label_column}" is called {name}, and that is number '
                    f"{self.label_words.index(name)} of label_words: write the names in place of the numbers."
                )

    def label(self, row: Row) -> int:
        """The index of a row's label. Raises DataError."""
        value = row.columns.get(self.label_column)
        words = self.label_words
        if isinstance(value, str) and value in words:
            return words.index(value)
        spelled = str(value).lower().removesuffix(".0")  # tables make floats of whole numbers if some are missing
        for place, word in enumerate(words):
            if word.lower() in BOOLEANS.get(spelled, ()) or (word == spelled and spelled.isdecimal()):
                return place
        has_numbers = any(word.isdecimal() for word in words)  # then a number is never the place of a word
        place = list(BOOLEANS).index(spelled) if spelled in BOOLEANS else int(spelled) if spelled.isdecimal() else -1
        if 0 <= place < len(words) and not has_numbers:
            return place
        if self.label_column not in row.columns:
            raise row.error(f'no column "{self.label_column}": correct the row, or label_column of the run.')
        raise row.error(
            f'label {value!r} in column "{self.label_column}" is unknown: it must be '
            f"{'' if has_numbers else f'0 to {len(words) - 1} or '}one of {', '.join(words)}."
        )


@dataclass(frozen=True, slots=True)
class TextFormat(TemplateFormat):
    """Language modelling, without labels. template: the text."""

    template: str = "{text}"


@dataclass(frozen=True, slots=True)
class CompletionFormat(TemplateFormat):
    """template: the prompt. label_column: what follows it, which is learned."""

    template: str = "{prompt}"
    label_column: str = "completion"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*fields_of(self.template), self.label_column)


@dataclass(frozen=True, slots=True)
class ChatFormat(Format):
    """label_column: a list of messages with role and content."""

    label_column: str = "messages"


@dataclass(frozen=True, slots=True)
class RewardFormat(TemplateFormat):
    """template: the prompt; one column alone may hold messages in place of text. label_column: the right answer, for
    scores that ask for one. said: how texts are written and scored."""

    template: str = "{prompt}"
    label_column: str = "answer"
    said: ObjectiveSettings = field(kw_only=True)

    def messages(self, row: Row) -> list[Any] | None:
        """The prompt, if it is a chat that goes on."""
        column = self.columns[0]
        value = row.columns.get(column)
        value = as_list(value) if isinstance(value, Mapping) else value
        return value if isinstance(value, list) and self.template == f"{{{column}}}" else None

    def check(self, row: Row) -> None:
        messages = self.messages(row)
        texts = list(row.texts(self.columns, OPTIONAL).values()) if messages is None else []
        if not (messages or any(text.strip() for text in texts)):
            raise row.error("the prompt is empty: give it text, or remove the row.")
        last = messages[-1] if messages else None
        if isinstance(last, Mapping) and "assistant" in map(role_of, (last.get("role"), last.get("from"))):
            raise row.error(
                "the last message is the assistant's, who is to write now: remove it, and put what is right into "
                f'column "{self.label_column}".'
            )
        for name in columns_of(self.said.score):
            column = self.label_column if name == "answer" else name
            if row.columns.get(column) is None:
                remedy = "correct the row, or label_column of the run" if name == "answer" else "correct the row"
                raise row.error(f'no column "{column}", which score = "{self.said.score}" needs: {remedy}.')


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in task. formats: one for each way in which its columns may be named. data: a data set of the hub, or
    "embedded". rows_of: makes the rows of a split that come with the package."""

    formats: tuple[PromptFormat, ...]
    data: str = EMBEDDED
    configuration: str | None = None
    validation_split: str = "validation"
    rows_of: Callable[[embedded.Split], Iterable[Mapping[str, Any]]] | None = None

    def read(self) -> Splits:
        """Training and validation rows. Raises DataError."""
        if self.rows_of is not None:
            return read_embedded(self.rows_of)
        return choose_splits(read_hub(self.data, self.configuration), ("train", self.validation_split), self.data)


_YES_NO = ("Yes", "No")
_RTE = '{%s}\nDoes this mean that "{%s}" is true? Yes or No?\n'
BUILT_IN = {
    "embedded": BuiltIn((PromptFormat(embedded.TEMPLATE, embedded.LABEL_WORDS),), rows_of=embedded.rows),
    "places": BuiltIn((PromptFormat(embedded.PLACES_TEMPLATE, embedded.PLACES),), rows_of=embedded.places),
    "sst2": BuiltIn((PromptFormat("{sentence} . it was", ("terrible", "great")),), "stanfordnlp/sst2"),
    "rte": BuiltIn(
        tuple(PromptFormat(_RTE % pair, _YES_NO) for pair in (("sentence1", "sentence2"), ("premise", "hypothesis"))),
        "nyu-mll/glue",
        "rte",
    ),
    "boolq": BuiltIn(
        tuple(PromptFormat("{passage} {question}?\n", ("No", "Yes"), column) for column in ("answer", "label")),
        "google/boolq",
    ),
    "trec": BuiltIn(
        tuple(
            PromptFormat(
                "{text}\nThis question asks for a",
                ("short form", "thing", "description", "person", "place", "number"),
                column,
            )
            for column in ("coarse_label", "label")
        ),
        "CogComp/trec",
        validation_split="test",
    ),
    "agnews": BuiltIn(
        (PromptFormat("{text}\nThis news is about", ("world", "sports", "business", "technology")),),
        "fancyzhx/ag_news",
        validation_split="test",
    ),
}


def choose_format(settings: ObjectiveSettings, columns: Mapping[str, Any]) -> Format:
    """The format of a run's task for data with these columns; settings override what a built-in task says."""
    form = _choose_format(settings, columns)
    if isinstance(form, PromptFormat | CompletionFormat) and form.label_column in fields_of(form.template):
        raise ConfigError(
            f'template shows the column "{form.label_column}", which is what is learned, so the answer would stand in '
            "the prompt: take it out of template, or correct label_column."
        )
    return form


def _choose_format(settings: ObjectiveSettings, columns: Mapping[str, Any]) -> Format:
    if settings.task in (forms := _free_forms(settings)):
        return forms[settings.task]
    built_in = BUILT_IN.get(settings.task)
    if settings.template is not None and (settings.label_words is not None or built_in is not None):
        words = settings.label_words or (built_in.formats[0].label_words if built_in else ())
        return PromptFormat(settings.template, words, settings.label_column or "label")
    if built_in is None:
        known = ", ".join((*BUILT_IN, *forms))
        raise ConfigError(
            f'task = "{settings.task}" needs template and label_words, unless it is one of {known}: set both in '
            "[run.objective]."
        )
    fits = [form for form in built_in.formats if columns.keys() >= {*form.columns, form.label_column}]
    form = fits[0] if fits else built_in.formats[0]
    words, column = settings.label_words or form.label_words, settings.label_column or form.label_column
    return PromptFormat(form.template, words, column)


def _free_forms(settings: ObjectiveSettings) -> dict[str, Format]:
    """The formats of the tasks whose rows have no labels; settings name their columns."""
    column = {} if settings.label_column is None else {"label_column": settings.label_column}
    template = {} if settings.template is None else {"template": settings.template}
    return {
        "lm": TextFormat(**template),
        "completion": CompletionFormat(**template, **column),
        "chat": ChatFormat(**column),
        "reward": RewardFormat(said=settings, **template, **column),
    }


def fields_of(template: str) -> tuple[str, ...]:
    """The names of the columns in a template. Raises ConfigError if it names none, or has anything but plain
    {column}."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"template {template!r} is broken ({error}): write columns as {{column}}.") from error
    fields = [part[1] for part in parts if part[1] is not None]
    is_plain = all(re.fullmatch(r"[^\W\d]([^][{}.!:]*[^][{}.!:\s])?", field) for field in fields)
    if not fields or not is_plain or any(part[2] or part[3] for part in parts):
        raise ConfigError(f"template {template!r} must name at least one column, and each of them as plain {{column}}.")
    return tuple(dict.fromkeys(fields))
