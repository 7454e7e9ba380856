"""The gradient of what is missing of the reward: texts first, then their slopes, both by the replica as it stands."""

from collections.abc import Callable

import torch

from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.reward import PromptBatch, Reward
from seedflood.training.randomness import derive_key
from seedflood.training.seedflood.gradient import Gradient
from seedflood.training.seedflood.replica import Replica


def measure_rewarded(
    replica: Replica,
    objective: Reward,
    prompts: Batch,
    place: tuple[int, int],
    slopes_of: Callable[[Batch], Gradient],
) -> Gradient:
    """The slopes along all coordinates of 1 - mean reward of the texts of a step, which is told as the loss. place:
    origin and step. slopes_of: the slopes of what is minimised, as a mean over texts.

    The noise of each text follows from run seed, origin, step and its number, so nobody chooses its texts. Without a
    difference within any group the slopes are zero, and nothing is computed for them.
    """
    assert isinstance(prompts, PromptBatch), "the texts are written here"
    replica.open_epoch(replica.epoch_of(place[1]))
    count = len(prompts.examples) * objective.writer.group
    keys = [derive_key("text", replica.subspace.run_seed, *place, text) for text in range(count)]
    written = objective.write(replica.causal, prompts, keys)
    loss, figures = 1 - written.reward, {"texts_that_differ_in_reward": written.share}
    if written.batch is None:
        return Gradient(torch.zeros(replica.subspace.size), loss, figures)
    return Gradient(slopes_of(written.batch).slope_F * written.share, loss, figures)
