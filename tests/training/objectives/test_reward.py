"""What a group of texts teaches: the difference between them, and nothing else."""

import math
from itertools import cycle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import VOCABULARY, tiny_base, tiny_replica

from seedflood.training.objectives.batches import TextBatch, pad
from seedflood.training.objectives.example import Example, Rendered
from seedflood.training.objectives.language_modelling import measure_tokens
from seedflood.training.objectives.reward import (
    CLIP,
    KL_LOG_MAX,
    RATIO_MAX,
    SHOWN_MAX,
    EarlyBatch,
    Reward,
    Writer,
    WrittenBatch,
    advantages_of,
    clipped_ratio,
    divergence,
)
from seedflood.training.seedflood.rewarded import measure_rewarded

GROUP, TOKENS_MAX = 4, 3


def example_of(tokens, prompt, columns=None):
    return Example(tokens, source=Rendered(prompt, (), columns=columns or {}))


EXAMPLES = [example_of(tuple(range(2, 4 + k)), f"prompt {k}", {"k": k}) for k in range(3)]
rewards = st.lists(st.floats(0, 1), min_size=2, max_size=16)


def objective_of(score, temperature=1.0, kl=0.0):
    return Reward(score, Writer(lambda tokens: " ".join(map(str, tokens)), (), 0, GROUP, TOKENS_MAX, temperature), kl)


def has_small_first(prompt, text, columns):
    return float(int(text.split()[0]) < VOCABULARY // 2)


@given(rewards)
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order(found):
    advantages = advantages_of(found)
    assert math.fsum(advantages) == pytest.approx(0, abs=1e-9)
    if len(set(found)) > 1:
        assert advantages.index(max(advantages)) == found.index(max(found))


@given(st.floats(0, 1), st.integers(2, 16))
def test_a_group_without_a_difference_has_no_advantage_at_all(reward, count):
    assert advantages_of([reward] * count) == [0.0] * count


def written_by(objective, model, prompts, keys, **how):
    return objective.teach(model, prompts, objective.answer(model, prompts.examples, keys), **how)


def test_texts_of_groups_without_a_difference_are_left_out():
    turns = cycle([0.0, 1.0, 0.0])
    objective, model = objective_of(lambda prompt, text, columns: next(turns) * (columns["k"] != 1)), tiny_base().causal
    written = written_by(objective, model, objective.collate(EXAMPLES, 0), range(12))
    assert isinstance(written.batch, WrittenBatch)
    assert len(written.batch.lengths_B) == 2 * GROUP
    assert written.share == pytest.approx(2 / 3)
    assert int(written.batch.is_trained_BT.sum()) == 2 * GROUP * TOKENS_MAX, "the texts, and not their prompts"


@pytest.mark.parametrize("score", [lambda *_: 1.0, lambda *_: 0.0])
def test_without_any_difference_no_backward_pass_is_made_and_the_slopes_are_zero(score):
    def never(batch):
        raise AssertionError("nothing is to be learned")

    replica, objective = tiny_replica(estimate="gradient"), objective_of(score)
    slopes = measure_rewarded(replica, objective, objective.collate(EXAMPLES, 0), (1, 0), never)
    assert not slopes.slope_F.any()
    assert slopes.loss == 1 - score()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_slope_is_that_of_the_expected_reward(temperature):
    """Of all texts of one token, weighted by their probabilities, against the mean over many that were drawn."""
    replica = tiny_replica("llama", estimate="gradient")
    example = EXAMPLES[0]
    count = 4096
    writer = Writer(lambda tokens: " ".join(map(str, tokens)), (), 0, count, 1, temperature)
    objective = Reward(has_small_first, writer)

    a_PF = replica._a_F.detach().clone().unsqueeze(0).requires_grad_()
    replica.live.a_PF = a_PF
    hidden_D = replica.causal.hidden_states(torch.tensor([example.tokens]))[:, -1]
    share_V = torch.softmax(replica.causal.logits(hidden_D)[0] / temperature, 0)
    missing = 1 - share_V[: VOCABULARY // 2].sum()
    missing.backward()
    expected_F = a_PF.grad[0]
    replica._bind()

    def slopes_of(batch):
        return replica.measure_gradient(0, objective, batch)

    found = measure_rewarded(replica, objective, objective.collate([example], 0), (1, 0), slopes_of)
    assert found.loss == pytest.approx(missing.item(), abs=0.03)
    cosine = torch.nn.functional.cosine_similarity(found.slope_F, expected_F, dim=0)
    assert float(cosine) > 0.98
    assert float(found.slope_F.norm() / expected_F.norm()) == pytest.approx(1, abs=0.1)


def test_validation_draws_the_same_texts_every_time_and_counts_what_is_missing():
    objective, model = objective_of(has_small_first), tiny_base().causal
    first, again = (objective.measure(model, objective.collate(EXAMPLES, 0)) for _ in range(2))
    assert objective.figures(first) == objective.figures(again)
    figures = objective.figures(first)
    assert sorted(figures) == sorted(objective.names)
    lost = [measure_tokens(model, TextBatch(*pad([one.tokens], 0)))[0].mean() for one in EXAMPLES]
    assert figures["perplexity"] == pytest.approx(math.exp(sum(lost) / len(lost)), rel=1e-5)
    assert figures["loss"] == pytest.approx(1 - figures["reward"])
    assert first.minimised == "loss"
    short = objective.collate([example_of((2,), "one token")], 0)
    assert objective.figures(objective.measure(model, short))["perplexity"] == 1, "there is nothing to predict"


def test_few_rows_are_evaluated_by_several_texts_each_of_which_the_first_is_always_the_same():
    writer = Writer(lambda tokens: " ".join(map(str, tokens)), (), 0, 8, TOKENS_MAX, 1.0)
    objective, model = Reward(has_small_first, writer), tiny_base().causal
    assert [objective.draws(rows) for rows in (1, 16, 60, 128, 1000)] == [8, 8, 3, 1, 1]
    seen = []
    objective.score = lambda prompt, text, columns: (
        seen.append((prompt, text)) or has_small_first(prompt, text, columns)
    )
    few, many = (objective.measure_prompts(model, objective.collate(EXAMPLES, 0), draws) for draws in (1, 8))
    one, eight = seen[:3], seen[6:30]
    assert eight[::8] == one
    assert len({text for _, text in eight}) > 3
    mean = sum(has_small_first(*pair, {}) for pair in eight) / 24
    assert objective.figures(many)["reward"] == pytest.approx(mean)
    assert all(objective.figures(few)[name] == objective.figures(many)[name] for name in ("greedy", "perplexity"))


def test_the_best_and_the_worst_text_are_shown_and_neither_is_long():
    texts = {0: "a" * 999, 1: "b"}
    example = example_of((2, 3), "p" * 999)
    writer = Writer(lambda tokens: texts[tokens[0] % 2], (), 0, 16, 1, 1.0)
    objective = Reward(lambda prompt, text, columns: float(text == "b"), writer)
    written = written_by(objective, tiny_base().causal, objective.collate([example], 0), range(16))
    assert written.best == f"…{'p' * SHOWN_MAX} → b (reward 1)"
    assert written.worst == f"…{'p' * SHOWN_MAX} → {'a' * SHOWN_MAX}… (reward 0)"


def test_the_entropy_of_texts_is_estimated_by_what_was_drawn():
    model, example = tiny_base().causal, EXAMPLES[0]
    hidden_1D = model.hidden_states(torch.tensor([example.tokens]))[:, -1]
    share_V = torch.softmax(model.logits(hidden_1D)[0].to(torch.float64), 0)
    objective = Reward(lambda *_: 0.0, Writer(str, (), 0, 4096, 1, 1.0))
    written = written_by(objective, model, objective.collate([example], 0), range(4096))
    assert written.entropy == pytest.approx(float(-(share_V * share_V.log()).sum()), abs=0.05)


def test_each_origin_and_step_writes_texts_of_its_own(monkeypatch):
    replica, objective, seen = tiny_replica(estimate="gradient"), objective_of(has_small_first), []
    answer = objective.answer
    monkeypatch.setattr(objective, "answer", lambda *one: seen.append(one[2]) or answer(*one))
    for place in ((1, 0), (1, 1), (2, 0), (1, 0)):
        prompts = objective.collate(EXAMPLES, 0)
        measure_rewarded(
            replica, objective, prompts, place, lambda batch: replica.measure_gradient(0, objective, batch)
        )
    assert seen[0] == seen[3]
    assert len({key for keys in seen for key in keys}) == 3 * len(EXAMPLES) * GROUP


def slope_of(replica, objective, batch):
    a_PF = replica._a_F.detach().clone().unsqueeze(0).requires_grad_()
    replica.live.a_PF = a_PF
    objective.measure(replica.causal, batch).minimised_sums.sum().backward()
    return a_PF.grad


def early_and_new():
    """The same texts as early ones and as new ones, and who wrote them."""
    replica, objective = tiny_replica("llama", estimate="gradient"), objective_of(has_small_first)
    prompts = objective.collate(EXAMPLES, 0)
    early, new = (
        written_by(objective, replica.causal, prompts, range(12), is_early=one).batch for one in (True, False)
    )
    assert type(early) is EarlyBatch
    assert type(new) is WrittenBatch
    return replica, objective, early, new


def test_at_a_ratio_of_1_early_texts_have_exactly_the_slope_of_new_ones():
    replica, objective, early, new = early_and_new()
    losses_N = measure_tokens(replica.causal, new)[0].detach().flatten().to(torch.float64)
    marks_BT = early.is_trained_BT
    assert early.before_BT[marks_BT].numpy() == pytest.approx(losses_N.numpy(), abs=1e-5), "rounding apart"
    early.before_BT[marks_BT] = losses_N
    slope_PF = slope_of(replica, objective, early)
    assert slope_PF.any()
    assert torch.equal(slope_PF, slope_of(replica, objective, new))


def test_tokens_that_have_become_likely_enough_teach_nothing_more():
    """All were far less likely when they were written: only those of bad texts still count."""
    replica, objective, early, _ = early_and_new()
    early.before_BT[early.is_trained_BT] += 1.0
    bad = early.rows((early.advantage_B < 0).nonzero().squeeze(1))
    slope_PF = slope_of(replica, objective, early)
    torch.testing.assert_close(slope_PF, slope_of(replica, objective, bad))
    assert slope_PF.any()


def test_a_bad_token_that_has_become_far_likelier_is_not_the_whole_update():
    log_N, bad_N = torch.tensor([1.0, 2.0, 20.0, math.inf]), torch.full((4,), -0.5)
    assert (bad_N * clipped_ratio(log_N, bad_N)).tolist() == pytest.approx([-0.5 * math.e, 0, 0, 0])


@given(st.floats(-3, 3), st.floats(-1, 1))
def test_the_slope_along_a_log_probability_is_that_of_the_clipped_surrogate(log_ratio, advantage):
    """By autograd, from min(r A, clip(r) A), at least 3 A for bad ones, as it stands in the papers."""
    log_N = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    advantage_N = torch.tensor([advantage], dtype=torch.float64)
    ratio_N = log_N.exp()
    clipped_N = torch.minimum(ratio_N * advantage_N, ratio_N.clamp(1 - CLIP, 1 + CLIP) * advantage_N)
    torch.where(advantage_N < 0, torch.maximum(clipped_N, RATIO_MAX * advantage_N), clipped_N).sum().backward()
    found_N = advantage_N * clipped_ratio(log_N.detach(), advantage_N)
    torch.testing.assert_close(found_N, log_N.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("is_early", [False, True])
def test_each_token_pays_for_what_the_base_model_finds_of_it(is_early, temperature):
    """As in equation 4 of GRPO, from whole logits; and nothing is added where replica and base are the same."""
    replica, base = tiny_replica("llama", estimate="gradient"), tiny_base("llama").causal
    held, free = (objective_of(has_small_first, temperature, kl) for kl in (0.3, 0.0))
    prompts = held.collate(EXAMPLES, 0)
    batch = written_by(held, replica.causal, prompts, range(12), is_early=is_early, base=base).batch
    torch.testing.assert_close(slope_of(replica, held, batch), slope_of(replica, free, batch))
    batch.base_BT[batch.is_trained_BT] -= torch.linspace(-1, 1, int(batch.is_trained_BT.sum()))
    ratio_N = torch.linspace(-1, 1, int(batch.is_trained_BT.sum()), dtype=torch.float64).exp()
    costs = [objective.measure(replica.causal, batch).minimised_sums.item() for objective in (held, free)]
    assert costs[0] - costs[1] == pytest.approx(0.3 * float((ratio_N - 1 - ratio_N.log()).sum()), abs=1e-4)


@given(st.floats(-5, 40))
def test_no_token_is_pulled_to_the_base_model_harder_than_one_that_is_20_times_likelier_there(log_ratio):
    log_N = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    cost_N = divergence(log_N)
    cost_N.sum().backward()
    assert cost_N.item() >= -1e-12
    assert log_N.grad.item() == pytest.approx(min(math.exp(log_ratio), math.exp(KL_LOG_MAX)) - 1)


def test_what_is_held_to_the_base_model_moves_towards_it():
    """Along the slope against it the divergence of the texts from the base falls."""
    replica, base = tiny_replica("llama", estimate="gradient"), tiny_base("llama").causal
    held, free = (objective_of(has_small_first, kl=kl) for kl in (0.3, 0.0))
    replica._a_F += 0.05 * torch.randn(replica._a_F.shape, generator=torch.Generator().manual_seed(1))
    batch = written_by(held, replica.causal, held.collate(EXAMPLES, 0), range(12), base=base).batch
    slope_F = (slope_of(replica, held, batch) - slope_of(replica, free, batch))[0]

    def divergence(a_F):
        replica.live.a_PF = a_F.unsqueeze(0)
        costs = [objective.measure(replica.causal, batch).minimised_sums.item() for objective in (held, free)]
        return costs[0] - costs[1]

    assert slope_F.any()
    assert divergence(replica._a_F - 1e-3 * slope_F / slope_F.norm()) < divergence(replica._a_F)
