"""Messages of a chat as rows have them, and in the one form that templates know: role and content, perhaps calls."""

import json
from collections.abc import Mapping
from typing import Any

from seedflood.training.rows import Row

ROLES = {"human": "user", **dict.fromkeys(("gpt", "chatgpt", "bot", "model"), "assistant")}
"""Other names of roles, in data that have `from` and `value` in place of `role` and `content`."""

REASONING_PARTS = ("reasoning", "thinking")
"""Types of parts that are no part of the answer, though they stand in its content."""

Message = dict[str, Any]


def read_messages(row: Row, column: str) -> list[Message]:
    """The messages of a row of which some are learned, with text as their content. Raises DataError."""
    given = parsed(row.columns.get(column))
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        found = ", ".join(sorted(map(str, row.columns)))
        raise row.error(
            f'no list of messages in column "{column}" (columns: {found}): a row looks like {{"{column}": '
            '[{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}.'
        )
    messages = [read_message(row, one) for one in given]
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
    if "role" not in message and "from" in message:
        role = str(message["from"]).lower()
        message |= {"role": ROLES.get(role, role), "content": message.get("value")}
    content = message.get("content")
    if isinstance(content, list):
        message |= _read_parts(content)
        content = message["content"]
    if "function_call" in message:
        raise row.error("a function_call, which templates do not write: tell it in tool_calls, and its result as tool.")
    if calls := parsed(message.get("tool_calls")):
        message |= {"content": content or "", "tool_calls": [_read_call(row, one) for one in calls]}
        content = message["content"]
    if not isinstance(message.get("role"), str) or not isinstance(content, str):
        raise row.error("a message has no role, or no text as its content: correct or remove the row.")
    return message


def _read_parts(parts: list[Any]) -> Message:
    """A content of parts as content, and as reasoning where parts are that. What is no text stays as it is."""
    text = reasoning = ""
    for part in parts:
        kind = part.get("type", "text") if isinstance(part, Mapping) else "unknown"
        said = part.get("text", part.get(kind)) if isinstance(part, Mapping) else None
        if kind in REASONING_PARTS and isinstance(said, list):
            said = _read_parts(said)["content"]
        if not isinstance(said, str):
            return {"content": parts}
        if kind in REASONING_PARTS:
            reasoning += said
        else:
            text += said
    return {"content": text, "reasoning_content": reasoning} if reasoning else {"content": text}


def _read_call(row: Row, given: Any) -> Message:
    """A call of a tool, of which OpenAI's files have the arguments as JSON. Raises DataError."""
    function = given.get("function", given) if isinstance(given, Mapping) else {}
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise row.error("a call of a tool has no name: correct or remove the row.")
    arguments = function.get("arguments") or {}
    told = parsed(arguments)
    return call_with(given, arguments=told if isinstance(told, Mapping) else arguments)


def is_learned(message: Message) -> bool:
    """OpenAI's files give weight 0 to answers that only stand there for what follows."""
    return bool(message["role"] == "assistant" and message.get("weight", 1) != 0)


def is_empty(message: Message) -> bool:
    """Some templates write calls and reasoning, which stand beside the content."""
    beside = message.keys() - {"role", "content", "name", "weight"}
    return not (message["content"].strip() or any(map(message.get, beside)))


def read_tools(row: Row) -> Any:
    """What may be called in a chat; None if nothing may."""
    return _without_none(parsed(row.columns.get("tools"))) or None


def _without_none(value: Any) -> Any:
    """Without the keys that a table of messages gives to all of them, although few have them."""
    if isinstance(value, Mapping):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


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
    function = {**call.get("function", call), **changes}
    return {**call, "function": function} if "function" in call else function
