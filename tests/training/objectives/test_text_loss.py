import pytest
import torch
from reference import TEXTS, tiny_model
from torch.nn import functional

from seedflood.training.causal import CausalModel
from seedflood.training.objectives import language_modelling
from seedflood.training.objectives.batches import TextBatch

TOKENS_BT = torch.randint(48, (3, 11), generator=torch.Generator().manual_seed(1))
LENGTHS_B = torch.tensor([11, 4, 9])


def scored(module):
    """Loss, accuracy and the gradient of the loss."""
    module.requires_grad_(True).zero_grad()
    score = TEXTS.measure(CausalModel(module), TextBatch(TOKENS_BT, LENGTHS_B))
    score.minimised_sums.sum().backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    return float(score.minimised_sums.detach()), int(score.sums["accuracy"]), gradient


def test_the_loss_of_a_token_is_its_cross_entropy():
    module = tiny_model("opt")
    with torch.no_grad():
        logits = module(input_ids=TOKENS_BT).logits
    expected = sum(
        float(functional.cross_entropy(logits[row, : length - 1], TOKENS_BT[row, 1:length], reduction="sum"))
        for row, length in enumerate(LENGTHS_B.tolist())
    )
    assert scored(module)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("positions", [1, 3, 9])
def test_logits_in_pieces_give_the_same_loss_and_gradient(monkeypatch, positions):
    whole = scored(tiny_model("opt"))
    monkeypatch.setattr(language_modelling, "LOGIT_ELEMENTS_MAX", 3 * 48 * positions)
    pieces = scored(tiny_model("opt"))
    assert pieces[:2] == (pytest.approx(whole[0], rel=1e-6), whole[1])
    torch.testing.assert_close(pieces[2], whole[2], rtol=1e-4, atol=1e-6)


def test_logits_that_fit_are_not_computed_twice(monkeypatch):
    calls = []
    score_piece = language_modelling._score_piece
    monkeypatch.setattr(language_modelling, "_score_piece", lambda *given: calls.append(1) or score_piece(*given))
    scored(tiny_model("opt"))
    assert len(calls) == 1
    monkeypatch.setattr(language_modelling, "LOGIT_ELEMENTS_MAX", 3 * 48 * 5)
    scored(tiny_model("opt"))
    assert len(calls) == 1 + 2 * 2
