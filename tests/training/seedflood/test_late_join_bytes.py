"""What a late comer pulls under gradients and Adam, at the shapes of OPT-125M: counted in frames as they are sent."""

import numpy
import torch
from transformers import OPTConfig, OPTForCausalLM

from seedflood.config import RunSettings
from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import Update, Updates, make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.training.models import distinct_parameters
from seedflood.training.seedflood.aggregation import make_aggregation
from seedflood.training.seedflood.compression import compression_of, quantise
from seedflood.training.seedflood.control import Past, past_size
from seedflood.training.seedflood.rates import default_learning_rate
from seedflood.training.seedflood.subspace import Slot, Subspace
from seedflood.transport import codec
from seedflood.transport.answer import cut

ORIGINS = (1, 2, 3, 4)
STEPS = 1000


def test_a_late_comer_to_a_run_of_opt_125m_pulls_less_than_a_hundredth_of_its_bytes():
    with torch.device("meta"):
        model = OPTForCausalLM(OPTConfig())
    words = model.get_input_embeddings().weight
    slots = [Slot(name, tuple(one.shape), one is words) for name, one in distinct_parameters(model)]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert 125e6 < parameters < 126e6
    run = RunSettings.of(estimate="gradient", clients=len(ORIGINS), steps=STEPS)
    settings = run.seedflood
    assert (settings.rank, settings.refresh_period) == (16, 100)
    subspace = Subspace(slots, run_seed=run.seed, rank=settings.rank, left=past_size(run.clients), by_rows=True)
    compression = compression_of(settings, subspace)
    rng = numpy.random.default_rng(1)
    updates = [
        Update(origin, step, quantise(compression, rng.normal(size=subspace.size) * 10.0 ** rng.integers(-3, 2))[0])
        for step in range(settings.refresh_period)
        for origin in ORIGINS
    ]
    bundles = [make_bundle(one.origin, one.step, (one.value,), signature=rng.bytes(64)) for one in updates]
    rate = default_learning_rate(settings, [slot.shape for slot in slots], by_reward=False)
    aggregation = make_aggregation(run, subspace, compression, rate, None)
    sum_E = aggregation.changed(0, subspace.zeros(), updates, Past())
    closed = ClosedEpoch(0, tuple(Held(origin, settings.refresh_period) for origin in ORIGINS), subspace.pack(sum_E))
    worst = STEPS // settings.refresh_period * frames(closed) + frames(Updates(tuple(bundles)))
    print(f"{frames(Updates(tuple(bundles[:1])))} B a bundle, {frames(closed)} B a sum, {worst} B in all")
    assert worst < 0.01 * 4 * parameters
    assert len(closed.coefficients) < 8 * subspace.size


def frames(item):
    """Bytes of an answer with this in it, as parts of a pull."""
    return sum(len(frame) for part in cut([item]) for frame in codec.encode(codec.PullPart(1, part)))
