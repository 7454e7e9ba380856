"""All chat templates that the newest TRL brings, through nine kinds of chats: what is learned of them, against its own
marks.

The wheel is fetched when the test runs; without network that fails, and these tests are skipped.
"""

import re
import subprocess
import sys
import zipfile
from functools import cache

import pytest
from marked_texts import marked_text, tokenizer_of
from tokenizers import AddedToken

from seedflood.errors import DataError, ModelError
from seedflood.training.chat import NO_END, REASONING_LEFT_OUT, ChatEncoder
from seedflood.training.formats import ChatFormat
from seedflood.training.messages import read_tools
from seedflood.training.rows import Row

FETCH_SECONDS = 60.0


def says(role, content, **more):
    return {"role": role, "content": content, **more}


def calls(content, *calls):
    return says("assistant", content, tool_calls=list(calls))


def call(number, name, **arguments):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def gives(number, name, content):
    return says("tool", content, name=name, tool_call_id=f"call{number:05}")


def tools_with(**more):
    properties = {"a": {"type": "integer", "description": "A number.", **more}}
    told = {"parameters": {"type": "object", "properties": properties, "required": ["a"]}}
    functions = [{"name": name, "description": f"Its name is {name}.", **told} for name in ("add", "sub")]
    return [{"type": "function", "function": function} for function in functions]


ASKS, ASKS_AGAIN, ENDS = says("user", "Two and two?"), says("user", "Sure?"), says("assistant", "It is four.")
ADD, SUB = call(1, "add", a=2, b="seven"), call(2, "sub", a=31)
RESULT, OTHER = gives(1, "add", "the first result"), gives(2, "sub", "the other result")
CHATS = {
    "plain": [ASKS, ENDS],
    "system": [says("system", "Be brief."), ASKS, ENDS],
    "several turns": [ASKS, says("assistant", "Four."), ASKS_AGAIN, ENDS],
    "call": [ASKS, calls("", ADD), RESULT, ENDS],
    "parallel calls": [ASKS, calls("", ADD, SUB), RESULT, OTHER, ENDS],
    "content beside a call": [ASKS, calls("I add.", ADD), RESULT, ENDS],
    "reasoning": [ASKS, says("assistant", "It is four.", reasoning_content="Easy.")],
    "inline reasoning": [ASKS, says("assistant", "<think>\nEasy.\n</think>\n\nIt is four.")],
    "tools with null": [ASKS, calls("", ADD), RESULT, ENDS],
}
TOOLS = {
    **dict.fromkeys(("call", "parallel calls", "content beside a call"), tools_with()),
    "tools with null": tools_with(default=None),
}
SAID = ("It is four.", "Four.", "I add.", "seven", "31", "Easy.")
"""What the assistant says in these chats."""

NOT_SAID = ("Two and two?", "Sure?", "Be brief.", "the first result", "the other result")

NOT_TAKEN = {"idefics3", "llava_next", "smolvlm"}
"""Whose contents are lists of parts, with pictures among them."""

REFUSED = {
    "call": {"cohere", "cohere2", "deepseek_r1_distill", "gemma", "gemma3", "lfm2", "llama3", "phi3", "phi3_5"}
    | {"qwen2_5_vl"},
    "reasoning": {"cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3", "gemma4", "gemma4_v2"}
    | {"gemma4_v3", "gemma4_v4", "lfm2", "lfm2_v2", "llama3", "llama3_1", "llama3_2", "phi3", "phi3_5", "qwen2_5"}
    | {"qwen2_5_vl", "qwen3_instruct_2507", "qwen3_vl"},
    "inline reasoning": {"deepseek_r1_distill", "deepseekv3"},
    "system": {"gemma"},
}
REFUSED["tools with null"] = REFUSED["call"]
REFUSED["parallel calls"] = REFUSED["call"] | {"llama3_1", "llama3_2", "gptoss"}
REFUSED["content beside a call"] = (
    REFUSED["call"]
    | {"llama3_1", "llama3_2", "gptoss", "muse_glimmer", "diffusion_gemma"}
    | {"gemma4", "gemma4_v3", "gemma4_v4", "gemma4_v5"}
)
"""Of which kinds a template leaves something out, or says that it takes none."""

OPENS = "<｜tool▁outputs▁end｜>"
"""What DeepSeek V3's template puts before an answer to the results of calls."""

RESPONSE = "<|tool_response>"
"""Ends a call of Gemma's. Models are to stop there, and TRL does not learn it."""


@cache
def fetched(folder):
    """The templates in the wheel, by name; none if it cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "trl"]
    with_wheel = sorted(folder.glob("trl-*.whl"))
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS)
    except (subprocess.SubprocessError, OSError):
        if not with_wheel:
            return {}
    newest = max(folder.glob("trl-*.whl"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)[:3]])
    with zipfile.ZipFile(newest) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".jinja")]
        return {name.rpartition("/")[2].removesuffix(".jinja"): wheel.read(name).decode() for name in names}


@pytest.fixture
def templates(request):
    found = fetched(request.config.cache.mkdir("trl"))
    if not found:
        pytest.skip("the wheel of TRL cannot be fetched")
    return found


def encoder_of(template):
    """A tokenizer that knows what looks like a token in the template."""
    tokenizer = tokenizer_of(template)
    words = set(re.findall(r"<\|[^<>\s'\"|]+\|>|<｜[^<>\s]+｜>|<[a-z_|]+>|</[a-z_]+>|<[A-Z_|]+>|<\|\"\|>", template))
    tokenizer.add_tokens([AddedToken(word, special="|" in word) for word in sorted(words)])
    return ChatEncoder(tokenizer, ChatFormat(), 10_000)


def row_of(kind):
    columns = {"tools": TOOLS[kind]} if kind in TOOLS else {}
    return Row({"messages": CHATS[kind], **columns}, "rows", 1)


def mark(encoder, kind):
    return encoder.render(row_of(kind))


def learned(marked):
    return [marked.text[start:end] for start, end in marked.spans]


@pytest.mark.parametrize("kind", CHATS)
def test_all_that_the_assistant_says_is_learned_with_its_end_or_the_row_is_refused(templates, kind):
    refused = set()
    for name, template in templates.items():
        if name.removesuffix("_training") in NOT_TAKEN:
            continue
        encoder = encoder_of(template)
        try:
            marked = mark(encoder, kind)
        except DataError:
            refused.add(name)
            continue
        parts = learned(marked)
        told = json_of(CHATS[kind])
        for text in SAID:
            if text in told:
                assert any(text in part for part in parts), (name, marked_text(marked))
        for text in NOT_SAID:
            assert not any(text in part for part in parts), (name, marked_text(marked))
        open_ends = [part for part in parts if not part.endswith(tuple(encoder.template.stops))]
        assert bool(open_ends) is (NO_END in marked.remarks), (name, marked_text(marked))
        assert not open_ends or name.startswith("gptoss"), (name, marked_text(marked))
        assert REASONING_LEFT_OUT not in marked.remarks
    known = {name for name in refused if not name.endswith("_training")}
    assert known == REFUSED.get(kind, set()) & templates.keys()


def joined(marks):
    """Marks without those that begin where another one ends."""
    spans = []
    for start, end in marks:
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        if start < end:
            spans.append((start, end))
    return spans


def json_of(chat):
    return str([{key: value for key, value in one.items() if one["role"] == "assistant"} for one in chat])


def test_templates_for_pictures_are_refused_in_one_sentence(templates):
    for name in NOT_TAKEN & templates.keys():
        with pytest.raises(ModelError, match="cannot write a plain chat"):
            encoder_of(templates[name])


@pytest.mark.parametrize("kind", CHATS)
def test_what_is_found_without_marks_is_what_trl_marks(templates, kind):
    """Apart from what the template itself puts before an answer, and space or `eos_token` behind its end, which TRL
    learns with some templates, and RESPONSE."""
    compared = 0
    for name, template in templates.items():
        if not name.endswith("_training") or name.removesuffix("_training") in NOT_TAKEN:
            continue
        plain = re.sub(r"{%([-+]?)\s*generation\s*([-+]?)%}", r"{%\1 if true \2%}", template)
        plain = re.sub(r"{%([-+]?)\s*endgeneration\s*([-+]?)%}", r"{%\1 endif \2%}", plain)
        try:
            found = mark(encoder_of(plain), kind)
        except DataError as error:
            with pytest.raises(DataError, match=re.escape(str(error)[:60])):
                mark(encoder_of(template), kind)
            continue
        encoder = encoder_of(template)
        written = encoder.template.write(CHATS[kind], read_tools(row_of(kind)))
        assert found.text == written.text, name
        theirs = [written.text[start:end] for start, end in joined(written.marks)]
        ours = learned(found)
        assert len(theirs) == len(ours), name
        for their, our in zip(theirs, ours, strict=True):
            our = our.removesuffix(RESPONSE)
            before, _, behind = their.partition(our)
            assert our in their, (name, their, our)
            assert before in encoder.template.opening.prompt + OPENS, (name, before)
            assert not behind.replace(encoder.tokenizer.eos_token, "").strip(), (name, behind)
        assert learned(mark(encoder, kind)) == ours, name
        compared += 1
    assert compared > 10
