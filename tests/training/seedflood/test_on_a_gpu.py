"""What tests with devices that are not there cannot tell: weights that are offloaded from a real GPU."""

import importlib.util

import pytest
import torch
from families import family_model
from reference import TEXTS, some_updates, tiny_batch, tiny_settings, tiny_tokenizer

from seedflood.training.models import prepare_model
from seedflood.training.seedflood import placing
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.gpu
FAMILIES = ("OPT", "GPT-2", "Gemma 3", "Llama")


def replica_of(family, dtype, kind, room):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "room_for_weights", lambda _device: room)
        patch.setattr(placing, "_needed", lambda *_: 0)
        base = prepare_model(family_model(family), tiny_tokenizer(), device="cuda", dtype=dtype, room=0)
        return Replica(base, tiny_settings(refresh_period=10), quantize=kind)


@pytest.mark.parametrize("kind", [None, "int8", "nf4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_offloaded_weights_compute_and_fold_what_those_on_the_gpu_do(family, dtype, kind):
    if kind == "nf4" and importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("no nf4")
    whole, part, none = (replica_of(family, dtype, kind, room) for room in (1 << 40, 4000, 0))
    assert 0 == whole.offloaded_bytes < part.offloaded_bytes < none.offloaded_bytes
    batch = tiny_batch(labelled=False)
    for one in (whole, part, none):
        one.apply(some_updates(40, steps=20, scalar_max=1 << 20))
        one.open_epoch(2)
    expected = whole.measure_gradient(20, TEXTS, batch)
    for one in (part, none):
        assert one.digest() == whole.digest()
        found = one.measure_gradient(20, TEXTS, batch)
        error = 1e-4 if dtype == "float32" else 0.05
        assert float((found.slope_F - expected.slope_F).norm()) < error * float(expected.slope_F.norm())
        if kind is None:
            for name, weight in whole.weights().items():
                torch.testing.assert_close(one.weights()[name], weight, rtol=1e-5, atol=1e-6)
