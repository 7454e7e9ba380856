"""Messages in which every *leaf* (a piece of text that a row says) is a mark, to see where a template writes it.

A template writes the message with marks in its place. So each leaf that it writes is found by certainty and not by its
text, which may come again elsewhere, and a mark that does not come is a leaf that the template leaves out. Names of
functions and arguments stay: some templates write them once more beside the result of a call, or sort by them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from seedflood.training.messages import Message, call_with

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""How rows call what the assistant thinks before it speaks; transformers gives a template all of these names."""

FOUND = re.compile(r"xqz(\d+)SENTINELzqx")

_WORDS = "(?:think|thinking|thought|thoughts|reason|reasoning|analysis)"
_OPENS = rf"<[|｜]?(?:start_)?{_WORDS}[|｜]?>|\[{_WORDS}\]|<\|channel>"
_CLOSES = rf"</[|｜]?{_WORDS}[|｜]?>|<\|end_{_WORDS}\|>|\[/{_WORDS}\]|<channel\|>"
_TAG = re.compile(rf"({_OPENS})|({_CLOSES})", re.IGNORECASE)
"""Around reasoning within a content; templates look for these. Some rows have only the closing one, because the prompt
opens it."""


class LeafKind(Enum):
    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call of a tool"


class Leaf(NamedTuple):
    """text: as it must stand there; empty if a template may spell it otherwise."""

    kind: LeafKind
    text: str


@dataclass(slots=True)
class StandIn:
    """A message with marks. leaves: of each mark, what it stands for."""

    message: Message
    leaves: list[Leaf] = field(default_factory=list)

    def mark(self, kind: LeafKind, text: str = "") -> str:
        """A new mark."""
        self.leaves.append(Leaf(kind, text))
        return mark(len(self.leaves) - 1)


def mark(number: int) -> str:
    """What no chat contains, and no template changes."""
    return f"xqz{number}SENTINELzqx"


def with_marks(message: Message) -> StandIn:
    """The message with a mark for each of its leaves; of a message without any, for its content."""
    stand_in = StandIn({**message})
    marked = stand_in.message
    marks: dict[str, str] = {}
    for key in REASONING_KEYS:
        if isinstance(message.get(key), str) and (text := message[key].strip()):
            if text not in marks:
                marks[text] = stand_in.mark(LeafKind.REASONING, text)
            marked[key] = marks[text]
    marked["content"] = _content_with_marks(message["content"], stand_in)
    if message.get("tool_calls"):
        marked["tool_calls"] = [_call_with_marks(call, stand_in) for call in message["tool_calls"]]
    if not stand_in.leaves:
        marked["content"] = stand_in.mark(LeafKind.CONTENT)
    return stand_in


def _content_with_marks(content: str, stand_in: StandIn) -> str:
    """Each piece between tags of reasoning becomes a mark; the space around it stays."""
    first = _TAG.search(content)
    kind = LeafKind.REASONING if first is not None and first[2] else LeafKind.CONTENT
    marked = ""
    place = 0
    for tag in _TAG.finditer(content):
        marked += _text_with_mark(content[place : tag.start()], kind, stand_in) + tag[0]
        kind = LeafKind.REASONING if tag[1] else LeafKind.CONTENT
        place = tag.end()
    return marked + _text_with_mark(content[place:], kind, stand_in)


def _text_with_mark(text: str, kind: LeafKind, stand_in: StandIn) -> str:
    core = text.strip()
    return text.replace(core, stand_in.mark(kind, core), 1) if core else text


def _call_with_marks(call: Mapping[str, Any], stand_in: StandIn) -> Message:
    arguments = call["function"]["arguments"]
    before = len(stand_in.leaves)
    marked = _value_with_marks(arguments, stand_in)
    if len(stand_in.leaves) == before:  # no argument has a value, so the call itself would not be seen
        marked = {**(marked if isinstance(marked, Mapping) else {}), "xqz": stand_in.mark(LeafKind.CALL)}
    return call_with(call, arguments=marked)


def _value_with_marks(value: Any, stand_in: StandIn) -> Any:
    if isinstance(value, Mapping):
        return {key: _value_with_marks(one, stand_in) for key, one in value.items()}
    if isinstance(value, list):
        return [_value_with_marks(one, stand_in) for one in value]
    return value if value == "" else stand_in.mark(LeafKind.CALL)
