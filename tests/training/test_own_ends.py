"""Texts that bring the tokens which begin and end texts themselves have each of them once, whoever reads them."""

import itertools

import pytest
import torch
from marked_texts import tokenizer_of
from tokenizers import processors
from transformers import LlamaConfig, LlamaForCausalLM

from seedflood.config import read_objective
from seedflood.training.encoding import PromptEncoder, TextEncoder
from seedflood.training.formats import CompletionFormat, PromptFormat, TextFormat, choose_format
from seedflood.training.gasloc.packing import pack, pack_marked
from seedflood.training.generation import Wish, write_on
from seedflood.training.models import prepare_model
from seedflood.training.rewarding import RewardEncoder
from seedflood.training.rows import rows_in_memory

ADDED = {"nothing": "$A", "a beginning": "<s> $A", "both": "<s> $A </s>", "an end": "$A </s>"}
"""What a tokenizer puts around a text by itself."""

OWN = ["ab", "<s>ab", "ab</s>", "<s>ab</s>", "<s>ab</s>\n"]
PAIRS = list(itertools.product(OWN, OWN))
PAIRS_OF_ONE = list(itertools.product(["ab", "</s>ab", "ab</s>", "</s>ab</s>"], repeat=2))


def tokenizer_by(added, *, has_one_for_both=False, has_beginning=True):
    tokenizer = tokenizer_of(None, (" b", " g"))
    if has_one_for_both:
        tokenizer.bos_token = "</s>"
    if not has_beginning:
        tokenizer.bos_token = None
    form = ADDED[added].replace("<s>", "</s>") if has_one_for_both else ADDED[added]
    special = [(one, tokenizer.convert_tokens_to_ids(one)) for one in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(form, special_tokens=special)
    return tokenizer


@pytest.fixture(params=ADDED)
def tokenizer(request):
    return tokenizer_by(request.param)


def rows(*texts, **more):
    return rows_in_memory([{"text": text, **more} for text in texts], "rows")


def spelled(tokenizer, tokens):
    return tokenizer.decode([int(one) for one in tokens])


def texts_of(tokenizer, length_max=99):
    return TextEncoder(tokenizer, TextFormat(), length_max)


@pytest.mark.parametrize("text", OWN)
def test_a_text_is_learned_with_one_beginning_and_one_end(tokenizer, text):
    (example,) = texts_of(tokenizer).encode(rows(text))
    assert spelled(tokenizer, example.tokens).removeprefix("<s>") == "ab</s>"


@pytest.mark.parametrize("texts", PAIRS)
def test_a_text_does_not_hang_on_those_beside_it(tokenizer, texts):
    one, other = texts_of(tokenizer).encode(rows(*texts))
    assert [one.tokens, other.tokens] == [texts_of(tokenizer).encode(rows(text))[0].tokens for text in texts]


@pytest.mark.parametrize("texts", PAIRS)
def test_packed_texts_have_one_beginning_and_one_end_each(tokenizer, texts):
    packed = pack(rows(*texts), texts_of(tokenizer))
    assert spelled(tokenizer, packed[0]) == "<s>ab</s><s>ab</s>"


@pytest.mark.parametrize("texts", PAIRS_OF_ONE)
@pytest.mark.parametrize("added", ADDED)
def test_one_token_for_both_stands_once_between_packed_texts(added, texts):
    tokenizer = tokenizer_by(added, has_one_for_both=True)
    assert spelled(tokenizer, pack(rows(*texts), texts_of(tokenizer))[0]) in ("</s>ab</s>ab", "</s>ab</s>ab</s>")
    for example in texts_of(tokenizer).encode(rows(*texts)):
        assert spelled(tokenizer, example.tokens).removeprefix("</s>") == "ab</s>"


@pytest.mark.parametrize("text", ["ab", "ab</s>"])
def test_a_tokenizer_that_has_no_beginning_ends_texts_once(text):
    tokenizer = tokenizer_by("nothing", has_beginning=False)
    assert spelled(tokenizer, pack(rows(text, text), texts_of(tokenizer))[0]).strip("</s>") == "ab</s>ab"


@pytest.mark.parametrize("begin", ["", "<s>"])
@pytest.mark.parametrize("end", ["", "</s>", "</s>\n", " </s>"])
def test_a_completion_has_one_beginning_and_one_end(tokenizer, begin, end):
    encoder = TextEncoder(tokenizer, CompletionFormat("{text}", "more"), 99)
    given = rows(f"{begin}ab ", more=f"c{end}")
    (example,) = encoder.encode(given)
    assert encoder.show(example).removeprefix("<s>") in ("ab ⟦c</s>⟧", "ab ⟦c </s>⟧")
    assert spelled(tokenizer, abs(pack_marked(given, encoder)[0][1:])).count("</s>") <= 1


@pytest.mark.parametrize("text", ["ab", "<s>ab"])
def test_a_prompt_with_a_label_has_one_beginning_and_no_end(tokenizer, text):
    encoder = PromptEncoder(tokenizer, PromptFormat("{text}", ("bad", "good")), 99)
    (example,) = encoder.encode(rows(text, label=0))
    assert spelled(tokenizer, example.tokens).removeprefix("<s>") == "ab"


@pytest.mark.parametrize("text", ["ab", "<s>ab"])
def test_a_prompt_that_is_rewarded_has_one_beginning_and_no_end(tokenizer, text):
    form = choose_format(read_objective({"task": "reward", "template": "{text}", "max_new_tokens": 4}), {})
    (example,) = RewardEncoder(tokenizer, form, 99).encode(rows(text, answer="x"))
    assert spelled(tokenizer, example.tokens).removeprefix("<s>") == "ab"


@pytest.mark.parametrize("text", ["ab", "<s>ab"])
def test_a_prompt_that_is_written_on_has_one_beginning_and_no_end(tokenizer, text):
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    base = prepare_model(LlamaForCausalLM(LlamaConfig(**shape, vocab_size=len(tokenizer))), tokenizer)
    read = []
    base.model.register_forward_pre_hook(lambda _, args, told: read.append(told["input_ids"]), with_kwargs=True)
    with torch.inference_mode():
        write_on(base, text, Wish(1), lambda _: None)
    assert spelled(tokenizer, read[0][0]).removeprefix("<s>") == "ab"
