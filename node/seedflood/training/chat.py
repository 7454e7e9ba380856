"""Chats: what the assistant says is learned, with the token that ends its turn.

The tokenizer's template writes a chat. Where it has marks (`{% generation %}`), these tell what the assistant says.
Else each turn of the assistant is found by writing the chat once more with a sentinel in its place: what stands before
the sentinel and behind it stands there in the true text, too, and this is checked. So it does not matter if a template
writes the beginning of a chat differently than the whole (Qwen3 leaves out the reasoning of earlier turns, Mistral
writes the system's message only before a question that nobody has answered).

What a template puts before an answer when it asks for one (`<|im_start|>assistant`) is not learned, even within marks.
What it writes behind that is: also the reasoning, as far as the template writes it.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import compress, takewhile
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from seedflood.errors import ModelError
from seedflood.training.formats import ChatFormat
from seedflood.training.hub import first_line
from seedflood.training.marking import Marked, MarkedEncoder, Span
from seedflood.training.messages import Message, call_with, is_learned, read_messages, read_tools
from seedflood.training.rows import Row

SENTINEL = "xqzSENTINELzqx"
"""What no chat contains, and no template changes."""

ALWAYS_WRITTEN = ("system", "user", "assistant")
"""What has another role, some templates leave out in silence; and calls of tools."""

_DATE = re.compile(r"strftime_now\(([^()]*)\)")
_FIXED_DATE = (
    r'(\1 | replace("%Y", "2026") | replace("%m", "01") | replace("%d", "01") | replace("%B", "January") | '
    r'replace("%b", "Jan"))'
)
"""In place of today's date, which a template would write: the tokens of a row must be the same on every day."""

MARKED_TEMPLATE = re.compile(r"{%[-+]?\s*generation\s*[-+]?%}")


def ask(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The text of a chat up to where the assistant speaks next, with the date that chats are learned with. Raises what
    the template raises."""
    template = _DATE.sub(_FIXED_DATE, tokenizer.get_chat_template())
    return str(
        tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    )


def end_tokens(tokenizer: Any) -> list[int]:
    """The tokens with which its template ends an answer; none if that cannot be told."""
    try:
        return sorted(map(tokenizer.convert_tokens_to_ids, ChatEncoder(tokenizer, ChatFormat(), 1).ends))
    except ModelError:
        return []


class ChatEncoder(MarkedEncoder):
    """Chats by the template of the model's tokenizer. Raises ModelError if it has none.

    ends: the tokens with which it ends an answer, in the middle or at the end of a chat.
    """

    form: ChatFormat
    has_own_beginning = True

    def __init__(self, tokenizer: Any, form: ChatFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        if not tokenizer.chat_template:
            raise ModelError(
                'The tokenizer of this model has no chat template, which task "chat" needs: choose a model that was '
                "made for chats, or put a chat_template.jinja into the model's folder."
            )
        self.besides = ("tools",) if "tools" in tokenizer.get_chat_template(tools=[{}]) else ()
        self._prompt, self.ends = self._learn_template()
        self._ends = re.compile(r"\s*" + _one_of(self.ends))

    def mark(self, row: Row) -> Marked:
        messages, tools = read_messages(row, self.form.label_column), read_tools(row)
        text, marks = self._write(row, messages, tools)
        spans: list[Span] = []
        for index, message in enumerate(messages):
            if marks is None and is_learned(message):
                spans.append(self._find(row, messages, tools, index, text, spans[-1][1] if spans else 0))
            elif message["role"] not in ALWAYS_WRITTEN or message.get("tool_calls"):
                self._around(row, messages, tools, index)  # which refuses what is left out
        if marks is not None:
            learned = [is_learned(one) for one in messages if one["role"] == "assistant"]
            if not all(learned):
                if len(marks) != len(learned):
                    raise row.error("which of the marked turns has weight 0 cannot be told: remove the row.")
                marks = list(compress(marks, learned))
            return Marked(text, tuple(self._trimmed(text, span) for span in marks))
        return Marked(text, tuple(spans))

    def check(self, row: Row) -> None:
        self._write(row, read_messages(row, self.form.label_column), read_tools(row))

    def _write(self, row: Row, messages: list[Message], tools: Any) -> tuple[str, list[Span] | None]:
        """A chat as text, and the spans that the template marks; None if it knows no marks. Raises DataError."""
        try:
            with suppress(Exception):
                return self._render(messages, tools)
            return self._render(list(map(_spelled, messages)), tools)  # some put arguments into text as they are
        except Exception as error:  # Templates raise what they like.
            raise row.error(
                f"the chat template of this model refuses the chat ({first_line(error)}): correct or remove the row."
            ) from error

    def _render(
        self, messages: Sequence[Message], tools: Any = None, *, is_asking: bool = False
    ) -> tuple[str, list[Span] | None]:
        """is_asking: with what stands before an answer that is to be written."""
        template, has_marks = _prepared(self.tokenizer.get_chat_template(tools=tools))
        written: Any = render_jinja_template(
            [list(messages)],
            tools=tools,
            chat_template=template,
            return_assistant_tokens_mask=has_marks,
            add_generation_prompt=is_asking,
            **self.tokenizer.special_tokens_map,
        )
        (text,), marks = written
        return text, marks[0] if has_marks else None

    def _learn_template(self) -> tuple[str, set[str]]:
        """What the template puts before an answer, and `ends`. Raises ModelError."""
        question, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": SENTINEL}
        try:
            asked, asking = (self._render([question], is_asking=one)[0] for one in (False, True))
            _, middle, end = self._render([question, answer, question, answer])[0].split(SENTINEL)
        except Exception as error:
            raise ModelError(
                f"The chat template of this model cannot write a plain chat ({first_line(error)})."
            ) from error
        tokens = {token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        special = re.compile(r"\s*" + _one_of(tokens))
        ends = {found[1] for text in (middle, end) if (found := special.match(text)) is not None}
        return asking[_alike(asked, asking) :], ends

    def _find(self, row: Row, messages: list[Message], tools: Any, index: int, text: str, begin: int) -> Span:
        """Where a turn of the assistant stands in the text of a chat. begin: where the one before it ends. Raises
        DataError."""
        before, behind = self._around(row, messages, tools, index)
        has_calls = bool(messages[index].get("tool_calls"))
        asked = before.rfind(self._prompt, begin) if self._prompt else -1
        start = len(before) if asked < 0 else asked + len(self._prompt)
        if asked < 0 and has_calls:  # a call begins where a plain answer would
            plain = [*messages[:index], {"role": "assistant", "content": SENTINEL}, *messages[index + 1 :]]
            start = _alike(before, self._write(row, plain, tools)[0].partition(SENTINEL)[0])
        end = len(text) - len(behind)
        closing = self._ends.search(behind) if has_calls else self._ends.match(behind)
        end += 0 if closing is None else closing.end()
        limit = len(text)
        if has_calls and index + 1 < len(messages):
            limit = len(self._around(row, messages, tools, index + 1)[0])
        is_there = text.startswith(before[:start]) and text.endswith(behind) and begin <= start < end <= limit
        if not is_there or (has_calls and closing is None):
            raise row.error(
                f"where the assistant's turn (message {index + 1}) stands in the text that the chat template of this "
                "model writes cannot be told: remove the row, or use a template with {% generation %} marks."
            )
        return start, end

    def _around(self, row: Row, messages: list[Message], tools: Any, index: int) -> tuple[str, str]:
        """The text of a chat before and behind a message. Raises DataError if the message does not come once."""
        for stand_in in _stand_ins(messages[index]):
            text, _ = self._write(row, [*messages[:index], stand_in, *messages[index + 1 :]], tools)
            before, _, behind = text.partition(SENTINEL)
            if (count := text.count(SENTINEL)) == 1:
                return before, behind
            if count == 0:
                break
        role = messages[index]["role"]
        raise row.error(
            f"the chat template of this model does not write message {index + 1} ({role}): correct or remove the row."
        )

    def _trimmed(self, text: str, span: Span) -> Span:
        """What a template marks, without what stands before an answer and the space behind the token at its end."""
        start, end = span
        if text.startswith(self._prompt, start, end):
            start += len(self._prompt)
        closing = list(self._ends.finditer(text, start, end))
        is_last = bool(closing) and not text[closing[-1].end() : end].strip()
        return start, closing[-1].end() if is_last else end


@lru_cache
def _prepared(template: str) -> tuple[str, bool]:
    """The template with a fixed date, and whether it has marks."""
    return _DATE.sub(_FIXED_DATE, template), MARKED_TEMPLATE.search(template) is not None


def _one_of(words: set[str]) -> str:
    """A pattern of these words; of none it matches nothing."""
    return "(" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + ")" if words else "(?!)()"


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _stand_ins(message: Message) -> list[Message]:
    """The message with a sentinel in it, where templates write what is there: what it calls, or its content."""
    by_content = {**message, "content": SENTINEL}
    if not (calls := message.get("tool_calls")):
        return [by_content]
    return [{**message, "tool_calls": [call_with(calls[0], name=SENTINEL), *calls[1:]]}, by_content]


def _spelled(message: Message) -> Message:
    """The message with the arguments of its calls as JSON."""
    calls = []
    for call in message.get("tool_calls", ()):
        told = call.get("function", call)["arguments"]
        calls.append(call_with(call, arguments=told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)))
    return {**message, "tool_calls": calls} if calls else message
