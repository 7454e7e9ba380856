"""Scores by comparison with the column `answer` of a row, and by the form of a text: 1 or 0, but for `length`."""

import json
import re
from collections.abc import Mapping
from fractions import Fraction

from seedflood.errors import ConfigError
from seedflood.training.rewards.scorer import Scorer

NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d+(?:,\d{3})*(?:\.\d+)?|(?<![\w.])\.\d+)")
"""A minus behind a word or a bracket is a sign of calculation."""


def exact(prompt: str, completion: str, row: Mapping[str, object]) -> float:
    """The text is the answer, but for space around it."""
    return float(completion.strip() == str(row["answer"]).strip())


def numeric(prompt: str, completion: str, row: Mapping[str, object]) -> float:
    """The last number of the text equals the last number of the answer."""
    found = _last_number(completion)
    return float(found is not None and found == _last_number(str(row["answer"])))


def regex(pattern: str) -> Scorer:
    """The pattern is found in the text. Raises ConfigError."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f'The score "regex:{pattern}" has no valid pattern ({error}): correct it.') from error
    return lambda prompt, completion, row: float(compiled.search(completion) is not None)


def choice(words: list[str]) -> Scorer:
    """The first of these words in the text is the answer, in capitals or not."""
    known = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})(?!\w)", re.I)

    def score(prompt: str, completion: str, row: Mapping[str, object]) -> float:
        found = known.search(completion)
        return float(found is not None and found[0].lower() == str(row["answer"]).strip().lower())

    return score


def json_object(keys: list[str]) -> Scorer:
    """The text is JSON: an object with these keys, if there are any, and valid by the schema in the column "schema", if
    the row has one."""

    def score(prompt: str, completion: str, row: Mapping[str, object]) -> float:
        try:
            value = json.loads(completion)
        except (ValueError, RecursionError):
            return 0.0
        has_keys = not keys or (isinstance(value, dict) and value.keys() >= {*keys})
        return float(has_keys and ("schema" not in row or _is_valid(value, row["schema"])))

    return score


def length(characters: int) -> Scorer:
    """1 for a text of so many characters, falling evenly to 0 for none and for twice as many."""
    return lambda prompt, completion, row: max(0.0, 1 - abs(len(completion.strip()) - characters) / characters)


def _last_number(text: str) -> Fraction | None:
    found = NUMBER.findall(text)
    return Fraction(found[-1].replace(",", "")) if found else None


def _is_valid(value: object, schema: object) -> bool:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    rules = json.loads(schema) if isinstance(schema, str) else schema
    return bool(Draft202012Validator(rules, registry=Registry()).is_valid(value))  # fetches no schema from elsewhere
