"""What is learned of a chat, by the templates of a dozen families. The texts with their marks are written by hand."""

import json
import re
from pathlib import Path

import datasets
import pytest
from marked_texts import marked_text, tokenizer_of

from seedflood.cluster.display import understood
from seedflood.config import RunSettings
from seedflood.errors import DataError, ModelError
from seedflood.training.chat import (
    ANOTHER_OPENING,
    NO_END,
    SYSTEM_BESIDE,
    SYSTEM_LEFT_OUT,
    TOOLS_LEFT_OUT,
    ChatEncoder,
    end_tokens,
)
from seedflood.training.files import read_file
from seedflood.training.formats import ChatFormat
from seedflood.training.rows import Row, Splits, Table
from seedflood.training.shards import Shard
from seedflood.training.tasks import Task

TEMPLATES = Path(__file__).parent / "chat_templates"


def says(role, content, **more):
    return {"role": role, "content": content, **more}


CHAT = [
    says("system", "Be brief."),
    says("user", "2+2?"),
    says("assistant", "4."),
    says("user", "Sure?"),
    says("assistant", "Yes."),
]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds."}}]
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
CALLING = [
    says("user", "2+2?"),
    {"role": "assistant", "tool_calls": [CALL]},
    says("tool", "4"),
    says("assistant", "It is 4."),
    says("user", "Thanks."),
    says("assistant", "OK."),
]


def task_of(encoder, rows):
    return Task(encoder, Splits(Table(rows), Table(rows)), RunSettings(), Shard())


def encoder_of(family, length_max=10_000, **options):
    return ChatEncoder(tokenizer_of((TEMPLATES / f"{family}.jinja").read_text(), **options), ChatFormat(), length_max)


def marked(family, messages, **columns):
    return marked_text(encoder_of(family).render(Row({"messages": messages, **columns}, "rows", 1)))


CHATS = {
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 01 Jan 2026\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n⟦4.<|eot_id|>⟧"
    "<|start_header_id|>user<|end_header_id|>\n\nSure?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n⟦Yes.<|eot_id|>⟧",
    "qwen2": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
    "<|im_start|>assistant\n⟦4.<|im_end|>⟧\n<|im_start|>user\nSure?<|im_end|>\n"
    "<|im_start|>assistant\n⟦Yes.<|im_end|>⟧\n",
    "qwen3": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
    "<|im_start|>assistant\n⟦4.<|im_end|>⟧\n<|im_start|>user\nSure?<|im_end|>\n"
    "<|im_start|>assistant\n⟦<think>\n\n</think>\n\nYes.<|im_end|>⟧\n",
    "qwen3_thinking": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
    "<|im_start|>assistant\n⟦4.<|im_end|>⟧\n<|im_start|>user\nSure?<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n⟦\n</think>\n\nYes.<|im_end|>⟧\n",
    "gemma": "<s><start_of_turn>user\nBe brief.\n\n2+2?<end_of_turn>\n<start_of_turn>model\n⟦4.<end_of_turn>⟧\n"
    "<start_of_turn>user\nSure?<end_of_turn>\n<start_of_turn>model\n⟦Yes.<end_of_turn>⟧\n",
    "mistral": "<s>[INST] 2+2?[/INST] ⟦4.</s>⟧[INST] Sure?[/INST] ⟦Yes.</s>⟧",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\n2+2?<|end|>\n<|assistant|>\n⟦4.<|end|>⟧\n"
    "<|user|>\nSure?<|end|>\n<|assistant|>\n⟦Yes.<|end|>⟧\n</s>",
    "zephyr": "<|system|>\nBe brief.</s>\n<|user|>\n2+2?</s>\n<|assistant|>\n⟦4.</s>⟧\n"
    "<|user|>\nSure?</s>\n<|assistant|>\n⟦Yes.</s>⟧\n",
    "smollm3": "<|im_start|>system\n## Metadata\n\nToday Date: 01 January 2026\nReasoning Mode: /think\n\n"
    "Be brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦4.<|im_end|>⟧\n"
    "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n⟦Yes.<|im_end|>⟧\n",
    "olmo": "<s><|system|>\nBe brief.\n<|user|>\n2+2?\n<|assistant|>\n⟦4.</s>⟧\n<|user|>\nSure?\n"
    "<|assistant|>\n⟦Yes.</s>⟧",
    "deepseek": "<s>Be brief.<|User|>2+2?<|Assistant|>⟦4.</s>⟧<|User|>Sure?<|Assistant|>⟦Yes.</s>⟧",
    "glm": "[gMASK]<sop><|system|>\nBe brief.<|user|>\n2+2?<|assistant|>⟦\n<think></think>\n4.<|user|>⟧\nSure?"
    "<|assistant|>⟦\n<think></think>\nYes.<|user|>⟧",
    "plain": "System: Be brief.\nUser: 2+2?\nAssistant: ⟦4.⟧\nUser: Sure?\nAssistant: ⟦Yes.⟧\n",
    "gpt_oss": "<|start|>system<|message|>Be brief.<|end|><|start|>user<|message|>2+2?<|end|>"
    "<|start|>assistant⟦<|channel|>final<|message|>4.<|end|>⟧<|start|>user<|message|>Sure?<|end|>"
    "<|start|>assistant⟦<|channel|>final<|message|>Yes.<|return|>⟧",
}

CALLS = {
    "deepseek": '<s><|User|>2+2?<|Assistant|>⟦<|calls|><|call|>add<|sep|>{"a": 2}</s>⟧'
    "<|outputs|>4<|outputs_end|>⟦It is 4.</s>⟧<|User|>Thanks.<|Assistant|>⟦OK.</s>⟧",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 01 Jan 2026\n\n<|eot_id|>"
    f"<|start_header_id|>user<|end_header_id|>\n\n{json.dumps(TOOLS[0])}\n\n2+2?<|eot_id|>"
    '<|start_header_id|>assistant<|end_header_id|>\n\n⟦{"name": "add", "parameters": {"a": 2}}<|eot_id|>⟧'
    '<|start_header_id|>ipython<|end_header_id|>\n\n"4"<|eot_id|>'
    "<|start_header_id|>assistant<|end_header_id|>\n\n⟦It is 4.<|eot_id|>⟧"
    "<|start_header_id|>user<|end_header_id|>\n\nThanks.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n⟦OK.<|eot_id|>⟧",
    "qwen2": "<|im_start|>system\nYou are a helpful assistant.\n\n# Tools\n\n<tools>\n"
    f"{json.dumps(TOOLS[0])}\n</tools><|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    '⟦<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>⟧\n'
    "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n⟦It is 4.<|im_end|>⟧\n"
    "<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n⟦OK.<|im_end|>⟧\n",
    "qwen3": "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    '⟦<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>⟧\n'
    "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n⟦It is 4.<|im_end|>⟧\n"
    "<|im_start|>user\nThanks.<|im_end|>\n"
    "<|im_start|>assistant\n⟦<think>\n\n</think>\n\nOK.<|im_end|>⟧\n",
    "mistral": '<s>[INST] 2+2?[/INST]⟦[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2}}]</s>⟧'
    '[TOOL_RESULTS] {"content": 4}[/TOOL_RESULTS] ⟦It is 4.</s>⟧'
    f"[AVAILABLE_TOOLS] {json.dumps(TOOLS)}[/AVAILABLE_TOOLS][INST] Thanks.[/INST] ⟦OK.</s>⟧",
}


@pytest.mark.parametrize("family", CHATS)
def test_what_the_assistant_says_is_learned_and_the_token_that_ends_its_turn(family):
    assert marked(family, CHAT) == CHATS[family]


@pytest.mark.parametrize("family", CHATS)
def test_an_answer_of_weight_0_stands_there_and_is_not_learned(family):
    """As in OpenAI's files."""
    first, second = (dict(one, weight=weight) for one, weight in ((CHAT[2], 0), (CHAT[4], 1)))
    told = marked(family, [*CHAT[:2], first, CHAT[3], second])
    head, _, rest = CHATS[family].partition("⟦")
    assert told == head + rest.replace("⟧", "", 1)


@pytest.mark.parametrize("family", CALLS)
def test_calls_of_tools_are_learned_and_their_results_are_not(family):
    assert marked(family, CALLING, tools=TOOLS) == CALLS[family]


def with_json(messages):
    """The messages with the arguments of their calls as JSON, as OpenAI's files have them."""
    function = {"name": "add", "arguments": json.dumps(CALL["function"]["arguments"])}
    call = {"id": "1", "type": "function", "function": function}
    return [{**one, "content": None, "tool_calls": [call]} if "tool_calls" in one else one for one in messages]


@pytest.mark.parametrize("family", CALLS)
def test_arguments_of_calls_that_are_told_as_json_are_no_text_to_be_quoted(family):
    assert marked(family, with_json(CALLING), tools=TOOLS) == CALLS[family]


@pytest.mark.parametrize("messages", [CALLING, with_json(CALLING)], ids=["as objects", "as JSON"])
def test_a_template_that_adds_arguments_to_text_gets_them_as_json(messages):
    """As that of DeepSeek R1."""
    template = (TEMPLATES / "deepseek.jinja").read_text().replace("arguments | tojson", "arguments")
    encoder = ChatEncoder(tokenizer_of(template), ChatFormat(), 10_000)
    assert marked_text(encoder.render(Row({"messages": messages}, "rows", 1))) == CALLS["deepseek"]


def test_arguments_that_are_no_json_or_not_there_are_told_as_they_are():
    calls = [{"function": {"name": "run", "arguments": "print(1)"}}, {"function": {"name": "now"}}]
    told = marked("qwen2", [says("user", "a"), says("assistant", "", tool_calls=calls)])
    assert '{"name": "run", "arguments": "print(1)"}' in told
    assert '{"name": "now", "arguments": {}}' in told


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("qwen2", says("developer", "Be brief.")),
        ("smollm3", says("tool", "4")),
        ("phi3", {"role": "assistant", "tool_calls": [CALL]}),
        ("smollm3", {"role": "assistant", "tool_calls": [CALL]}),
        ("olmo", {"role": "assistant", "tool_calls": [CALL], "weight": 0}),
    ],
)
def test_a_chat_of_which_the_template_leaves_something_out_is_refused(family, message):
    problem = rf"line 1: the chat template of this model does not write message 2 \({message['role']}\): correct or"
    with pytest.raises(DataError, match=problem):
        marked(family, [says("user", "a"), message, says("user", "b"), says("assistant", "c")])


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (says("assistant", "", tool_calls="add"), "a call of a tool has no name"),
        (says("assistant", "a", tool_calls=[None]), "a call of a tool has no name"),
        (says("assistant", "a", tool_calls=[{"function": {"arguments": "{}"}}]), "a call of a tool has no name"),
        (says("assistant", "a", function_call={"name": "add"}), "function_call, which templates do not write"),
    ],
)
def test_calls_that_cannot_be_read_are_refused(message, problem):
    with pytest.raises(DataError, match=f"rows, line 1: .*{problem}"):
        marked("zephyr", [says("user", "a"), message])


@pytest.mark.parametrize(
    ("family", "read", "unused"), [("qwen2", ["tools", "messages"], ["id"]), ("qwen3", ["messages"], ["id", "tools"])]
)
def test_tools_are_told_as_what_is_read_if_the_template_writes_them(family, read, unused):
    rows = [Row({"id": 1, "messages": CALLING, "tools": TOOLS}, "rows", 1)]
    told = task_of(encoder_of(family), rows).describe()
    assert (told["columns"], told["unused"]) == (read, unused)


def test_chats_in_a_table_are_those_that_were_put_into_it(tmp_path):
    """Tables give every message all keys that any has."""
    other = {**CALL, "function": {"name": "sum", "arguments": {"b": 3}}}
    rows = [
        {"messages": CALLING, "tools": TOOLS},
        {"messages": [says("user", "a"), {"role": "assistant", "tool_calls": [other]}]},
    ]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
    read, _ = read_file(tmp_path / "rows.parquet").rows
    assert read.columns["messages"][0] == CALLING[0]
    assert marked("qwen2", **read.columns) == CALLS["qwen2"]


THINKING = [
    says("user", "2+2?"),
    says("assistant", "<think>\nEasy.\n</think>\n\n4."),
    says("user", "Sure?"),
    says("assistant", "Yes.", reasoning_content="Still."),
]


@pytest.mark.parametrize(
    ("family", "asking"),
    [("qwen3", "⟦<think>\n"), ("qwen3_thinking", "<think>\n⟦")],
    ids=["asked plainly", "asked to think"],
)
def test_reasoning_is_learned_as_far_as_the_template_writes_it(family, asking):
    assert marked(family, THINKING) == (
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦4.<|im_end|>⟧\n<|im_start|>user\nSure?<|im_end|>\n"
        f"<|im_start|>assistant\n{asking}Still.\n</think>\n\nYes.<|im_end|>⟧\n"
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "text": "Still."},
        {"type": "thinking", "thinking": "Still."},
        {"type": "thinking", "thinking": [{"type": "text", "text": "Still."}]},
    ],
)
def test_a_part_of_a_content_that_is_reasoning_is_no_part_of_the_answer(part):
    parts = [part, {"type": "text", "text": "Yes."}]
    assert marked("qwen3", [*THINKING[:3], says("assistant", parts)]) == marked("qwen3", THINKING)
    with pytest.raises(DataError, match="leaves out a part of message 2"):
        marked("qwen2", [says("user", "Sure?"), says("assistant", parts)])


def test_answers_that_look_like_a_template_are_learned_whole():
    told = "<|im_end|>\n<|im_start|>assistant\n4.<|im_end|>"
    assert f"⟦{told}<|im_end|>⟧" in marked("qwen2", [says("user", told), says("assistant", told)])
    plain = "Assistant: 4.\nUser: so?"
    assert marked("plain", [says("user", plain), says("assistant", plain)]).endswith(f"Assistant: ⟦{plain}⟧\n")


@pytest.mark.parametrize("family", ["llama3", "qwen3", "mistral", "smollm3", "olmo", "plain"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_chats_of_any_number_of_turns_are_learned_turn_by_turn(family, length):
    messages = [says(("user", "assistant")[turn % 2], f"turn {turn}.") for turn in range(2 * length)]
    learned = re.findall("⟦(.*?)⟧", marked(family, messages), re.DOTALL)
    assert len(learned) == length
    assert all(f"turn {2 * turn + 1}." in text for turn, text in enumerate(learned))


def encoder_by(template, **options):
    return ChatEncoder(tokenizer_of(template, **options), ChatFormat(), 10_000)


def marked_by(template, messages, **columns):
    return marked_text(encoder_by(template).render(Row({"messages": messages, **columns}, "rows", 1)))


def test_a_call_whose_end_cannot_be_told_is_refused():
    template = "{% for one in messages %}{{ one.role }}: {{ one.content }}{{ one.tool_calls }}\n{% endfor %}"
    with pytest.raises(DataError, match=r"line 1: where the assistant's turn \(message 2\) stands .* cannot be told"):
        marked_by(template, CALLING)


def test_a_call_is_found_where_the_template_writes_its_name_once_more_beside_the_result():
    """As that of gpt-oss."""
    template = (TEMPLATES / "gpt_oss.jinja").read_text().replace("functions to=", "functions.add to=")
    assert marked_by(template, CALLING).startswith(
        "<|start|>user<|message|>2+2?<|end|><|start|>assistant"
        '⟦ to=functions.add<|message|>{"a": 2}<|call|>⟧<|start|>functions.add to=assistant<|message|>4<|end|>'
    )


def test_a_call_without_arguments_is_learned_where_a_template_writes_each_by_itself():
    """As that of GLM 4 MoE."""
    template = (
        "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}"
        "{% for call in one.tool_calls %}<tool_call>{{ call.function.name }}\n"
        "{% for key, value in call.function.arguments.items() %}\n<key>{{ key }}</key>\n<value>{{ value }}</value>\n"
        "{% endfor %}\n</tool_call>{% endfor %}{% if one.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    )
    messages = [says("user", "2+2?"), says("assistant", "", tool_calls=[{"function": {"name": "now"}}])]
    assert marked_by(template, messages).endswith("⟦<tool_call>now\n</tool_call><|end|>⟧")


CHATML = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n"
    "{% if one.role == 'assistant' %}{% generation %}{{ one.content }}{% endgeneration %}"
    "{% else %}{{ one.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def remarks_by(encoder, messages, **columns):
    return encoder.render(Row({"messages": messages, **columns}, "rows", 1)).remarks


def test_marks_around_the_content_alone_are_widened_to_the_end_of_the_turn():
    assert marked_by(CHATML, CHAT[1:]) == (
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦4.<|im_end|>⟧\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n⟦Yes.<|im_end|>⟧\n"
    )


def test_marks_that_leave_out_what_the_assistant_says_are_refused():
    template = CHATML.replace(
        "{% generation %}{{ one.content }}", "{{ one.content }}{% generation %}{{ one.tool_calls }}"
    )
    with pytest.raises(DataError, match=r"marks of the chat template leave out a part of .* \(message 2\)"):
        marked_by(template, CHAT[1:])


def test_a_turn_of_weight_0_is_not_learned_though_the_template_marks_it():
    told = marked_by(CHATML, [CHAT[1], {**CHAT[2], "weight": 0}, *CHAT[3:]])
    assert re.findall("⟦(.*?)⟧", told) == ["Yes.<|im_end|>"]


def test_the_token_that_opens_the_next_turn_ends_the_last_one_too():
    """As with GLM, whose template writes nothing behind the last answer, or call."""
    encoder = encoder_of("glm")
    assert encoder.template.stops == {"<|user|>"}
    assert marked("glm", CHAT[1:3]).endswith("⟦\n<think></think>\n4.<|user|>⟧")


def test_a_template_that_leaves_out_the_last_end_gets_it():
    template = "{% for one in messages %}{{ one.content }}{% if not loop.last %}<|im_end|>\n{% endif %}{% endfor %}"
    assert marked_by(template, CHAT[1:]) == "2+2?<|im_end|>\n⟦4.<|im_end|>⟧\nSure?<|im_end|>\n⟦Yes.<|im_end|>⟧"


@pytest.mark.parametrize("family", [one for one in CHATS if one != "plain"])
def test_what_is_learned_ends_with_a_token_at_which_generation_stops(family):
    encoder = encoder_of(family)
    (example,) = encoder.encode([Row({"messages": CHAT}, "rows", 1)])
    ends = [
        token
        for token, is_trained, follows in zip(
            example.tokens, example.is_trained, (*example.is_trained[1:], False), strict=True
        )
        if is_trained and not follows
    ]
    assert len(ends) == 2
    assert set(ends) <= set(end_tokens(encoder.tokenizer))
    assert not encoder.is_endless


def test_a_token_need_not_be_a_special_one_to_end_an_answer():
    tokenizer = tokenizer_of(CHATML.replace("im_end", "done"))
    tokenizer.add_tokens(["<|done|>"])
    assert end_tokens(tokenizer) == [tokenizer.convert_tokens_to_ids("<|done|>")]


def test_an_end_that_is_no_token_is_told_before_training():
    """A template for ChatML on the tokenizer of a model that was not made for chats."""
    encoder = encoder_by(CHATML.replace("im_end", "done").replace("im_start", "turn"))
    assert encoder.is_endless
    assert end_tokens(encoder.tokenizer) == []
    row = Row({"messages": CHAT}, "rows", 1)
    told = understood(task_of(encoder, [row]).describe())
    assert r"; the model will not learn to end an answer: its chat template ends none with a token of its" in told
    assert "<|done|>" in told


def test_what_stands_behind_reasoning_too_ends_no_answer():
    """`<|end|>` of gpt-oss: generation would end with the reasoning."""
    template = (TEMPLATES / "gpt_oss.jinja").read_text()
    analysis = "'<|channel|>analysis<|message|>' + message.thinking + '<|end|><|start|>assistant'"
    thinking = f"({analysis} if message.thinking else '')"
    template = template.replace("assistant<|channel|>final", f'assistant" + {thinking} + "<|channel|>final')
    encoder = encoder_by(template)
    assert encoder.template.stops == {"<|return|>", "<|call|>"}
    messages = [says("user", "2+2?"), says("assistant", "4.", reasoning_content="Easy.")]
    assert marked_by(template, messages).endswith(
        "⟦<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>4.<|return|>⟧"
    )
    assert remarks_by(encoder, CHAT) == (NO_END,)


@pytest.mark.parametrize(
    ("family", "said", "left_out"),
    [
        ("qwen2", {"content": "4.", "reasoning_content": "Why?"}, "its reasoning"),
        ("deepseek", {"content": "<think>\nWhy?\n</think>\n\n4."}, "its reasoning"),
        ("deepseek", {"content": "Why?</think>4."}, "its reasoning"),
        ("llama3", {"content": "I add.", "tool_calls": [CALL]}, "its content"),
        (
            "gpt_oss",
            {"tool_calls": [CALL, {**CALL, "function": {"name": "sub", "arguments": {}}}]},
            "its call of a tool",
        ),
        ("smollm3", {"content": "I add.", "tool_calls": [CALL]}, "its call of a tool"),
    ],
)
def test_a_part_of_a_turn_that_the_template_leaves_out_is_refused(family, said, left_out):
    messages = [says("user", "2+2?"), {"role": "assistant", "content": "", **said}]
    with pytest.raises(DataError, match=rf"leaves out a part of message 2 \(assistant\): {left_out}; correct"):
        marked(family, messages)


def test_a_content_that_the_template_changes_is_refused():
    template = CHATML.replace("generation %}{{ one.content }}", "generation %}{{ one.content | replace('y', '') }}")
    with pytest.raises(DataError, match="leaves out a part of message 2"):
        marked_by(template, [says("user", "a"), says("assistant", "my six")])


def test_reasoning_of_earlier_turns_is_left_out_as_models_are_asked_and_counted():
    rows = [Row({"messages": [*one, *CHAT[3:]]}, "rows", 1) for one in (CHAT[1:3], THINKING[:2])]
    told = understood(task_of(encoder_of("qwen3"), rows).describe())
    assert "; reasoning of 1 of 2 rows is left out by the template" in told


def test_a_template_that_writes_a_content_behind_the_result_of_its_call_is_refused():
    """As that of Gemma 4: the result would be learned."""
    template = (
        "{% for one in messages %}{% if one.role != 'tool' %}<|start|>{{ one.role }}<|message|>"
        "{% for call in one.tool_calls %}<|call|>{{ call.function.arguments | tojson }}"
        "<|outputs|>{{ messages[loop.index0 + 2].content }}<|outputs_end|>{% endfor %}{{ one.content }}"
        "<|end|>{% endif %}{% endfor %}"
    )
    messages = [says("user", "2+2?"), says("assistant", "I add.", tool_calls=[CALL]), says("tool", "four")]
    with pytest.raises(DataError, match="writes the content of message 2 behind the result of its call"):
        marked_by(template, [*messages, says("assistant", "It is 4.")])


def test_a_system_message_may_be_a_column_and_is_counted_if_the_template_leaves_it_out():
    told = marked("qwen2", CHAT[1:3], system="Be kind.")
    assert told.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user")
    assert "system\n4<|im_end|>" in marked("qwen2", CHAT[1:3], system=4)
    assert remarks_by(encoder_of("mistral"), CHAT) == (SYSTEM_LEFT_OUT,)
    assert remarks_by(encoder_of("qwen2"), CHAT) == ()


def test_a_system_column_beside_a_system_message_is_counted():
    encoder = encoder_of("qwen2")
    assert remarks_by(encoder, CHAT, system="Be kind.") == (SYSTEM_BESIDE,)
    assert remarks_by(encoder, CHAT, system="Be brief.") == remarks_by(encoder, CHAT[1:], system="Be kind.") == ()


def test_reasoning_by_two_names_is_learned_once():
    said = says("assistant", "4.", reasoning_content="Easy.", reasoning="Easy.")
    assert marked("qwen3", [CHAT[1], said]).endswith("⟦<think>\nEasy.\n</think>\n\n4.<|im_end|>⟧\n")
    with pytest.raises(DataError, match=r"leaves out a part of message 2 .*: its reasoning"):
        marked("qwen3", [CHAT[1], {**said, "reasoning": "Hard."}])


def test_a_call_without_a_function_around_it_is_learned():
    messages = [CHAT[1], says("function_call", json.dumps(CALL["function"])), says("observation", "4"), CHAT[2]]
    told = marked("qwen2", messages)
    assert '⟦<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>⟧' in told


def test_tools_that_the_template_leaves_out_are_counted():
    assert remarks_by(encoder_of("zephyr"), CHAT[:3], tools=TOOLS) == (TOOLS_LEFT_OUT,)
    assert remarks_by(encoder_of("qwen2"), CALLING, tools=TOOLS) == ()


@pytest.mark.parametrize(
    ("family", "messages", "is_asked"),
    [
        ("qwen3", CHAT, True),
        ("qwen3_thinking", CHAT[:3], True),
        ("qwen3_thinking", CHAT, False),  # the first answer stands there without `<think>`
        ("deepseek", CHAT, False),
    ],
)
def test_answers_behind_another_beginning_than_the_model_is_asked_with_are_counted(family, messages, is_asked):
    assert (ANOTHER_OPENING not in remarks_by(encoder_of(family), messages)) is is_asked


def test_reasoning_is_learned_where_the_template_asks_for_answers_without_it():
    """As Qwen3.5 of 2 B parameters: the prompt closes the reasoning that stands open in the row."""
    template = (TEMPLATES / "qwen3.jinja").read_text()
    template = template.replace("enable_thinking is defined and enable_thinking is false", "true")
    told = [says("user", "2+2?"), says("assistant", "4.", reasoning_content="Easy.")]
    assert marked_by(template, told).endswith("<|im_start|>assistant\n<think>\n⟦Easy.\n</think>\n\n4.<|im_end|>⟧\n")
    assert remarks_by(encoder_by(template), told) == (ANOTHER_OPENING,)


@pytest.mark.parametrize(
    "given",
    [
        [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4."}],
        [{"from": "User", "value": "2+2?"}, {"from": "model", "value": "4."}],
        [
            says("user", [{"type": "text", "text": "2+"}, {"type": "text", "text": "2?"}]),
            says("assistant", "4.", tool_calls=None),
        ],
        json.dumps([says("user", "2+2?"), says("assistant", "4.")]),
    ],
    ids=["from and value", "other names", "parts of text", "as JSON"],
)
def test_messages_may_be_told_in_other_ways(given):
    assert marked("plain", given) == "User: 2+2?\nAssistant: ⟦4.⟧\n"


def test_an_answer_that_is_empty_may_be_left_out_and_one_of_reasoning_alone_is_learned():
    """What comes with it is for the template."""
    given = [says("user", "a"), says("assistant", "", weight=0), says("user", "b"), says("assistant", "c")]
    assert marked("qwen2", given).endswith("⟦c<|im_end|>⟧\n")
    given = [says("user", "a"), says("assistant", "", reasoning_content="Why?")]
    assert marked("qwen3", given).endswith("⟦<think>\nWhy?\n</think>\n\n<|im_end|>⟧\n")


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("2+2?", r'no list of messages in column "messages" \(columns: messages\): a row looks like'),
        (["2+2?"], "no list of messages"),
        ([], r"the assistant says nothing in this chat \(roles: none\), or nothing with a weight: remove the row"),
        ([says("user", "a"), says("assistant", "b", weight=0)], "nothing with a weight"),
        ([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 0}], "nothing with a weight"),
        ([says("user", "a"), says("Tutor", "b")], r"the assistant says nothing in this chat \(roles: user, Tutor\)"),
        ([says("user", "a"), {"role": "assistant"}], "a message has no role, or no text"),
        ([says("user", "a"), says("assistant", [{"type": "image"}])], "a message has no role, or no text"),
        ([{"content": "a"}], "a message has no role"),
        ([says("user", "a"), says("assistant", " ")], r"the assistant's turn \(message 2\) is empty"),
        ([*CHAT, says("user", "a"), says("assistant", "", name="x")], r"the assistant's turn \(message 7\) is empty"),
        ([says("assistant", "a"), says("user", "b")], r"refuses the chat \(Conversation roles must alternate"),
    ],
)
def test_a_row_that_is_no_chat_is_told_with_file_and_line(messages, problem):
    with pytest.raises(DataError, match=f"rows, line 1: .*{problem}"):
        encoder_of("gemma").check(Row({"messages": messages}, "rows", 1))


def test_a_model_without_template_is_refused():
    with pytest.raises(ModelError, match='no chat template, which task "chat" needs: choose a model'):
        ChatEncoder(tokenizer_of(None), ChatFormat(), 99)


def test_templates_of_which_none_is_for_plain_chats_are_refused():
    with pytest.raises(ModelError, match=r"cannot write a plain chat .*no default"):
        ChatEncoder(tokenizer_of({"rag": "{{ messages[0].content }}"}), ChatFormat(), 99)
    assert end_tokens(tokenizer_of({"rag": "{{ messages[0].content }}"})) == []


def test_a_template_that_cannot_write_a_chat_is_refused():
    with pytest.raises(ModelError, match=r"cannot write a plain chat \(no\)"):
        ChatEncoder(tokenizer_of("{{ raise_exception('no') }}"), ChatFormat(), 99)


@pytest.mark.parametrize("family", CHATS)
@pytest.mark.parametrize("merging", [False, True])
def test_tokens_are_learned_as_the_characters_are(family, merging):
    encoder = encoder_of(family, merges=["\n4", " 4", "\nY", " Y"] if merging else ())
    (example,) = encoder.encode([Row({"messages": CHAT}, "rows", 1)])
    expected = CHATS[family]
    if merging:  # a token on both sides of a border is learned
        expected = re.sub(r"([\n ])⟦(4|Y)", r"⟦\1\2", expected)
    assert encoder.show(example) == expected[: expected.rindex("⟧") + 1]
    assert not example.is_cut


@pytest.mark.parametrize(("room", "learned"), [(0, ["4.<|im_end|>", "Yes.<|im_end|>"]), (1, ["4.<|im_end|>"])])
def test_a_long_chat_is_cut_where_a_turn_ends(room, learned):
    whole = len(encoder_of("qwen2").encode([Row({"messages": CHAT}, "rows", 1)])[0].tokens)
    encoder = encoder_of("qwen2", whole - room)
    (example,) = encoder.encode([Row({"messages": CHAT}, "rows", 1)])
    assert re.findall("⟦(.*?)⟧", encoder.show(example)) == learned
    assert example.is_cut is bool(room)
    assert example.is_trained[-1]


def test_an_answer_that_does_not_fit_keeps_its_beginning_and_a_question_its_end():
    encoder = encoder_of("plain", 12)
    rows = [
        Row({"messages": [says("user", "a" * 40), says("assistant", answer)]}, "rows", 1) for answer in ("b", "c" * 40)
    ]
    assert [encoder.show(example) for example in encoder.encode(rows)] == ["Assistant: ⟦b⟧", " ⟦" + "c" * 11 + "⟧"]
