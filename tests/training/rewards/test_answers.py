"""Scores by comparison with an answer, and by form."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.training.rewards.answers import choice, exact, json_object, length, numeric, regex

TEXTS = st.text(max_size=40)
WORDS = st.text("abc", min_size=1, max_size=4)
NUMBERS = st.decimals(-(10**9), 10**9, places=3).map(str) | st.integers(-(10**12), 10**12).map("{:,}".format)


@given(TEXTS, TEXTS, st.text(" \n\t", max_size=3))
def test_an_exact_answer_is_the_answer_but_for_space_around_it(text, answer, space):
    assert exact("", space + text + space, {"answer": answer}) == (text.strip() == answer.strip())


@given(TEXTS.filter(lambda text: not re.search(r"\d", text)), NUMBERS)
def test_the_last_number_counts_however_it_is_spelled(text, number):
    row = {"answer": f"because of this #### {number}"}
    assert numeric("", f"7, then {text} {number}", row) == 1
    assert numeric("", f"{number} {text}", row) == 1
    assert numeric("", f"{number}{text} 5e", {"answer": 6}) == 0
    assert numeric("", text, row) == 0


@pytest.mark.parametrize(
    ("text", "answer", "worth"),
    [
        ("12-5 = 7", 7, 1),
        ("12-5", -5, 0),
        ("12-5", 5, 1),
        ("it is -5.", -5, 1),
        ("1,234", "1234.0", 1),
        ("1,2", 2, 1),
        (".50 m", "0.5", 1),
        ("-.5", -0.5, 1),
        ("see fig.3", 3, 1),
        ("³", 3, 0),
        ("", "", 0),
    ],
)
def test_numbers_are_read_as_people_read_them(text, answer, worth):
    assert numeric("", text, {"answer": answer}) == worth


@given(TEXTS, WORDS)
def test_a_pattern_is_found_or_not(text, word):
    assert regex(word)("", text, {}) == (word in text)


@given(st.lists(WORDS, min_size=1, max_size=4, unique=True), st.lists(WORDS, max_size=5), WORDS)
def test_the_first_word_to_choose_decides(choices, text, answer):
    first = next((word for word in text if word in choices), None)
    worth = choice(choices)("", " ".join(text).upper(), {"answer": answer})
    assert worth == (first is not None and first == answer)


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda some: st.dictionaries(WORDS, some))


@given(VALUES, st.lists(WORDS, max_size=2))
def test_json_is_an_object_with_these_keys(value, keys):
    has_them = all(isinstance(value, dict) and key in value for key in keys)
    assert json_object(keys)("", json.dumps(value), {}) == has_them


@pytest.mark.parametrize("text", ["{", "nothing", "[" * 100_000, "'a'", ""])
def test_what_is_no_json_is_worth_nothing(text):
    assert json_object([])("", text, {}) == 0


@given(VALUES)
def test_json_must_be_valid_by_the_schema_of_its_row(value):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    is_valid = isinstance(value, dict) and isinstance(value.get("a"), int) and not isinstance(value["a"], bool)
    for spelled in (schema, json.dumps(schema)):
        assert json_object([])("", json.dumps(value), {"schema": spelled}) == is_valid


@given(st.integers(1, 60), st.text("ab", max_size=120))
def test_the_nearer_to_the_length_the_better(characters, text):
    worth = length(characters)("", text, {})
    assert 0 <= worth <= 1
    assert (worth == 1) == (len(text) == characters)
    if len(text) < characters:
        assert length(characters)("", text + "a", {}) > worth
