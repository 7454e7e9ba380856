"""Messages of a chat as rows have them, and in the one form that templates know: role and content, perhaps calls."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from seedflood.training.rows import Row, as_text

ROLES = {
    **dict.fromkeys(("system", "user", "assistant", "tool"), None),
    **dict.fromkeys(("human", "prompter"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bot", "chatbot", "model", "ai", "function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("observation", "function", "function_response", "tool_response", "tool_result"), "tool"),
}
"""Names of roles in small letters, and what they mean in a template; None: the same."""

ROLES_OF_CALLS = ("function_call", "tool_call")
"""What these say is a call of a tool, as JSON."""

AROUND_CALLS = ("id", "type", "index", "call_id")
"""What stands beside the function of a call."""

LEARNED_IF = {
    **dict.fromkeys(("weight", "train", "trainable", "training", "loss", "loss_mask", "loss_weight"), True),
    **dict.fromkeys(("masked", "is_masked"), False),
}
"""Keys of a message or of a row that tell whether it is learned, and by which value it is."""

MARK_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

READ_KEYS = {"role", "content", "from", "value", "weight", "tool_calls", "tool_call_id", "reasoning_content"}
"""Of a message; a template may read others."""

REASONING_PARTS = ("reasoning", "thinking")
"""Types of parts that are no part of the answer, though they stand in its content."""

Message = dict[str, Any]


def read_messages(row: Row, column: str) -> list[Message]:
    """The messages of a row of which some are learned, with text as their content. Raises DataError."""
    given = as_list(row.columns.get(column))
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        found = ", ".join(sorted(map(str, row.columns)))
        raise row.error(
            f'no list of messages in column "{column}" (columns: {found}): a row looks like {{"{column}": '
            '[{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}.'
        )
    messages = [read_message(row, one) for one in given]
    _mark_by_row(row, given, messages)
    if not any(map(is_learned, messages)):
        roles = ", ".join(dict.fromkeys(message["role"] for message in messages)) or "none"
        raise row.error(
            f"the assistant says nothing in this chat (roles: {roles}), or nothing with a weight: remove the row."
        )
    if empty := [k for k, one in enumerate(messages, 1) if is_learned(one) and is_empty(one)]:
        raise row.error(f"the assistant's turn (message {empty[0]}) is empty: remove the row, or give it weight 0.")
    return messages


def read_message(row: Row, given: Any) -> Message:
    """A message with a role, and with text as its content. Raises DataError."""
    message: Message = _without_none(given) if isinstance(given, Mapping) else {}
    role = message.pop("from", None)
    content = message.pop("value", None)
    role, content = message.get("role", role), message.get("content", content)
    if isinstance(role, str) and role.strip().lower() in ROLES_OF_CALLS:
        calls = as_list(content)
        message |= {"tool_calls": calls if isinstance(calls, list) else [calls]}
        content = ""
    elif isinstance(content, Mapping) and role_of(role) == "tool":
        content = json.dumps(content, ensure_ascii=False)
    text = as_text(content)
    message |= {"role": role_of(role), "content": content if text is None else text}
    is_marked = _is_marked(row, message)
    for key in LEARNED_IF:
        message.pop(key, None)
    if is_marked is False:
        message["weight"] = 0
    content = message.get("content")
    if isinstance(content, list):
        message |= _read_parts(content)
        content = message["content"]
    if "function_call" in message:
        raise row.error("a function_call, which templates do not write: tell it in tool_calls, and its result as tool.")
    if calls := _read_calls(row, message.pop("tool_calls", None)):
        message |= {"content": content or "", "tool_calls": calls}
        content = message["content"]
    if not isinstance(message.get("role"), str) or not isinstance(content, str):
        raise row.error("a message has no role, or no text as its content: correct or remove the row.")
    return message


def _read_parts(parts: list[Any]) -> Message:
    """A content of parts as content, and as reasoning where parts are that. What is no text stays as it is."""
    text = reasoning = ""
    for part in parts:
        kind = part.get("type", "text") if isinstance(part, Mapping) else "unknown"
        content = part.get("text", part.get(kind)) if isinstance(part, Mapping) else None
        if kind in REASONING_PARTS and isinstance(content, list):
            content = _read_parts(content)["content"]
        if not isinstance(content, str):
            return {"content": parts}
        if kind in REASONING_PARTS:
            reasoning += content
        else:
            text += content
    return {"content": text, "reasoning_content": reasoning} if reasoning else {"content": text}


def _read_calls(row: Row, given: Any) -> list[Message]:
    """Calls of tools: a list, or one alone, each an object or JSON. Raises DataError."""
    calls = as_list(given)
    if not calls:
        return []
    if isinstance(calls, Mapping):
        calls = [calls]
    return [_read_call(row, parsed(one)) for one in calls]


def _read_call(row: Row, given: Any) -> Message:
    """A call of a tool in the form that templates know, of which OpenAI's files have the arguments as JSON. Raises
    DataError."""
    call = _without_none(given) if isinstance(given, Mapping) else {}
    function = call.pop("function", None)
    if function is None:  # name and arguments stand there by themselves
        function = {key: call.pop(key) for key in list(call) if key not in AROUND_CALLS}
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise row.error("a call of a tool has no name: correct or remove the row.")
    function = dict(function)
    if "arguments" not in function and "parameters" in function:
        function["arguments"] = function.pop("parameters")
    if "arguments" not in function and (others := sorted(function.keys() - {"name", *AROUND_CALLS})):
        raise row.error(f'a call of a tool has {", ".join(others)}, and no arguments: call these "arguments".')
    arguments = function.get("arguments") or {}
    read = parsed(arguments)
    function["arguments"] = read if isinstance(read, Mapping) else arguments
    return {"type": "function", **call, "function": function}


def role_of(name: Any) -> Any:
    """The role that a template knows by another name."""
    small = name.strip().lower() if isinstance(name, str) else None
    return (ROLES[small] or small) if small in ROLES else name


def row_marks(row: Row) -> dict[str, bool | list[bool]]:
    """What the columns of a row say about whether it is learned: all of it, or each of its messages. A column of such a
    name with other values is none."""
    found: dict[str, bool | list[bool]] = {}
    for name in LEARNED_IF.keys() & row.columns.keys():
        value = parsed(row.columns[name])
        marks = [_mark(one) for one in (value if isinstance(value, list) else [value])]
        known = [mark is LEARNED_IF[name] for mark in marks if mark is not None]
        if known and len(known) == len(marks):
            found[name] = known if isinstance(value, list) else known[0]
    return found


def is_left_out(row: Row, read: Collection[str] = ()) -> bool:
    """Does the row say that nothing of it is learned? read: columns that are no marks, as something else is read of
    them."""
    return any(mark is False and name not in read for name, mark in row_marks(row).items())


def unread_keys(row: Row, column: str, template: str) -> set[str]:
    """Keys of the messages of a row that neither this module nor the template reads."""
    given = as_list(row.columns.get(column))
    keys = {str(key) for one in given for key, value in one.items() if value is not None}
    keys -= READ_KEYS | LEARNED_IF.keys()
    return {key for key in keys if not re.search(rf"[.'\"]{re.escape(key)}\b", template)}


def _mark_by_row(row: Row, given: list[Any], messages: list[Message]) -> None:
    """Notes which messages a list of marks beside them leaves out: it has one for each message, or for each turn of the
    assistant. Raises DataError."""
    answers = [one for one in messages if one["role"] == "assistant"]
    for name, marks in row_marks(row).items():
        if not isinstance(marks, list):
            continue
        marked = messages if len(marks) == len(messages) else answers
        if len(marks) != len(marked):
            raise row.error(
                f'column "{name}" has other than one mark for each message ({len(marks)} for {len(messages)}): give '
                "one to each, or to each turn of the assistant."
            )
        for message, is_marked in zip(marked, marks, strict=True):
            if not is_marked:
                message["weight"] = 0


def _is_marked(row: Row, message: Message) -> bool | None:
    """Whether a message says that it is learned; None: nothing. Raises DataError."""
    found: dict[str, bool] = {}
    for name in LEARNED_IF.keys() & message.keys():
        mark = _mark(message[name])
        if mark is None:
            raise row.error(
                f'a message has {message[name]!r} as "{name}", which is 1 (or true) or 0 (or false): correct it.'
            )
        found[name] = mark is LEARNED_IF[name]
    if len(set(found.values())) > 1:
        raise row.error(f"the marks of a message contradict each other ({', '.join(sorted(found))}): correct them.")
    return next(iter(found.values()), None)


def _mark(value: Any) -> bool | None:
    """A boolean, a number or a word as a mark; None: it is none."""
    if isinstance(value, str):
        return MARK_WORDS.get(value.strip().lower())
    return bool(value) if value in (0, 1) else None


def is_learned(message: Message) -> bool:
    """OpenAI's files give weight 0 to answers that only stand there for what follows."""
    return bool(message["role"] == "assistant" and message.get("weight", 1) != 0)


def is_empty(message: Message) -> bool:
    """Some templates write calls and reasoning, which stand beside the content."""
    beside = message.keys() - {"role", "content", "name", "weight"}
    return not (message["content"].strip() or any(map(message.get, beside)))


def read_tools(row: Row) -> Any:
    """What may be called in a chat; None if nothing may."""
    tools = as_list(row.columns.get("tools"))
    return ([parsed(one) for one in tools] if isinstance(tools, list) else tools) or None


def _without_none(value: Mapping[str, Any]) -> Message:
    """Without keys of nothing. What is below them is data: arguments and tools may have null."""
    return {key: one for key, one in value.items() if one is not None}


def as_list(value: Any) -> Any:
    """What may be told as JSON, or as an object of lists of equal length, as older versions of `datasets` write it."""
    value = parsed(value)
    if not isinstance(value, Mapping) or not value or not all(isinstance(one, list) for one in value.values()):
        return value
    if len({len(one) for one in value.values()}) > 1:
        return value
    return [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]


def parsed(value: Any) -> Any:
    """Lists may be told as JSON, in tables of text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def call_with(call: Mapping[str, Any], **changes: Any) -> Message:
    """A call whose function has these changes."""
    return {**call, "function": {**call["function"], **changes}}
