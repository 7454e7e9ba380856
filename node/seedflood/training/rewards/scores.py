"""Which scores there are, by the names that `[run.objective] score` has for them.

    exact, numeric           the answer, or its last number
    regex:PATTERN            found in the text
    choice:yes,no            the first of these words is the answer
    json, json:KEY,KEY       JSON, with these keys; valid, if the row has a schema
    length:80                near so many characters
    countdown                a sum of the row's numbers that makes its target
    gym:chain_sum            a task of reasoning-gym
    FILE.py:FUNCTION         a function of prompt, completion and row, where `[node] allow_code = true`

No score here runs what a model wrote. Some tasks of reasoning-gym do, by `eval` or a parser of sympy, which calls it.
All are refused that have one of these in their source, also if it never sees the text: that would take a reader.
"""

import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from seedflood.errors import ConfigError
from seedflood.training.rewards import answers
from seedflood.training.rewards.countdown import countdown
from seedflood.training.rewards.local import LocalScore, read_source
from seedflood.training.rewards.scorer import Guarded, Scorer

RUNS_TEXT = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")


def make_scorer(spec: str, sha256: str | None = None) -> Scorer:
    """The score of this name. sha256: of its file, if it is in one. Raises ConfigError."""
    name, _, argument = spec.partition(":")
    if name.endswith(".py"):
        return Guarded(spec, LocalScore(Path(name), source_of(spec, sha256), argument or "score"))
    if name not in KINDS:
        raise ConfigError(f'There is no score "{spec}": use one of {", ".join(KINDS)}, or FILE.py:FUNCTION.')
    return Guarded(spec, KINDS[name](spec, argument))


def source_of(spec: str, sha256: str | None) -> bytes:
    """The file of a score, which is not run. Raises ConfigError if it is another one than that of this SHA-256."""
    return read_source(Path(spec.partition(":")[0]), sha256)


def columns_of(spec: str) -> tuple[str, ...]:
    """The columns that a row must have to be scored."""
    return COLUMNS.get(spec.partition(":")[0], ())


def _choice(spec: str, words: str) -> Scorer:
    return answers.choice(_list(spec, words, "the words to choose from, as in choice:yes,no"))


def _apart(made_by: str, module: str = answers.__name__) -> Scorer:
    """A score that a module makes, in a process of its own, for it may search what a model wrote for ever, and Python's
    `re` lets nothing else run meanwhile. Raises ConfigError."""
    source = f"from {module} import *\nscore = {made_by}"
    return LocalScore(Path(module), source.encode(), "score")


def _regex(spec: str, pattern: str) -> Scorer:
    if not pattern:
        raise ConfigError(f'The score "{spec}" needs a pattern, as in regex:^yes: add it.')
    answers.regex(pattern)
    return _apart(f"regex({pattern!r})")


def _length(spec: str, characters: str) -> Scorer:
    if not (characters.isascii() and characters.isdigit() and 0 < int(characters) <= 1_000_000):
        raise ConfigError(f'The score "{spec}" needs a number of characters, as in length:80: correct it.')
    return answers.length(int(characters))


def _json(spec: str, keys: str) -> Scorer:
    named = _list(spec, keys, "keys, as in json:name,age") if keys else []
    return _apart(f"json_object({named!r})")  # a schema may have patterns


def _gym(spec: str, task: str) -> Scorer:
    """A task's own score. Raises ConfigError for one that is not there, or that runs what a model wrote."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError(f'The score "{spec}" needs the package reasoning-gym: install seedflood[rewards].')
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    if task not in DATASETS or task == "composite":
        raise ConfigError(f'reasoning-gym has no task "{task}" that scores: see reasoning_gym.factory.DATASETS.')
    modules = {inspect.getmodule(one) for one in DATASETS[task][0].__mro__ if one is not object}
    if any(module and RUNS_TEXT.search(inspect.getsource(module)) for module in modules):
        raise ConfigError(f'The score "{spec}" runs what a model wrote, which seedflood never does: choose another.')
    made_by = f"lambda prompt, completion, row, own=get_score_answer_fn({task!r}): own(completion.strip(), row)"
    return _apart(made_by, get_score_answer_fn.__module__)


def _list(spec: str, words: str, what: str) -> list[str]:
    found = [word.strip() for word in words.split(",")]
    if not all(found):
        raise ConfigError(f'The score "{spec}" needs {what}: add them.')
    return found


KINDS: Mapping[str, Callable[[str, str], Scorer]] = {
    "exact": lambda spec, _: answers.exact,
    "numeric": lambda spec, _: answers.numeric,
    "regex": _regex,
    "choice": _choice,
    "json": _json,
    "length": _length,
    "countdown": lambda spec, _: countdown,
    "gym": _gym,
}

COLUMNS = {
    "exact": ("answer",),
    "numeric": ("answer",),
    "choice": ("answer",),
    "countdown": ("numbers", "target"),
    "gym": ("answer", "metadata"),
}
