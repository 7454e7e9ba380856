"""Generation with a cache writes what the whole pass would, of a model and of a replica under training."""

import pytest
import torch
from reference import FAMILIES, WORDS, make_task, some_updates, tiny_base, tiny_replica, tiny_settings

from seedflood.errors import UsageError
from seedflood.training.formats import ChatFormat, CompletionFormat
from seedflood.training.generation import SAMPLES, Wish, write_on, write_samples

PROMPT = "a film was good ."


def greedy(causal, tokens, count):
    """The whole pass for each token, without a cache."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(causal.logits(causal.hidden_states(torch.tensor([tokens])))[0, -1].argmax()))
    return tokens[-count:]


def base_of(family, is_replica):
    """The model ends no text by itself, so that all tokens are compared."""
    if is_replica:
        replica = tiny_replica(family)
        replica.apply(some_updates(40, steps=20))
        replica.open_latest()
        base, causal = replica.base, replica.causal
    else:
        base = tiny_base(family)
        causal = base.causal
    base.model.generation_config.eos_token_id = None
    return base, causal


@pytest.mark.parametrize("is_replica", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_generation_with_the_cache_is_that_of_the_whole_pass(family, is_replica):
    base, causal = base_of(family, is_replica)
    tokens = base.tokenizer(PROMPT)["input_ids"]
    assert write_on(base, PROMPT, Wish(20), lambda _: None) == greedy(causal, tokens, 20)


def test_each_new_token_costs_one_position():
    base, _ = base_of("llama", False)
    lengths = []
    base.model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    write_on(base, PROMPT, Wish(4), lambda _: None)
    assert lengths == [5, 1, 1, 1]


def test_the_first_validation_rows_are_written_on_from_where_their_answers_begin():
    base, _ = base_of("llama", False)
    rows = [{"prompt": PROMPT, "completion": f" was {word}"} for word in WORDS[:5]]
    task = make_task(tiny_settings(task="completion"), base.tokenizer, CompletionFormat(), rows, rows)
    samples = write_samples(base, task)
    pieces = []
    write_on(base, PROMPT, Wish(32), pieces.append)
    assert [one.prompt for one in samples] == [PROMPT] * SAMPLES
    assert [one.wanted.split()[0] for one in samples] == ["was"] * SAMPLES
    assert {one.written for one in samples} == {"".join(pieces)}


def test_text_is_shown_piece_by_piece_and_the_prompt_is_not():
    base, _ = base_of("opt", False)
    pieces = []
    tokens = write_on(base, PROMPT, Wish(12), pieces.append)
    assert len(pieces) > 4
    assert "".join(pieces) == base.tokenizer.decode(tokens, skip_special_tokens=True)


def test_draws_follow_the_seed_and_the_temperature():
    base, _ = base_of("opt", False)

    def drawn(seed, temperature=2.0):
        return write_on(base, PROMPT, Wish(16, temperature, seed), lambda _: None)

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1, 1e-4) == drawn(2, 1e-4) == write_on(base, PROMPT, Wish(16), lambda _: None)


def test_generation_ends_where_the_model_ends_a_text_and_where_its_positions_end():
    base, _ = base_of("llama", False)
    written = write_on(base, PROMPT, Wish(100), lambda _: None)
    assert len(written) == 32 - 5
    base.model.generation_config.eos_token_id = written[3]
    assert write_on(base, PROMPT, Wish(100), lambda _: None) == written[: written.index(written[3]) + 1]


def test_a_chat_prompt_goes_through_the_template():
    base, causal = base_of("llama", False)
    base.tokenizer.chat_template = "a {{ messages[0].content }} {% if add_generation_prompt %}it was{% endif %}"
    told = base.tokenizer(f"a {PROMPT} it was")["input_ids"]
    with torch.inference_mode():
        assert write_on(base, PROMPT, Wish(6, is_chat=True), lambda _: None) == greedy(causal, told, 6)


def test_a_turn_of_a_chat_ends_where_the_template_ends_it():
    """Also if the model ends texts by another token, as those that were not made for chats."""
    base, causal = base_of("llama", False)
    tokenizer = base.tokenizer
    with torch.inference_mode():
        told = greedy(causal, tokenizer(PROMPT)["input_ids"], 12)
    end = told[3]
    tokenizer.add_tokens([f"word-{number}" for number in range(len(tokenizer), end)])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    assert tokenizer.convert_tokens_to_ids("<|turn|>") == end
    tokenizer.chat_template = (
        "{% for one in messages %}{{ one.content }}{% if one.role == 'assistant' %}<|turn|>{% endif %}{% endfor %}"
    )
    assert write_on(base, PROMPT, Wish(12, is_chat=True), lambda _: None) == told[: told.index(end) + 1]
    assert write_on(base, PROMPT, Wish(12), lambda _: None) == told


def test_a_chat_prompt_has_the_date_that_chats_are_learned_with():
    base, causal = base_of("llama", False)
    base.tokenizer.chat_template = (
        "{{ 'good' if strftime_now('%d %b %Y') == '01 Jan 2026' else 'bad' }} {{ messages[0].content }}"
    )
    told = base.tokenizer(f"good {PROMPT}")["input_ids"]
    with torch.inference_mode():
        assert write_on(base, PROMPT, Wish(6, is_chat=True), lambda _: None) == greedy(causal, told, 6)


@pytest.mark.parametrize(
    ("prompt", "is_chat", "said"),
    [("", False, "prompt is empty"), (" ".join(WORDS[2:] * 3), False, "32 positions"), ("a", True, "no chat template")],
)
def test_a_prompt_that_the_model_cannot_take_is_one_sentence(prompt, is_chat, said):
    with pytest.raises(UsageError, match=said):
        write_on(tiny_base(), prompt, Wish(5, is_chat=is_chat), lambda _: None)


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", {"rag": "a"}, "{% for %}"])
def test_a_template_that_refuses_the_prompt_is_told_in_one_sentence(template):
    base = tiny_base()
    base.tokenizer.chat_template = template
    with pytest.raises(UsageError, match="the chat template of this model refuses the prompt"):
        write_on(base, "a", Wish(5, is_chat=True), lambda _: None)


ASKING = (
    "{% for one in messages %}{% if one.role == 'user' %}{{ one.content }} was {% else %}{{ one.content }}<|turn|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}it {% endif %}"
)


def base_with_end(end):
    """A model of which answers end with a token that the tokenizer does not know as special."""
    base, causal = base_of("llama", False)
    base.tokenizer.add_tokens([f"word-{number}" for number in range(len(base.tokenizer), end)])
    base.tokenizer.add_tokens(["<|turn|>"])
    assert base.tokenizer.convert_tokens_to_ids("<|turn|>") == end
    base.tokenizer.chat_template = ASKING
    return base, causal


def test_samples_of_chats_are_asked_as_users_ask_however_the_rows_are_trained():
    base, _ = base_with_end(40)
    rows = [{"messages": [{"role": "user", "content": "a film"}, {"role": "assistant", "content": "good"}]}]
    task = make_task(tiny_settings(task="chat"), base.tokenizer, ChatFormat(), rows, rows)
    (sample,) = write_samples(base, task)
    pieces = []
    write_on(base, "a film", Wish(32, is_chat=True), pieces.append)
    assert sample.prompt.split() == ["a", "film", "was", "it"]
    assert (sample.wanted.split()[0], sample.written) == ("good", "".join(pieces))


def test_the_token_that_ends_an_answer_is_not_shown_though_it_is_no_special_one():
    base, causal = base_of("llama", False)
    with torch.inference_mode():
        told = greedy(causal, base.tokenizer("a film was it")["input_ids"], 12)
    base, _ = base_with_end(told[3])
    pieces = []
    assert write_on(base, "a film", Wish(12, is_chat=True), pieces.append) == told[: told.index(told[3]) + 1]
    assert "turn" not in "".join(pieces)
