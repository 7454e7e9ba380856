"""Chats: what the assistant says is learned, with the token that ends its turn.

Where a turn stands is found by writing the chat once more with marks in place of what the turn says: what stands before
the first mark and behind the last one stands there in the true text, too, and this is checked. So it does not matter if
a template writes the beginning of a chat differently than the whole (Qwen3 leaves out the reasoning of earlier turns,
Mistral writes the system's message only before a question that nobody has answered), and what a template leaves out is
seen. If the template itself tells what the assistant says (`{% generation %}`), only that is learned, and always the
end.

What a template puts before an answer when it asks for one (`<|im_start|>assistant`) is not learned, even if it says so.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seedflood.errors import ModelError
from seedflood.training.chat_template import AnswerEnd, ChatTemplate, ChatText, alike, one_of, with_fixed_date
from seedflood.training.encoding import Encoder, check_places
from seedflood.training.formats import ChatFormat
from seedflood.training.hub import first_line
from seedflood.training.leaves import FOUND, LeafKind, StandIn, with_marks
from seedflood.training.messages import Message, is_learned, read_messages, read_tools, unread_keys
from seedflood.training.objectives.example import Rendered, Span
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.rows import Row, as_text

QUOTES_MAX = 64
"""Characters that a template may put around one argument of a call and not around another, as its quotes."""

REASONING_LEFT_OUT = "reasoning of {} rows is left out by the template"
SYSTEM_LEFT_OUT = "the system's message of {} rows is left out by the template"
SYSTEM_BESIDE = "the system column of {} rows is left out, as these chats have a system message of their own"
TOOLS_LEFT_OUT = "the tools of {} rows are left out by the template"
ANOTHER_OPENING = (
    "in {} rows an answer stands behind another beginning than the template gives when it asks for one, so the model "
    "is not trained to answer as it will be asked"
)
NO_END = "in {} rows an answer does not end with the token that ends one"
"""Remarks on a row, of which a task says how many rows they are true of."""


def ask(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The text of a chat up to where the assistant speaks next, with the date that chats are learned with. Raises what
    the template raises."""
    template = with_fixed_date(tokenizer.get_chat_template())
    return str(
        tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    )


def end_tokens(tokenizer: Any) -> list[int]:
    """The tokens with which its template ends an answer; none if that cannot be told."""
    try:
        return sorted(map(tokenizer.convert_tokens_to_ids, ChatTemplate(tokenizer).stops))
    except ModelError:
        return []


@dataclass(frozen=True, slots=True)
class _Chat:
    """A row as messages, and as its template writes it."""

    row: Row
    messages: list[Message]
    tools: Any
    text: str
    marks: list[Span] | None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a message says something. first: of its first leaf. last: behind its last one. in_written: the same in the
    text `written`, which has marks in place of the leaves. missing: the kinds of leaves that are not written.
    ends_with: the kind of the last one that is."""

    first: int
    last: int
    in_written: Span
    written: ChatText
    missing: list[LeafKind]
    ends_with: LeafKind


@dataclass(frozen=True, slots=True)
class _Turn:
    """What is learned of a turn of the assistant, in the text of the chat."""

    start: int
    end: int
    is_asked: bool
    has_end: bool


class ChatEncoder(Encoder):
    """Chats by the template of the model's tokenizer. Raises ModelError if it has none."""

    form: ChatFormat
    objective = LanguageModelling()

    def __init__(self, tokenizer: Any, form: ChatFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        check_places(tokenizer)
        self.template = ChatTemplate(tokenizer)
        self.besides = ("system", "tools") if self.template.reads_tools else ("system",)
        self.is_endless = not self.template.stops
        self.endless_remark = (
            "the model will not learn to end an answer: its chat template ends none with a token of its tokenizer "
            f"({self.template.written_end}); take a template that writes the eos_token behind answers"
        )
        self._stop = one_of(self.template.stops)
        closings = self.template.content.closings | self.template.call.stops
        self._closing = re.compile(rf"\s*(?:{one_of(one.strip() for one in closings).pattern})")

    def render(self, row: Row) -> Rendered:
        chat = self._chat(row)
        spans: list[Span] = []
        remarks = set()
        text = chat.text
        for index, message in enumerate(chat.messages):
            if not is_learned(message):
                remarks |= self._check_written(chat, index)
                continue
            place = self._place(chat, index)
            remarks |= self._check_missing(chat, index, place.missing)
            turn = self._find(chat, index, place, spans[-1][1] if spans else 0)
            text, turn = self._ended(chat, index, turn)
            spans += self._spans(chat, index, place, turn)
            remarks |= set() if turn.is_asked else {ANOTHER_OPENING}
            remarks |= set() if turn.has_end or self.is_endless else {NO_END}
        if chat.tools and not all(name in text for name in _names(chat.tools)):
            remarks.add(TOOLS_LEFT_OUT)
        if (system := _system_of(chat.row)) and system.strip() != chat.messages[0]["content"].strip():
            remarks.add(SYSTEM_BESIDE)
        return Rendered(text, tuple(spans), remarks=tuple(sorted(remarks)), has_own_beginning=True)

    def remarks(self, rows: Sequence[Row]) -> list[str]:
        template = self.tokenizer.get_chat_template(tools=[{}])
        keys = sorted({key for row in rows for key in unread_keys(row, self.form.label_column, template)})
        return [f"keys of messages that are not read: {', '.join(keys)}"] if keys else []

    def check(self, row: Row) -> None:
        self._chat(row)

    def asked(self, row: Row) -> str:
        """What the model is asked with for the first answer that is learned. Raises what the template raises."""
        messages = self._messages(row)
        first = next(index for index, message in enumerate(messages) if is_learned(message))
        return self.template.write(messages[:first], read_tools(row), is_asking=True).text

    def _chat(self, row: Row) -> _Chat:
        messages, tools = self._messages(row), read_tools(row)
        return _Chat(row, messages, tools, *self._write(row, messages, tools))

    def _messages(self, row: Row) -> list[Message]:
        """The messages of a row, with text as their content. Raises DataError."""
        messages = read_messages(row, self.form.label_column)
        system = _system_of(row)
        if system and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system})
        return messages

    def _write(self, row: Row, messages: list[Message], tools: Any) -> ChatText:
        """A chat as text. Raises DataError."""
        try:
            return self.template.write(messages, tools)
        except Exception as error:  # Templates raise what they like.
            raise row.error(
                f"the chat template of this model refuses the chat ({first_line(error)}): correct or remove the row."
            ) from error

    def _check_written(self, chat: _Chat, index: int) -> set[str]:
        """Remarks on a message that is not learned. Raises DataError if the template leaves it out."""
        message = chat.messages[index]
        content = message["content"].strip()
        if content and content in chat.text and not message.get("tool_calls"):
            return set()
        if message["role"] == "system":
            written = self._with_marks(chat, index)[1]
            return set() if FOUND.search(written.text) else {SYSTEM_LEFT_OUT}
        missing = self._place(chat, index).missing
        return self._check_missing(chat, index, missing)

    def _check_missing(self, chat: _Chat, index: int, missing: list[LeafKind]) -> set[str]:
        """Remarks on what the template leaves out of a message. Raises DataError for what it should write.

        Templates leave out the reasoning of earlier turns because models are asked without it.
        """
        is_last = all(message["role"] != "assistant" for message in chat.messages[index + 1 :])
        must_have = [kind for kind in missing if kind is not LeafKind.REASONING or is_last]
        if must_have:
            raise chat.row.error(
                f"the chat template of this model leaves out a part of message {index + 1} "
                f"({chat.messages[index]['role']}): its {must_have[0].value}; correct or remove the row."
            )
        return {REASONING_LEFT_OUT} if missing else set()

    def _with_marks(self, chat: _Chat, index: int) -> tuple[StandIn, ChatText]:
        """The chat with marks in place of what one of its messages says. Raises DataError."""
        stand_in = with_marks(chat.messages[index])
        messages = [*chat.messages[:index], stand_in.message, *chat.messages[index + 1 :]]
        return stand_in, self._write(chat.row, messages, chat.tools)

    def _place(self, chat: _Chat, index: int) -> _Place:
        """Raises DataError if the template does not write the message."""
        stand_in, written = self._with_marks(chat, index)
        places: dict[int, Span] = {}
        for found in FOUND.finditer(written.text):
            places.setdefault(int(found[1]), found.span())
        if not places:
            role = chat.messages[index]["role"]
            raise chat.row.error(
                f"the chat template of this model does not write message {index + 1} ({role}): correct or remove the "
                "row."
            )
        leaves = stand_in.leaves
        missing = [
            leaf.kind
            for number, leaf in enumerate(leaves)
            if number not in places or not _is_written(leaf.text, chat.text)
        ]
        first = min(start for start, _ in places.values())
        last, last_number = max((end, number) for number, (_, end) in places.items())
        before, behind = written.text[:first], written.text[last:]
        start = alike(chat.text, before)
        end = len(chat.text) - alike(chat.text[::-1], behind[::-1])
        # Only around arguments of calls may a mark have other quotes than what it stands for.
        quotes = QUOTES_MAX if any(leaf.kind is LeafKind.CALL for leaf in leaves) else 0
        end = max(start, end) if quotes else end  # a call without arguments has nothing between them
        if not (len(before) - start <= quotes and end - (len(chat.text) - len(behind)) <= quotes and start <= end):
            raise self._unknown_place(chat, index)
        return _Place(start, end, (first, last), written, missing, leaves[last_number].kind)

    def _find(self, chat: _Chat, index: int, place: _Place, begin: int) -> _Turn:
        """What is learned of a turn of the assistant. begin: where what is learned before it ends. Raises DataError."""
        start, is_asked = self._start(chat, index, place, begin)
        limit = self._limit(chat, index, place)
        if place.ends_with is LeafKind.CONTENT:
            closing = self._closing.match(chat.text, place.last)
            end = place.last if closing is None else closing.end()
        else:  # the template writes something between what is said and the end
            closing = self._stop.search(chat.text, place.last, limit)
            if closing is None and limit < len(chat.text):
                raise self._unknown_place(chat, index)
            end = len(chat.text.rstrip()) if closing is None else closing.end()
        if not begin <= start < end:
            raise self._unknown_place(chat, index)
        has_end = any(chat.text.endswith(stop, start, end) for stop in self.template.stops)
        return _Turn(start, end, is_asked, has_end)

    def _limit(self, chat: _Chat, index: int, place: _Place) -> int:
        """Up to where a turn may reach, if it does not end with its content. Raises DataError for a template that
        writes what a call gave within the turn that called, and goes on with the content of that turn."""
        is_last = index + 1 == len(chat.messages)
        if is_last or (place.ends_with is LeafKind.CONTENT and not chat.messages[index].get("tool_calls")):
            return len(chat.text)
        limit = self._place(chat, index + 1).first
        if limit < place.last:
            raise chat.row.error(
                f"the chat template of this model writes the content of message {index + 1} behind the result of its "
                "call, where the assistant did not say it: remove the content, or the row."
            )
        return limit

    def _start(self, chat: _Chat, index: int, place: _Place, begin: int) -> tuple[int, bool]:
        """Where an answer begins, and whether the template asks for one so."""
        is_behind_tool = index > 0 and chat.messages[index - 1]["role"] == "tool"
        opening = self.template.opening_behind_tool if is_behind_tool else self.template.opening
        at = chat.text.rfind(opening.header, begin, place.first) if opening.header else -1
        if at >= 0:
            length = opening.length(chat.text[at:])
            return at + length, length == len(opening.prompt)
        message = chat.messages[index]
        if message.keys() <= {"role", "content", "weight", "name"}:
            return place.first, not opening.prompt
        # Calls and reasoning begin where a plain answer would.
        plain = {"role": "assistant", "content": with_marks({"role": "", "content": "x"}).message["content"]}
        messages = [*chat.messages[:index], plain, *chat.messages[index + 1 :]]
        written = self._write(chat.row, messages, chat.tools).text
        found = FOUND.search(written)
        start = place.first if found is None else alike(chat.text[: place.first], written[: found.start()])
        return start, not opening.prompt

    def _ended(self, chat: _Chat, index: int, turn: _Turn) -> tuple[str, _Turn]:
        """The text of the chat, and the turn with its end, if the template leaves that to a next turn."""
        has_calls = bool(chat.messages[index].get("tool_calls"))
        ending: AnswerEnd = self.template.call if has_calls else self.template.content
        is_last = index + 1 == len(chat.messages)
        if turn.has_end or not is_last or not ending.missing:
            return chat.text, turn
        text = chat.text.removesuffix(ending.left) + ending.missing
        return text, _Turn(turn.start, len(text), turn.is_asked, has_end=True)

    def _spans(self, chat: _Chat, index: int, place: _Place, turn: _Turn) -> list[Span]:
        """What is learned of a turn: all of it, or what the template tells. Raises DataError if it tells too little."""
        if chat.marks is None or place.written.marks is None:
            return [(turn.start, turn.end)]
        found = [one.span() for one in FOUND.finditer(place.written.text, *place.in_written)]
        if not all(any(start <= at and to <= end for start, end in place.written.marks) for at, to in found):
            raise chat.row.error(
                f"the {{% generation %}} marks of the chat template leave out a part of the assistant's turn (message "
                f"{index + 1}): correct the template, or remove the row."
            )
        spans: list[Span] = []
        for start, end in chat.marks:
            start, end = max(start, turn.start), min(end, turn.end)
            if spans and start == spans[-1][1]:
                spans[-1] = spans[-1][0], end
            elif start < end:
                spans.append((start, end))
        if turn.has_end:  # marks may stand around the content alone
            spans[-1] = spans[-1][0], turn.end
        return spans

    def _unknown_place(self, chat: _Chat, index: int) -> Exception:
        return chat.row.error(
            f"where the assistant's turn (message {index + 1}) stands in the text that the chat template of this "
            "model writes cannot be told: remove the row, or use a template with {% generation %} marks."
        )


def _system_of(row: Row) -> str:
    """The system's message, if it is a column of its own."""
    system = as_text(row.columns.get("system")) or ""
    return system if system.strip() else ""


def _is_written(text: str, whole: str) -> bool:
    """Does a text stand in another, perhaps spelled as JSON?"""
    return text in whole or json.dumps(text, ensure_ascii=False)[1:-1] in whole or json.dumps(text)[1:-1] in whole


def _names(tools: Any) -> list[str]:
    """Of functions that may be called."""
    functions = [tool.get("function", tool) for tool in tools if isinstance(tool, Mapping)]
    return [str(one["name"]) for one in functions if isinstance(one, Mapping) and "name" in one]
