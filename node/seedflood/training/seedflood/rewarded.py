"""The gradient of what is missing of the reward: texts first, then their slopes, both by the replica as it stands.

With `ahead = D` a host writes the texts of the next D rounds while it waits for others, by the replica as it stands
then, and so hides the network behind the writing. Only texts are old. Slopes are of the replica to which they are
added, so this costs little, where late gradients (`delay`) cost much. What was written and not sent yet is the host's
own: a crash loses it, and nobody notices.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.reward import Answer, PromptBatch, Reward, Written
from seedflood.training.randomness import derive_key
from seedflood.training.seedflood.gradient import Gradient
from seedflood.training.seedflood.replica import Replica

TEACHING_TEXTS, CLOSE_TEXTS = "texts_that_differ_in_reward", "texts_close_to_others"
"""The figures by which an auditor knows how much it may be that another host wrote other texts."""


class Texts(NamedTuple):
    """Of a step. rounds: so many before its own they were written. halvings: of the rate, then. seconds: that writing
    and scoring took."""

    written: Written
    rounds: int
    halvings: int
    seconds: float


def write_texts(replica: Replica, objective: Reward, prompts: Batch, place: tuple[int, int], rounds: int = 0) -> Texts:
    """Writes and scores, by the replica as it stands, each rank of the host after some of the prompts. place: origin
    and step.

    The noise of each text follows from run seed, origin, step and its number, so nobody chooses its texts.
    """
    assert isinstance(prompts, PromptBatch), "the texts are written here"
    begun = time.perf_counter()
    examples, group, causal = prompts.examples, objective.writer.group, replica.causal

    def answer(numbers: Sequence[int]) -> list[list[Answer]]:
        """Of the prompts with these numbers, a group for each."""
        texts = [number * group + text for number in numbers for text in range(group)]
        keys = [derive_key("text", replica.subspace.run_seed, *place, text) for text in texts]
        answers = objective.answer(causal, [examples[number] for number in numbers], keys)
        return [answers[first : first + group] for first in range(0, len(answers), group)]

    groups = replica.ranks.deal(range(len(examples)), answer)
    answers = [one for written_after in groups for one in written_after]
    written = objective.teach(causal, prompts, answers, is_early=rounds > 0, base=replica.reference)
    return Texts(written, rounds, replica.halvings, time.perf_counter() - begun)


def measure_rewarded(
    replica: Replica,
    objective: Reward,
    prompts: Batch,
    place: tuple[int, int],
    slopes_of: Callable[[Batch], Gradient],
    early: Texts | None = None,
) -> Gradient:
    """The slopes along all coordinates of 1 - mean reward of the texts of a step, which is sent as the loss. place:
    origin and step. slopes_of: the slopes of what is minimised, as a mean over texts. early: what was written before.

    Without a difference within any group the slopes are zero, and nothing is computed for them.
    """
    replica.open_epoch(replica.epoch_of(place[1]))
    texts = early or write_texts(replica, objective, prompts, place)
    written = texts.written
    batch, share = written.batch, written.share
    figures = {TEACHING_TEXTS: share, CLOSE_TEXTS: written.close, "nats_per_token": written.entropy}
    if texts.rounds:
        figures["texts_rounds_old"] = texts.rounds
    slope_F = torch.zeros(replica.subspace.size) if batch is None else slopes_of(batch).slope_F * share
    return Gradient(slope_F, 1 - written.reward, figures, {"best_text": written.best, "worst_text": written.worst})
