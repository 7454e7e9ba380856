import pytest
import torch
from reference import FAMILIES, LABELS, TEXTS, tiny_batch, tiny_replica

from seedflood.training.seedflood.layers import LiveProduct

pytestmark = pytest.mark.usefixtures("drawn_once")

BEHIND_THE_ATTENTION = {
    "opt": {"q_proj", "out_proj", "fc1", "fc2"},
    "gpt2": {"attn.c_proj", "mlp.c_fc", "mlp.c_proj"},
    "llama": {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    "qwen2": {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    "mistral": {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    "gemma3": {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
}


def skippable(replica):
    return [name for name, module in replica.model.named_modules() if getattr(module, "is_skippable", False)]


@pytest.mark.parametrize("family", FAMILIES)
def test_all_products_of_the_last_layer_but_keys_and_values_may_skip_positions(family):
    found = skippable(tiny_replica(family))
    assert all(".1." in name for name in found), "the last of two layers"
    assert {name for name in BEHIND_THE_ATTENTION[family] if any(one.endswith(name) for one in found)} == (
        BEHIND_THE_ATTENTION[family]
    )
    assert len(found) == len(BEHIND_THE_ATTENTION[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_skipped_changes_no_loss(family):
    replica, batch = tiny_replica(family), tiny_batch()
    fast = replica.measure(0, 5, LABELS, batch)
    modules = [module for module in replica.model.modules() if isinstance(module, LiveProduct)]
    for module in modules:
        module.is_skippable = False
    slow = replica.measure(0, 5, LABELS, batch)
    assert fast.loss == pytest.approx(slow.loss, rel=1e-6)
    assert fast.value[1] == pytest.approx(slow.value[1], rel=1e-3, abs=1e-4 * 2**20)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_product_that_other_positions_need_would_have_been_found_out(family):
    """Marking keys and values by hand changes the loss: the test above can fail."""
    replica, batch = tiny_replica(family), tiny_batch()
    before = replica.measure(0, 5, LABELS, batch).loss
    for name, module in replica.model.named_modules():
        if isinstance(module, LiveProduct) and ".1." in name:
            module.is_skippable = True
    assert abs(replica.measure(0, 5, LABELS, batch).loss - before) > 1e-4


def test_language_modelling_skips_nothing():
    replica = tiny_replica()
    assert tiny_batch(labelled=False).answer_positions() is None
    measured = replica.measure(0, 5, TEXTS, tiny_batch(labelled=False))
    assert measured.is_finite


def test_an_answer_stands_at_the_last_token_of_its_row():
    batch = tiny_batch()
    width = batch.tokens_BT.shape[1]
    expected = [row * width + length - 1 for row, length in enumerate(batch.lengths_B.tolist())]
    assert torch.equal(batch.answer_positions(), torch.tensor(expected))
