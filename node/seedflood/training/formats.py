"""How a row becomes text, and what is learned of it: the formats of the built-in tasks, and those that settings spell
out. Commands that only look at rows use them, too, so nothing here needs torch.

Classification uses prompts, as MeZO does (arXiv 2305.17333, appendix D). A template makes a prompt of a row, and the
answer is the label word whose first token the model finds most likely right after it. "lm" is language modelling of
what a template makes of a row, "completion" and "chat" of the answers alone. "reward" has prompts alone: the model
itself writes what it learns from.
"""

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seedflood import embedded
from seedflood.config import EMBEDDED, ObjectiveSettings
from seedflood.errors import ConfigError
from seedflood.training.messages import as_list, is_left_out, role_of
from seedflood.training.objectives.example import Rendered
from seedflood.training.rewards.scores import columns_of
from seedflood.training.rows import Row, Splits, Table, choose_splits
from seedflood.training.sources import read_embedded, read_hub


@dataclass(frozen=True, slots=True)
class Format(ABC):
    """How a row is read; `tasks.ENCODERS` has an encoder for each kind."""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """The columns that are read; that of the label, or of what is learned, comes last."""

    @abstractmethod
    def check(self, row: Row) -> None:
        """Raises DataError for a row that cannot be learned from, as far as that can be told without a tokenizer."""

    def is_left_out(self, row: Row) -> bool:
        """Does the row say that it is not learned?"""
        return is_left_out(row, self.reads)

    def learned_rows(self, table: Table) -> list[Row]:
        """The rows of a table without those that are left out. Raises DataError if the table names its labels, and in
        another order than this format."""
        return [row for row in table.rows if not self.is_left_out(row)]


@dataclass(frozen=True, slots=True)
class TemplateFormat(Format):
    """template: what is made of a row, columns in braces."""

    template: str

    @property
    def reads(self) -> tuple[str, ...]:
        return fields_of(self.template)

    @abstractmethod
    def render(self, row: Row) -> Rendered:
        """Raises DataError for a row that lacks what is read."""

    def check(self, row: Row) -> None:
        self.render(row)

    def stripped(self, row: Row) -> str:
        """The template with the columns of a row in it, without space around them."""
        texts = row.texts(fields_of(self.template))
        return self.template.format_map({column: text.strip() for column, text in texts.items()}).rstrip(" ")


BOOLEANS = {"false": ("false", "no", "0"), "true": ("true", "yes", "1")}
"""By what a file says, in the order of the labels: the words that mean it."""


@dataclass(frozen=True, slots=True)
class PromptFormat(TemplateFormat):
    """template: the prompt. label_words: in the order of the labels."""

    label_words: tuple[str, ...]
    label_column: str = "label"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*fields_of(self.template), self.label_column)

    def render(self, row: Row) -> Rendered:
        return Rendered(self.stripped(row), (), self.label(row))

    def learned_rows(self, table: Table) -> list[Row]:
        for place, name in enumerate(table.label_names.get(self.label_column, ())):
            if name in self.label_words and self.label_words.index(name) != place:
                raise table.rows[0].error(
                    f'label {place} in column "{self.label_column}" is called {name}, and that is number '
                    f"{self.label_words.index(name)} of label_words: write the names in place of the numbers."
                )
        return TemplateFormat.learned_rows(self, table)

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

    def render(self, row: Row) -> Rendered:
        return Rendered(self.stripped(row))

    def is_left_out(self, row: Row) -> bool:
        """Blank texts are, too."""
        values = [row.columns.get(column) for column in self.reads]
        has_text = not all(isinstance(value, str) and not value.strip() for value in values)
        return not has_text or TemplateFormat.is_left_out(self, row)


@dataclass(frozen=True, slots=True)
class CompletionFormat(TemplateFormat):
    """template: the prompt. label_column: what follows it, which is learned. Both stand as they are in the row: nothing
    is put between them."""

    template: str = "{prompt}"
    label_column: str = "completion"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*fields_of(self.template), self.label_column)

    def render(self, row: Row) -> Rendered:
        texts = row.texts(self.reads)
        if not texts[self.label_column].strip():
            raise row.error(f'nothing in column "{self.label_column}", which is learned: remove the row.')
        prompt = self.template.format_map(texts)
        text = prompt + texts[self.label_column]
        return Rendered(text, ((len(prompt), len(text)),))


@dataclass(frozen=True, slots=True)
class ChatFormat(Format):
    """label_column: a list of messages with role and content. `ChatEncoder` reads them: only the template of a model
    tells how they are written."""

    label_column: str = "messages"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.label_column,)

    def check(self, row: Row) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class RewardFormat(TemplateFormat):
    """template: the prompt; one column alone may hold messages in place of text. label_column: the right answer, for
    scores that ask for one. settings: how texts are written and scored."""

    template: str = "{prompt}"
    label_column: str = "answer"
    settings: ObjectiveSettings = field(kw_only=True)

    @property
    def reads(self) -> tuple[str, ...]:
        answer = [self.label_column] if "answer" in columns_of(self.settings.score) else []
        return tuple(dict.fromkeys([*fields_of(self.template), *answer]))

    def messages(self, row: Row) -> list[Any] | None:
        """The prompt, if it is a chat that goes on."""
        column = fields_of(self.template)[0]
        value = row.columns.get(column)
        value = as_list(value) if isinstance(value, Mapping) else value
        return value if isinstance(value, list) and self.template == f"{{{column}}}" else None

    def render(self, row: Row) -> Rendered:
        """Of a chat that goes on without its text, which only the template of a model tells."""
        messages = self.messages(row)
        texts = {} if messages is not None else row.texts(fields_of(self.template))
        if not (messages or any(text.strip() for text in texts.values())):
            raise row.error("the prompt is empty: give it text, or remove the row.")
        self._check_answer(row, messages)
        columns = {**row.columns, "answer": row.columns.get(self.label_column)}
        return Rendered("" if messages else self.template.format_map(texts), (), columns=columns)

    def _check_answer(self, row: Row, messages: list[Any] | None) -> None:
        """Raises DataError if a row lacks what its score needs, or has it in the prompt."""
        last = messages[-1] if messages else None
        if isinstance(last, Mapping) and "assistant" in map(role_of, (last.get("role"), last.get("from"))):
            raise row.error(
                "the last message is the assistant's, who is to write now: remove it, and put what is right into "
                f'column "{self.label_column}".'
            )
        for name in columns_of(self.settings.score):
            column = self.label_column if name == "answer" else name
            if row.columns.get(column) is None:
                remedy = "correct the row, or label_column of the run" if name == "answer" else "correct the row"
                raise row.error(f'no column "{column}", which score = "{self.settings.score}" needs: {remedy}.')


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


def choose_format(settings: ObjectiveSettings, columns: Collection[str]) -> Format:
    """The format of a run's task for data with these columns; settings override what a built-in task says."""
    form = _choose_format(settings, columns)
    if isinstance(form, PromptFormat | CompletionFormat) and form.label_column in fields_of(form.template):
        raise ConfigError(
            f'template shows the column "{form.label_column}", which is what is learned, so the answer would stand in '
            "the prompt: take it out of template, or correct label_column."
        )
    return form


def _choose_format(settings: ObjectiveSettings, columns: Collection[str]) -> Format:
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
    fits = [form for form in built_in.formats if {*form.reads} <= {*columns}]
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
        "reward": RewardFormat(settings=settings, **template, **column),
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
