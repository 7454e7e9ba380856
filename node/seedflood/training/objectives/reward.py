"""Reward: the model writes several texts after each prompt, a score says what each is worth, and it learns from those
that are worth more than the others of their group.

What is minimised is 1 - mean reward, and its slope is estimated without bias. Nothing is divided by the deviation
within a group or by the length of a text: then the slope would belong to no loss, and `control` could not be used.

How early texts and `kl` count: docs/explanation/learning.md.

Shapes: B texts, T tokens, N tokens that were written, P variants.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seedflood.training.causal import CausalModel
from seedflood.training.devices import to_float64
from seedflood.training.objectives.batches import Batch, MarkedBatch, TextBatch, pad
from seedflood.training.objectives.example import Example
from seedflood.training.objectives.language_modelling import PERPLEXITY_LOG_MAX, measure_tokens
from seedflood.training.objectives.objective import Objective, Score
from seedflood.training.objectives.writing import Text, write
from seedflood.training.randomness import derive_key, uniform

CLIP, RATIO_MAX = 0.2, 3.0
"""How far an early text is followed: until it is so much likelier (e above), or so much less likely if it was bad; and
until a bad one is so many times likelier: one token that is a thousand times likelier would be the whole update."""

DRAWN_MIN = 128
"""Texts that are drawn for an evaluation, if a group after each row makes so many: 19 means of 20 are within 0.09."""

KL_LOG_MAX = 3.0
"""Of b: beyond it the cost grows as a line, for one token alone shall not be the whole slope."""

SHOWN_MAX = 160
"""Characters of a prompt, and of a text after it, that people are shown."""


@dataclass(frozen=True, slots=True)
class PromptBatch(Batch):
    """Prompts that nothing was written for yet. examples: with the columns of their rows, for the score."""

    examples: tuple[Example, ...]

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, tensor) for name, tensor in Batch._tensors(self) if name != "examples")


@dataclass(frozen=True, slots=True)
class WrittenBatch(MarkedBatch):
    """Prompts, each with a text after it, which is marked. advantage_B: of the text, float64. base_BT: the loss of each
    of its tokens with the base model, float64; 0 without `kl`."""

    advantage_B: Tensor
    base_BT: Tensor


@dataclass(frozen=True, slots=True)
class EarlyBatch(WrittenBatch):
    """Texts that an earlier replica has written. before_BT: the loss of each of their tokens then, float64."""

    before_BT: Tensor


class Answer(NamedTuple):
    """A text after a prompt, as it was written and as it is read, and what it is worth."""

    written: Text
    text: str
    reward: float

    def after(self, prompt: str) -> str:
        """For people: the end of the prompt, the beginning of the text, and the reward."""
        begin, end = "…" * (len(prompt) > SHOWN_MAX), "…" * (len(self.text) > SHOWN_MAX)
        return f"{begin}{prompt[-SHOWN_MAX:]} → {self.text[:SHOWN_MAX]}{end} (reward {self.reward:g})"


class Written(NamedTuple):
    """What was written at a step. batch: the texts of groups with a difference; None if there is none. share: of all
    texts that are in it. reward: the mean of all texts. entropy: nats per token, estimated by what was drawn. close:
    the share of the texts that might be others in half precision. best, worst: two of the texts."""

    batch: WrittenBatch | None
    share: float
    reward: float
    entropy: float
    close: float
    best: str
    worst: str


@dataclass(frozen=True, slots=True)
class Writer:
    """How texts are written. decode: from tokens to text. ends: tokens that end one."""

    decode: Callable[[Sequence[int]], str]
    ends: Collection[int]
    pad_token: int
    group: int
    tokens_max: int
    temperature: float


class Reward(Objective):
    """score: (prompt, text, columns of the row) -> reward in 0..1. kl: what a nat of divergence from the base costs, in
    rewards."""

    names: tuple[str, ...] = ("reward", "greedy", "loss", "perplexity")

    def __init__(self, score: Callable[[str, str, Mapping[str, Any]], float], writer: Writer, kl: float = 0.0) -> None:
        self.score = score
        self.writer = writer
        self.kl = kl

    def collate(self, examples: Sequence[Example], pad_token: int) -> PromptBatch:
        return PromptBatch(*pad([example.tokens for example in examples], pad_token), tuple(examples))

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        """Of texts: what teaches, over texts. Of prompts: see `measure_prompts`."""
        if isinstance(batch, WrittenBatch):
            loss_PN, _ = measure_tokens(model, batch, variants, self.writer.temperature)
            loss_PN, is_target_BT = to_float64(loss_PN), batch.is_target_BT().to(batch.advantage_B.device)
            weight_N = batch.advantage_B.repeat_interleave(is_target_BT.sum(dim=1))
            if isinstance(batch, EarlyBatch):
                now_N, before_N = loss_PN.detach().flatten(), batch.before_BT[:, 1:][is_target_BT]
                weight_N = weight_N * clipped_ratio(before_N - now_N, weight_N)
            cost_PN = loss_PN * weight_N.view(variants, -1)
            if self.kl:
                base_N = batch.base_BT[:, 1:][is_target_BT]
                cost_PN = cost_PN + self.kl * divergence(loss_PN - base_N.view(variants, -1))
            loss_P = cost_PN.sum(dim=1)
            return Score({"loss": loss_P}, torch.full_like(loss_P, self.count(batch) // variants).long(), "loss")
        return self.measure_prompts(model, batch)

    def draws(self, rows: int) -> int:
        """How many texts are drawn after each of so many rows for an evaluation."""
        return max(1, min(self.writer.group, -(-DRAWN_MIN // max(1, rows))))

    def measure_prompts(self, model: CausalModel, batch: Batch, draws: int = 1) -> Score:
        """For people: `reward` of so many texts each, by noise that is the same whenever the prompt is asked, and of
        one by the most likely tokens, `greedy`; and what the tokens of the prompts lose, each prompt counting the same.
        Nobody rewards these, so they show what the model forgets."""
        assert isinstance(batch, PromptBatch), "rewards are for what was written after prompts"
        numbers = [(), *((number,) for number in range(1, draws))]
        keys = [derive_key("text", example.source.text, *number) for example in batch.examples for number in numbers]
        drawn, likely = self.answer(model, batch.examples, keys), self.answer(model, batch.examples)
        reward, greedy = (math.fsum(answer.reward for answer in answers) for answers in (drawn, likely))
        reward /= draws
        nats_1N, _ = measure_tokens(model, TextBatch(batch.tokens_BT, batch.lengths_B))
        nats_1N = to_float64(nats_1N)
        count_B = batch.lengths_B.to(nats_1N.device) - 1
        nats = float((nats_1N[0] / count_B.repeat_interleave(count_B)).sum())
        sums = {"reward": reward, "greedy": greedy, "loss": len(batch.examples) - reward, "nats": nats}
        means_P = {name: torch.tensor([value], dtype=torch.float64) for name, value in sums.items()}
        return Score(means_P, torch.tensor([len(batch.examples)]), "loss")

    def figures(self, score: Score) -> dict[str, float]:
        """The means, and the perplexity of the prompts."""
        means = score.means()
        perplexity = math.exp(min(means.pop("nats"), PERPLEXITY_LOG_MAX))
        return {**means, "perplexity": perplexity}

    def teach(
        self,
        model: CausalModel,
        batch: PromptBatch,
        answers: Sequence[Answer],
        *,
        is_early: bool = False,
        base: CausalModel | None = None,
    ) -> Written:
        """What is learned from a group of texts for each prompt. answers: by this model. is_early: another replica
        learns. base: the model before training, for `kl`."""
        assert (base is not None) == (self.kl > 0), "texts are held to a base model, or to none"
        group = len(answers) // len(batch.examples)
        rewards = [answer.reward for answer in answers]
        advantages = [one for k in range(0, len(rewards), group) for one in advantages_of(rewards[k : k + group])]
        kept = [k for k in range(len(rewards)) if any(advantages[k // group * group :][:group])]
        losses = [loss for answer in answers for loss in answer.written.losses]
        order = sorted(range(len(rewards)), key=rewards.__getitem__)
        best, worst = (answers[k].after(batch.examples[k // group].source.text) for k in (order[-1], order[0]))
        means = math.fsum(rewards) / len(rewards), math.fsum(losses) / len(losses)
        close = sum(answer.written.is_close for answer in answers) / len(answers)
        facts = (len(kept) / len(rewards), *means, close, best, worst)
        if not kept:
            return Written(None, *facts)
        prompts = [batch.examples[k // group].tokens for k in kept]
        pairs = [(prompt, answers[k].written) for prompt, k in zip(prompts, kept, strict=True)]
        tokens_BT, lengths_B = pad([(*prompt, *text.tokens) for prompt, text in pairs], self.writer.pad_token)
        marks_BT, _ = pad([[0] * len(prompt) + [1] * len(text.tokens) for prompt, text in pairs], 0)
        advantage_B = torch.tensor([advantages[k] for k in kept], dtype=torch.float64)
        texts = MarkedBatch(tokens_BT, lengths_B, marks_BT.to(torch.bool))
        parts = tokens_BT, lengths_B, texts.is_trained_BT, advantage_B, self._base_losses(model, base, texts)
        if not is_early:
            return Written(WrittenBatch(*parts), *facts)
        losses_N = torch.tensor([loss for _, text in pairs for loss in text.losses], dtype=torch.float64)
        return Written(EarlyBatch(*parts, _placed(losses_N, texts)), *facts)

    @torch.no_grad()
    def _base_losses(self, model: CausalModel, base: CausalModel | None, texts: MarkedBatch) -> Tensor:
        """A group at a time. model: stops this when it is stopped."""
        if base is None:
            return torch.zeros(texts.tokens_BT.shape, dtype=torch.float64)
        losses = []
        for piece in texts.parts(self.writer.group):
            model.check_going()
            losses.append(measure_tokens(base, piece.to(base.device), temperature=self.writer.temperature)[0][0])
        return _placed(torch.cat(losses), texts)

    def answer(self, model: CausalModel, examples: Sequence[Example], keys: Sequence[int] = ()) -> list[Answer]:
        """Of each prompt in turn. keys: of the noise, one for each text, as many for each prompt; none: one text each,
        of the most likely tokens."""
        writer = self.writer
        prompts = [example.tokens for example in examples]
        noise_BN = uniform(keys, writer.tokens_max) if keys else None
        ends = model.ends.union(writer.ends)
        texts = write(model, prompts, noise_BN, ends, tokens_max=writer.tokens_max, temperature=writer.temperature)
        group, answers = len(texts) // len(prompts), []
        for k, written in enumerate(texts):
            model.check_going()  # a score may take seconds
            prompt, text = examples[k // group].source, writer.decode(written.tokens)
            answers.append(Answer(written, text, self.score(prompt.text, text, prompt.columns)))
        return answers


def _placed(loss_N: Tensor, texts: MarkedBatch) -> Tensor:
    """Losses of the marked tokens, each at its place: (B, T), float64, on the CPU."""
    loss_BT = torch.zeros(texts.tokens_BT.shape, dtype=torch.float64)
    loss_BT[texts.is_trained_BT] = loss_N.cpu().to(torch.float64)
    return loss_BT


def divergence(log_PN: Tensor) -> Tensor:
    """What tokens pay by `kl`, b - 1 - log b, by the logarithms of b: the probability in the base model to that
    here."""
    near_PN = log_PN.clamp(max=KL_LOG_MAX)
    return near_PN.exp() * (1 + log_PN - near_PN) - 1 - log_PN


def clipped_ratio(log_ratio_N: Tensor, advantage_N: Tensor) -> Tensor:
    """What the slope of a token's log-probability is multiplied with, beside its advantage: the ratio, and 0 where it
    is clipped."""
    ratio_N = log_ratio_N.exp()
    is_far_N = torch.where(advantage_N > 0, ratio_N > 1 + CLIP, (ratio_N < 1 - CLIP) | (ratio_N > RATIO_MAX))
    return ratio_N.masked_fill(is_far_N, 0.0)


def advantages_of(rewards: Sequence[float]) -> list[float]:
    """By how much each reward of a group is above the mean of the others; exactly 0 if all are equal."""
    if len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    total, others = math.fsum(rewards), len(rewards) - 1
    return [reward - (total - reward) / others for reward in rewards]
