"""Texts with a cache are those of whole passes, whatever is written beside them."""

import pytest
import torch
from families import FAMILIES as ALL_FAMILIES
from families import family_model
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import FAMILIES, VOCABULARY, some_updates, tiny_base, tiny_settings, tiny_tokenizer
from torch.nn.functional import cross_entropy

from seedflood.training.models import prepare_model
from seedflood.training.objectives.writing import CLOSE, write
from seedflood.training.randomness import uniform
from seedflood.training.seedflood.replica import Replica

TOKENS_MAX = 6
END = 9


def trained(base):
    replica = Replica(base, tiny_settings())
    replica.apply(some_updates(40, steps=20))
    replica.open_latest()
    return replica.causal


MODEL = trained(tiny_base("llama"))
PROMPTS = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=9)


def slowly(model, prompt, noise_N, ends, temperature=1.0):
    """One text by whole passes, without a cache, and the losses of its tokens."""
    tokens, losses = list(prompt), []
    for number in noise_N.tolist():
        logits_V = model.logits(model.hidden_states(torch.tensor([tokens])))[0, -1].to(torch.float64)
        total_V = torch.softmax(logits_V / temperature, 0).cumsum(0)
        tokens.append(int((total_V <= number * float(total_V[-1])).sum()))
        losses.append(float(cross_entropy(logits_V / temperature, torch.tensor(tokens[-1]))))
        if tokens[-1] in ends:
            break
    return tokens[len(prompt) :], losses


@settings(max_examples=30)
@given(st.lists(PROMPTS, min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 2**63), st.sampled_from([0.5, 1.0]))
def test_a_text_follows_from_its_prompt_and_noise_whatever_is_written_beside_it(prompts, group, key, temperature):
    noise_BN = uniform(range(key, key + len(prompts) * group), TOKENS_MAX)
    written = write(MODEL, prompts, noise_BN, {END}, tokens_max=TOKENS_MAX, temperature=temperature)
    with torch.inference_mode():
        expected = [
            slowly(MODEL, prompt, noise_BN[place * group + k], {END}, temperature)
            for place, prompt in enumerate(prompts)
            for k in range(group)
        ]
    assert [text.tokens for text in written] == [tokens for tokens, _ in expected]
    for text, (_, losses) in zip(written, expected, strict=True):
        assert text.losses == pytest.approx(losses, abs=1e-4)


def test_a_text_is_close_to_another_one_exactly_if_a_number_nearby_gives_another_token():
    noise_BN = uniform(range(400), 1)
    written, *others = (
        write(MODEL, [[2, 3, 4]], noise_BN + shift, {END}, tokens_max=1) for shift in (0.0, -CLOSE, CLOSE)
    )
    differing = [one.tokens != other.tokens for one, other in zip(*others, strict=True)]
    assert [text.is_close for text in written] == differing
    assert 0 < sum(differing) < 200


@given(st.lists(PROMPTS, min_size=1, max_size=4))
@settings(max_examples=15)
def test_without_noise_the_most_likely_tokens_are_written(prompts):
    nearly_certain = torch.full((len(prompts), TOKENS_MAX), 0.5, dtype=torch.float64)
    with torch.inference_mode():
        expected = [
            slowly(MODEL, prompt, noise_N, {END}, 1e-6)[0]
            for prompt, noise_N in zip(prompts, nearly_certain, strict=True)
        ]
    assert [text.tokens for text in write(MODEL, prompts, None, {END}, tokens_max=TOKENS_MAX)] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_live_model_computes_with_a_cache_what_it_computes_without(family):
    model = trained(tiny_base(family))
    check_cache(model)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_every_family_writes_with_a_cache_what_it_writes_without(family):
    check_cache(trained(prepare_model(family_model(family), tiny_tokenizer())))


@torch.inference_mode()
def check_cache(model):
    tokens_BT = torch.randint(1, VOCABULARY, (4, 12), generator=torch.Generator().manual_seed(5))
    expected_BTV = model.logits(model.hidden_states(tokens_BT))
    cache = model.new_cache()
    model.hidden_states(tokens_BT[:2, :5], cache)
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([0, 3]))
    wanted_B = torch.tensor([0, 1])
    for place in range(5, 12):
        logits_BV = model.logits(model.hidden_states(tokens_BT[wanted_B, place : place + 1], cache))[:, 0]
        torch.testing.assert_close(logits_BV, expected_BTV[wanted_B, place], rtol=1e-4, atol=1e-4)


def test_a_model_that_another_thread_stops_computes_no_further_token():
    model, seen = tiny_base("llama").causal, []
    compute = model.hidden_states

    def stopped_at_the_second(*asked):
        seen.append(asked)
        model.is_stopped = len(seen) == 2
        return compute(*asked)

    model.hidden_states = stopped_at_the_second
    with pytest.raises(RuntimeError, match="going"):
        write(model, [[2, 3]], None, set(), tokens_max=TOKENS_MAX)
    assert len(seen) == 2


def test_noise_is_uniform_and_that_of_the_key_alone():
    noise_BN = uniform([1, 2, 1], 20_000)
    assert torch.equal(noise_BN[0], noise_BN[2])
    assert not torch.equal(noise_BN[0], noise_BN[1])
    counts = torch.histc(noise_BN[0].to(torch.float32), 10, 0, 1)
    assert float((counts - 2000).abs().max()) < 200
    assert torch.equal(uniform([2], 5)[0], noise_BN[1, :5])
