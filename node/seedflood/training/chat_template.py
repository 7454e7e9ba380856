"""The chat template of a tokenizer: what it writes, what it puts before an answer, and with which token one ends.

None of this is said anywhere, so a few small chats tell it, with marks in place of what people say:

- **Before an answer** stands what is added when the assistant is asked to speak (`<|im_start|>assistant`), which may be
  another text behind the result of a tool.
- **Behind an answer** stands a token that both an answer in the middle and one at the end have, or one that only the
  answer at the end has, or (GLM) the token that opens the next turn.
- A token that also comes *within* an answer, as `<|end|>` behind the reasoning of gpt-oss, ends none.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from transformers.utils.chat_template_utils import render_jinja_template

from seedflood.errors import ModelError
from seedflood.training.hub import first_line
from seedflood.training.leaves import FOUND, mark
from seedflood.training.messages import Message, call_with
from seedflood.training.objectives.example import Span

_DATE = re.compile(r"strftime_now\(([^()]*)\)")
_FIXED_DATE = (
    r'(\1 | replace("%Y", "2026") | replace("%m", "01") | replace("%d", "01") | replace("%B", "January") | '
    r'replace("%b", "Jan"))'
)
"""In place of today's date, which a template would write: the tokens of a row must be the same on every day."""

_GENERATION = re.compile(r"{%[-+]?\s*generation\s*[-+]?%}")

_BRACKETED = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
"""What a token that is no part of a text looks like; one in a vocabulary need not be marked as special."""


class ChatText(NamedTuple):
    """A chat as text. marks: what the template says is the assistant's; None if it says nothing."""

    text: str
    marks: list[Span] | None


class Opening(NamedTuple):
    """What stands before an answer. prompt: what the template adds when it asks for one. header: the part of it that
    also stands before answers that are there."""

    prompt: str
    header: str

    def length(self, text: str) -> int:
        """How many characters of the prompt a text begins with; a token counts if it is there as a whole."""
        count = alike(text, self.prompt)
        parted = (one.start() for one in _BRACKETED.finditer(self.prompt) if one.start() < count < one.end())
        return next(parted, count)


class AnswerEnd(NamedTuple):
    """What stands behind an answer. stops: the tokens at which generation stops. closings: text from the answer to the
    token that ends it. missing: what a template that opens the next turn with that token leaves out behind the last
    answer; left: what it writes there instead."""

    stops: frozenset[str] = frozenset()
    closings: frozenset[str] = frozenset()
    missing: str = ""
    left: str = ""


class ChatTemplate:
    """Raises ModelError if the tokenizer has no template, or one that cannot write a plain chat.

    openings: by the role before the answer, "tool" or another. content, call: what ends an answer, and a call.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            raise ModelError(
                'The tokenizer of this model has no chat template, which task "chat" needs: choose a model that was '
                "made for chats, or put a chat_template.jinja into the model's folder."
            )
        self._tokenizer = tokenizer
        try:
            self.reads_tools = "tools" in tokenizer.get_chat_template(tools=[{}])
            samples = _Samples(self.write)
        except Exception as error:  # Templates raise what they like.
            raise ModelError(
                f"The chat template of this model cannot write a plain chat ({first_line(error)})."
            ) from error
        self._control = self._find_control_tokens(samples.texts)
        inner = {found for text in samples.within for found in self._control.findall(text)}
        inner -= {tokenizer.eos_token}
        self.content = self._ending(samples.behind_content, inner)
        self.call = self._ending(samples.behind_call, inner)
        self.opening, self.opening_behind_tool = samples.opening, samples.opening_behind_tool
        self.stops = self.content.stops | self.call.stops
        """The tokens at which generation stops."""
        middle, _ = samples.behind_content
        self.written_end = repr(middle.partition("x")[0]) if middle else "nothing"
        """What stands behind an answer, up to what is said next; for people."""

    def write(self, messages: Sequence[Message], tools: Any = None, *, is_asking: bool = False) -> ChatText:
        """is_asking: with what stands before an answer that is to be written. Raises what the template raises."""
        with suppress(Exception):
            return self._render(messages, tools, is_asking)
        # Some templates put arguments into text as they are.
        return self._render([_spelled(message) for message in messages], tools, is_asking)

    def _render(self, messages: Sequence[Message], tools: Any, is_asking: bool) -> ChatText:
        template, has_marks = _prepared(self._tokenizer.get_chat_template(tools=tools))
        written: Any = render_jinja_template(
            [list(messages)],
            tools=tools,
            chat_template=template,
            return_assistant_tokens_mask=has_marks,
            add_generation_prompt=is_asking,
            **self._tokenizer.special_tokens_map,
        )
        (text,), marks = written
        return ChatText(text, marks[0] if has_marks else None)

    def _find_control_tokens(self, texts: Iterable[str]) -> re.Pattern[str]:
        """A pattern of the tokens that structure a text: those that were added to the vocabulary, and those that are
        in it and look like one."""
        tokenizer = self._tokenizer
        words = {token.content for token in tokenizer.added_tokens_decoder.values()}
        for text in texts:
            for word in set(_BRACKETED.findall(text)) - words:
                tokens = tokenizer(word, add_special_tokens=False, verbose=False)["input_ids"]
                if len(tokens) == 1 and tokens != [tokenizer.unk_token_id]:
                    words.add(word)
        return one_of(word for word in words if word.strip())

    def _ending(self, behind: tuple[str, str] | None, inner: set[str]) -> AnswerEnd:
        """behind: what stands behind an answer in the middle, and at the end."""
        if behind is None:
            return AnswerEnd()
        middle, last = behind
        shared = middle[: alike(middle, last)]
        both = [one for one in self._control.finditer(middle) if one.end() <= len(shared) and one[0] not in inner]
        if both:
            return AnswerEnd(frozenset({both[-1][0]}), frozenset({middle[: both[-1].end()]}))
        stops, closings = set(), set()
        missing = left = ""
        at_end = [one for one in self._control.finditer(last) if one[0] not in inner]
        if at_end:
            stops.add(at_end[-1][0])
            closings.add(last[: at_end[-1].end()])
        found = [one for one in self._control.finditer(middle) if one.end() > len(shared)]
        between = [one for one in found if one[0] not in inner or at_end]
        if between:
            first = between[0]
            closings.add(middle[: first.end()])
            if first[0] not in inner:
                stops.add(first[0])
                if not at_end:
                    missing, left = middle[len(shared) : first.end()], last[len(shared) :]
        return AnswerEnd(frozenset(stops), frozenset(closings), missing, left)


class _Samples:
    """Small chats as a template writes them. Raises what the template raises for a plain one."""

    def __init__(self, write: Callable[..., ChatText]) -> None:
        self._write = write
        self.texts: list[str] = []
        question: Message = {"role": "user", "content": "x"}
        answer: Message = {"role": "assistant", "content": mark(0)}
        first, middle, last = self._split([question, answer, question, answer], 3)
        self.behind_content = middle, last
        self.within = [*self._within({"content": mark(0), "reasoning_content": mark(1)})]
        self.within += self._within({"content": f"<think>\n{mark(1)}\n</think>\n\n{mark(0)}"})
        self.within += self._within({"content": mark(0), "tool_calls": [_call(1)]})
        self.within += self._within({"content": "", "tool_calls": [_call(0), _call(1)]})
        self.behind_call: tuple[str, str] | None = None
        self.opening = self.opening_behind_tool = self._opening([question], first)
        with suppress(Exception):  # Many templates write no calls.
            self._learn_calls(question, answer)

    def _learn_calls(self, question: Message, answer: Message) -> None:
        call: Message = {"role": "assistant", "content": "", "tool_calls": [_call(1)]}
        result: Message = {"role": "tool", "content": mark(2), "tool_call_id": "123456789", "name": "add"}
        _, last = self._split([question, call], 2)
        _, between, _, _ = self._split([question, call, result, answer], 4)
        self.behind_call = between, last
        written = self._write([question, call, result, answer]).text
        prompt, header = self._opening([question, call, result], written[: written.index(mark(0))])
        # An earlier answer may have less before it, as without the tags of its reasoning.
        self.opening_behind_tool = Opening(prompt, header[: alike(header, self.opening.header)])

    def _split(self, messages: list[Message], count: int) -> list[str]:
        text = self._write(messages).text
        self.texts.append(text)
        pieces = re.split(FOUND.pattern.replace("(", "(?:"), text)
        if len(pieces) != count:
            raise ValueError("it does not write all messages once")
        return pieces

    def _within(self, message: Message) -> Iterable[str]:
        """What a template puts between two parts of one answer."""
        with suppress(Exception):
            text = self._write([{"role": "user", "content": "x"}, {"role": "assistant", **message}]).text
            self.texts.append(text)
            places = [one.span() for one in FOUND.finditer(text)]
            yield text[places[0][1] : places[-1][0]]

    def _opening(self, messages: list[Message], before: str) -> Opening:
        """before: what stands before an answer to these messages."""
        plain = self._write(messages).text
        asking = self._write(messages, is_asking=True).text
        start = Opening(asking, "").length(plain)
        prompt = asking[start:]
        length = Opening(prompt, "").length(before[start:])
        return Opening(prompt, prompt[:length])


def _call(number: int) -> Message:
    return {"id": "123456789", "type": "function", "function": {"name": "add", "arguments": {"a": mark(number)}}}


def _spelled(message: Message) -> Message:
    """The message with the arguments of its calls as JSON."""
    calls = []
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        calls.append(
            call_with(
                call, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            )
        )
    return {**message, "tool_calls": calls} if calls else message


@lru_cache
def _prepared(template: str) -> tuple[str, bool]:
    """The template with a fixed date, and whether it has marks."""
    return _DATE.sub(_FIXED_DATE, template), _GENERATION.search(template) is not None


def with_fixed_date(template: str) -> str:
    return _prepared(template)[0]


def one_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern of these words; of none it matches nothing."""
    ordered = sorted(set(words), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered)) if ordered else "(?!)")


def alike(one: str, other: str) -> int:
    """How many characters both begin with. Texts are long, so a slice is compared at a time."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
