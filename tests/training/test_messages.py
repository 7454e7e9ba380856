"""Messages as rows of many origins have them: which are learned, whose they are, and what is data in them."""

import json

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from seedflood.errors import DataError
from seedflood.training.files import read_file
from seedflood.training.messages import is_learned, is_left_out, read_messages, read_tools, unread_keys
from seedflood.training.rows import Row

CALL = '{"name": "add", "arguments": {"a": null}}'


def chat(*answers, **columns):
    turns = [one for answer in answers for one in ({"role": "user", "content": "a"}, answer)]
    return Row({"messages": turns, **columns}, "rows", 1)


def says(content="b", **more):
    return {"role": "assistant", "content": content, **more}


def learned(row):
    return [is_learned(one) for one in read_messages(row, "messages") if one["role"] == "assistant"]


@pytest.mark.parametrize("name", ["weight", "train", "trainable", "training", "loss", "loss_mask", "loss_weight"])
@pytest.mark.parametrize(("no", "yes"), [(False, True), (0, 1), (0.0, 1.0), ("false", "True")])
def test_a_turn_that_is_marked_is_not_learned(name, no, yes):
    assert learned(chat(says(**{name: no}), says(**{name: yes}), says(**{name: None}))) == [False, True, True]


@pytest.mark.parametrize("name", ["masked", "is_masked"])
def test_a_masked_turn_is_not_learned(name):
    assert learned(chat(says(**{name: True}), says(**{name: False}))) == [False, True]


def test_a_list_beside_the_messages_marks_each_or_each_answer():
    for marks in ([0, 0, 0, 1], [0, 1]):
        assert learned(chat(says(), says(), loss_mask=marks)) == [False, True]
    with pytest.raises(
        DataError, match=r'column "loss_mask" has other than one mark for each message \(3 for 4\): give one to each'
    ):
        learned(chat(says(), says(), loss_mask=[0, 1, 1]))


@pytest.mark.parametrize("columns", [{"train": False}, {"weight": 0}, {"masked": True}, {"trainable": "no"}])
def test_a_row_that_is_marked_is_left_out(columns):
    assert is_left_out(chat(says(), **columns))


@pytest.mark.parametrize("columns", [{}, {"train": True}, {"loss": 1.7}, {"weight": "2 kg"}, {"loss_mask": [0, 1]}])
def test_other_rows_are_not_left_out(columns):
    assert not is_left_out(chat(says(), **columns))


def test_marks_that_mean_nothing_or_two_things_are_refused():
    with pytest.raises(DataError, match=r"0\.5 as \"weight\", which is 1 \(or true\) or 0"):
        learned(chat(says(weight=0.5)))
    with pytest.raises(DataError, match=r"contradict each other \(masked, train\)"):
        learned(chat(says(train=True, masked=True)))


@pytest.mark.parametrize("keys", [("role", "content"), ("from", "value"), ("from", "content"), ("role", "value")])
@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("human", "user"),
        ("Human", "user"),
        ("bot", "assistant"),
        ("GPT", "assistant"),
        ("model", "assistant"),
        ("observation", "tool"),
        ("tool_response", "tool"),
        ("System", "system"),
        ("developer", "developer"),
    ],
)
def test_roles_have_other_names_wherever_they_stand(keys, name, role):
    row = Row({"messages": [dict(zip(keys, (name, "x"), strict=True)), says()]}, "rows", 1)
    assert read_messages(row, "messages")[0] == {"role": role, "content": "x"}


@pytest.mark.parametrize("value", [CALL, f"[{CALL}]"])
@pytest.mark.parametrize("keys", [("role", "content"), ("from", "value")])
def test_what_is_said_as_a_function_call_is_a_call(keys, value):
    row = Row({"messages": [dict(zip(keys, ("function_call", value), strict=True))]}, "rows", 1)
    (call,) = read_messages(row, "messages")[0]["tool_calls"]
    assert call == {"type": "function", "function": {"name": "add", "arguments": {"a": None}}}
    with pytest.raises(DataError, match="a call of a tool has no name"):
        read_messages(Row({"messages": [{"from": "function_call", "value": "add(1)"}]}, "rows", 1), "messages")


CALLS = [{"type": "function", "id": "1", "function": {"name": "add", "arguments": {"a": 2}}}]
FLAT = {"name": "add", "id": "1"}


@pytest.mark.parametrize(
    "given",
    [
        [{**FLAT, "arguments": {"a": 2}}],
        [{**FLAT, "arguments": '{"a": 2}'}],
        [{**FLAT, "parameters": {"a": 2}}],
        {**FLAT, "arguments": {"a": 2}},
        json.dumps(CALLS),
        json.dumps(CALLS[0]),
        [json.dumps(CALLS[0])],
        [{"id": "1", "function": {"name": "add", "parameters": {"a": 2}}}],
    ],
)
def test_calls_have_one_form_however_they_are_told(given):
    """Templates know calls with a function alone."""
    row = chat({"role": "assistant", "content": None, "tool_calls": given})
    assert read_messages(row, "messages")[-1]["tool_calls"] == CALLS


@pytest.mark.parametrize("given", [[], "[]", "null", None, {}])
def test_no_calls_may_be_told_in_many_ways(given):
    assert "tool_calls" not in read_messages(chat(says(tool_calls=given)), "messages")[-1]


def test_arguments_by_another_name_are_not_dropped():
    with pytest.raises(DataError, match='a call of a tool has args, and no arguments: call these "arguments"'):
        read_messages(chat(says(tool_calls=[{"name": "add", "args": {"a": 2}}])), "messages")


def test_null_within_arguments_and_tools_is_data():
    call = {"function": {"name": "add", "arguments": {"a": None}, "strict": None}, "id": None}
    tools = [{"function": {"parameters": {"default": None}}}]
    row = chat({"role": "assistant", "content": None, "tool_calls": [call]}, tools=tools)
    (read,) = read_messages(row, "messages")[-1]["tool_calls"]
    assert read["function"]["arguments"] == {"a": None}
    assert read_tools(row) == tools


def test_keys_that_a_table_gives_to_all_messages_are_left_out(tmp_path):
    rows = [{"messages": [says(tool_calls=[{"name": "f", "arguments": one}])]} for one in ({"a": 1}, {"b": 2})]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
    first, _ = read_file(tmp_path / "rows.parquet").rows
    assert first.columns["messages"][0]["tool_calls"] == [{"name": "f", "arguments": {"a": 1}}]


def test_a_chat_may_be_an_object_of_lists_and_answers_may_be_numbers():
    given = {"from": ["human", "gpt"], "value": ["2+2?", 4]}
    found = read_messages(Row({"messages": given}, "rows", 1), "messages")
    assert found == [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]


def test_keys_that_nobody_reads_are_found():
    row = chat(says(score=3, name="x", train=True, note=None))
    assert unread_keys(row, "messages", "{{ message.name }}") == {"score"}


def test_images_are_not_decoded_and_maps_are_objects(tmp_path):
    images = pyarrow.array([{"bytes": b"no image", "path": None}] * 2)
    maps = pyarrow.array([[("a", "b")]] * 2, pyarrow.map_(pyarrow.string(), pyarrow.string()))
    table = pyarrow.table({"text": ["a", "b"], "image": images, "more": maps})
    told = b'{"info": {"features": {"image": {"_type": "Image"}}}}'
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"huggingface": told}), tmp_path / "rows.parquet")
    first, _ = read_file(tmp_path / "rows.parquet").rows
    assert (first.columns["text"], first.columns["more"]) == ("a", {"a": "b"})


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\n ", b" \n"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_list_may_stand_behind_the_mark_of_a_byte_order(tmp_path, head, name):
    (tmp_path / name).write_bytes(head + b'[{"a": 1}, {"a": 2}]')
    assert [row.columns for row in read_file(tmp_path / name).rows] == [{"a": 1}, {"a": 2}]
