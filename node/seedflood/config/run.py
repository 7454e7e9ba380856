"""`[run]`: what every algorithm has, what the hosts learn (`[run.objective]`), and a table for each algorithm.

It is equal on all hosts, and its hash is the run id. The hash covers a schema version and the values that differ from
their defaults, so a new key with a default changes no run. A default may follow from other keys (rank of gradients).
Then a value counts as different if it is not what would follow. So it makes no difference whether a host writes a
default out or leaves it out: what counts is how the hosts train. This holds as long as the defaults stay what they are.
Under one schema version no released default ever changes (`tests/config/defaults.json`).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from seedflood.config.gasloc import GaslocSettings
from seedflood.config.seedflood import SeedfloodSettings
from seedflood.config.tables import AlgorithmSettings, Name, PublicKey, Section, Tables, merge, sections_of

RUN_SCHEMA = 10
"""It is counted up when a default changes, or what hosts make of updates: then hosts of the versions before and after
never link."""

RUN_CHARACTERS_SHOWN = 16
"""How many characters of a run id people see."""

TaskName = Literal[
    "embedded",
    "places",
    "sst2",
    "rte",
    "boolq",
    "trec",
    "agnews",
    "prompted",
    "lm",
    "completion",
    "chat",
    "reward",
    "own",
]

WITHOUT_ROWS: tuple[TaskName, ...] = ("prompted", "lm", "completion", "chat", "reward")
"""Tasks without rows of their own: each host says in `[node] data` where it has them."""


OF_TASK: Mapping[str, Tables] = {
    "reward": {"batch_size": 4, "seedflood": {"estimate": "gradient"}},  # each of four prompts gets a group of texts
    "own": {"seedflood": {"estimate": "gradient"}},  # loops and trainers call `backward`
}
"""What a run of this task has that says nothing else."""

KEYS_OF_REWARD = ("score", "score_sha256", "group", "max_new_tokens", "temperature", "kl", "ahead")
"""Of `[run.objective]`, for this task alone."""


READ_BY = frozenset({"task", "template", "label_words", "label_column"})
"""Of `[run.objective]`: by which rows are read."""


class ObjectiveSettings(Section):
    """`[run.objective]`: what is learned, and of what text."""

    task: TaskName = Field(
        "sst2",
        description="A task known by name, prompts with labels (prompted), plain text (lm), prompts with what follows "
        "them (completion), what the assistant says in chats (chat), whatever a score rewards (reward), or what "
        "a script of each host computes (own).",
    )
    template: str | None = Field(
        None,
        description='Columns of the data in braces: the prompt of task "prompted" ("{sentence} . it was") or of '
        '"completion" or "reward" (default "{prompt}"), the text of task "lm" (default "{text}").',
    )
    label_words: tuple[str, ...] | None = Field(None, description="One word per label, in the order of the labels.")
    label_column: str | None = Field(
        None,
        description='Column that holds the label (default "label"), or what is learned: "completion" of task '
        '"completion" and "messages" of "chat", unless it is called otherwise; the right "answer" of "reward".',
    )
    max_length: int = Field(256, ge=8, description="Tokens per row at most; longer prompts lose their beginning.")
    score: str = Field("exact", description='Task "reward": what a text is worth, such as exact, numeric or regex:...')
    score_sha256: str | None = Field(
        None, description='Task "reward": of the file of a score in a file, 64 hex digits.'
    )
    group: int = Field(8, ge=2, le=1024, description='Task "reward": texts per prompt, which are compared.')
    max_new_tokens: int = Field(64, ge=1, description='Task "reward": tokens of a text at most.')
    temperature: float = Field(1.0, gt=0, le=10, description='Task "reward": at which texts are drawn.')
    kl: float = Field(0.0, ge=0, le=10, description='Task "reward": what a nat away from the base model costs.')
    ahead: int = Field(
        0,
        ge=0,
        le=2,
        description='Task "reward": rounds whose texts a host may write before their time, while it waits for others.',
    )

    @property
    def is_code(self) -> bool:
        """Is the score in a file of the operator?"""
        return self.score.partition(":")[0].endswith(".py")

    @model_validator(mode="after")
    def _check_reward(self) -> Self:
        if self.task != "reward":
            fields = type(self).model_fields
            for key in (key for key in KEYS_OF_REWARD if getattr(self, key) != fields[key].default):
                raise ValueError(f'{key} is for task = "reward", but task is "{self.task}": take it out')
        elif self.label_words is not None:
            raise ValueError('task = "reward" has no labels: take label_words out')
        elif self.is_code and not Path(self.score.partition(":")[0]).is_absolute():
            raise ValueError(f'score = "{self.score}" is a file: name its whole path, the same on all hosts')
        elif self.score_sha256 is not None and not self.is_code:
            raise ValueError(f'score = "{self.score}" is no file: take score_sha256 out')
        elif self.max_new_tokens >= self.max_length:
            raise ValueError(
                f"max_new_tokens ({self.max_new_tokens}) leaves no room for a prompt: set it below max_length "
                f"({self.max_length})"
            )
        return self


class RunSettings(Section):
    """`[run]`: equal on all hosts, so hosts that disagree never link. A table bears the name of its `mode`."""

    name: Name = Field(
        default="run",
        description="Tells a run from an earlier one with the same settings, whose updates must not count.",
    )
    mode: str = Field("seedflood", description="How the hosts train together: an algorithm that has a table here.")
    model: str = Field(
        "embedded",
        min_length=1,
        description='Base model: "embedded", a Hugging Face name, a folder or a GGUF file (then equal on all hosts).',
    )
    operator: PublicKey | None = Field(
        None,
        description="Public key of the operator, 64 hex digits: only hosts on the roster that it signed take part "
        "(default: the run is open).",
    )
    seed: int = Field(1, ge=0, le=2**63 - 1, description="Whatever is drawn follows from it, and from the hosts' keys.")
    clients: int = Field(1, ge=1, le=65536, description="How many origins take part.")
    steps: int = Field(400, ge=1, le=2**32, description="Length of the run.")
    batch_size: int = Field(
        16, ge=1, le=65_536, description='Rows per origin and step; of task "reward" 4 prompts by default.'
    )
    train_examples: int | None = Field(None, ge=1, description="Training rows of all hosts together (default: all).")
    objective: ObjectiveSettings = ObjectiveSettings()
    seedflood: SeedfloodSettings = SeedfloodSettings()
    gasloc: GaslocSettings = GaslocSettings()

    @classmethod
    def algorithms(cls) -> list[str]:
        """The algorithms that have a table here."""
        return [name for name, table in sections_of(cls).items() if issubclass(table, AlgorithmSettings)]

    @property
    def algorithm(self) -> AlgorithmSettings:
        """The settings of the algorithm that `mode` selects."""
        selected: AlgorithmSettings = getattr(self, self.mode)
        return selected

    @model_validator(mode="before")
    @classmethod
    def _check_selected(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            mode = given.get("mode", cls.model_fields["mode"].default)
            for name in cls.algorithms():
                if name in given and name != mode:
                    raise ValueError(
                        f'the table [run.{name}] is for mode = "{name}", but mode is "{mode}": take the table out, or '
                        f'set mode = "{name}"'
                    )
        return given

    @model_validator(mode="before")
    @classmethod
    def _with_defaults_of_task(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("mode", "seedflood") == "seedflood":
            objective = given.get("objective")
            task = objective.get("task") if isinstance(objective, Mapping) else getattr(objective, "task", None)
            if isinstance(task, str) and not isinstance(given.get("seedflood"), Section):
                return merge(OF_TASK.get(task, {}), given)
        return given

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, mode: str) -> str:
        if mode not in (known := cls.algorithms()):
            raise ValueError(f"choose one of {', '.join(known)}")
        return mode

    @model_validator(mode="after")
    def _check_algorithm(self) -> Self:
        self.algorithm.check_steps(self.steps)
        if self.mode == "seedflood":
            self.seedflood.turn_rounds(self.clients)
        self.algorithm.check_task(self.objective.task)
        if self.objective.ahead and self.seedflood.local_steps > 1:
            raise ValueError("texts are written ahead of single steps: set local_steps = 1, or ahead = 0")
        if self.objective.ahead and self.seedflood.participants is not None:
            raise ValueError("texts are written ahead of each step: leave participants out, or set ahead = 0")
        return self

    @model_serializer(mode="wrap")
    def _drop_others(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out the tables of algorithms that do not run."""
        return {key: value for key, value in dump(self).items() if key == self.mode or key not in self.algorithms()}

    @classmethod
    def place(cls, keys: Tables) -> dict[str, Any]:
        """Puts keys, given by their bare names, into their tables, that of the mode before others. A value that is a
        table already stays as it is."""
        placed, mode = dict[str, Any](), keys.get("mode", cls.model_fields["mode"].default)
        tables = sorted(sections_of(cls).items(), key=lambda named: named[0] != mode)
        for key, value in keys.items():
            names = [name for name, table in tables if key in table.model_fields and key not in cls.model_fields]
            placed = merge(placed, {names[0]: {key: value}} if names else {key: value})
        return placed

    @classmethod
    def of(cls, **keys: Any) -> Self:
        """Settings from keys by their bare names. Raises ValidationError."""
        return cls(**cls.place(keys))

    def canonical(self) -> str:
        """What is hashed: all values that differ from their defaults, as JSON with sorted keys."""
        return json.dumps(deviations(self), sort_keys=True, separators=(",", ":"))

    def run_id(self) -> bytes:
        """32 bytes, equal on hosts with equal `[run]`."""
        return hashlib.sha256(f"seedflood run {RUN_SCHEMA}\0".encode() + self.canonical().encode()).digest()

    def shown_id(self) -> str:
        """The beginning of the run's id, as people see it."""
        return self.run_id().hex()[:RUN_CHARACTERS_SHOWN]


def deviations(table: Section) -> dict[str, Any]:
    """The values that differ from their defaults, given the keys above them; tables without any are left out."""
    found: dict[str, Any] = {}
    known: dict[str, Any] = {}
    dumped = table.model_dump(mode="json")
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if isinstance(value, Section):
            if name in dumped and (below := deviations(value)):
                found[name] = below
        elif value != field.get_default(call_default_factory=True, validated_data=dict(known)):
            found[name] = dumped[name]
        known[name] = value
    return found
