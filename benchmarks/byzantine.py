"""Liars beside honest hosts, by gradients: what they cost with the robust reading of a step, and what without.

SST-2 with 1,024 sentences, the 2.6 M OPT, 48 steps, sixteen rows a step of each host, in one process. The last hosts
lie. Each measures honestly, and sends something else (`LIES`). Accuracy and loss are those of all validation rows at
the end. Beside the reading of this project stand what others would do with the same updates (`RULES`): plain sums, the
trimmed mean of each coordinate (arXiv 1803.01498), and multi-Krum (arXiv 1703.02757), which know how many lie.

By reward there are four hosts of which one lies, and a model that adds two numbers in a third of the cases
(`benchmarks/reward`); what counts is how often its texts are right after 100 steps.

    python -m benchmarks byzantine

`end` computes one run, `right_after` one by reward.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.measure import Metric, make_metric, shared_folder
from benchmarks.reward import ORIGINS, Bench, Course
from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import LOSS_BYTES, Update, UpdateValue
from seedflood.protocol.seedflood.payload import Coefficients, encode_loss
from seedflood.training.seedflood.compression import UpdateDecoder, decode_coefficients, scaled
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.seedflood.reputation import Reputations
from seedflood.training.seedflood.schedule import ONE
from seedflood.training.seedflood.trainer import Round, Trainer
from seedflood.training.shards import equal_shares
from study.skew import deal

SEEDS = (1, 2, 3)
STEPS, REWARD_STEPS = 48, 100
SWARMS = ((4, 1), (8, 2), (16, 5))
"""Hosts, and how many of them lie."""

Numbers = NDArray[Any]
Parts = tuple[bytes, bytearray, bytearray]
"""Exponents, signs of the groups, rows with their signs."""


class Liar(Trainer):
    """Measures honestly, and sends something else. number: its own among the liars. published: what others sent of the
    step before."""

    def __init__(self, instead_of: Trainer, lie: "Lie", number: int, published: Sequence[Update]) -> None:
        vars(self).update(vars(instead_of))
        self._lie = lie
        self._published = published
        self.number = number

    def measure(self, origin: OriginId, step: int, count: int) -> Round:
        measured = super().measure(origin, step, count)
        sent = tuple(self._send(origin, at, one) for at, one in enumerate(measured.probes, step))
        return Round(step, sent, measured.loss, measured.seconds, is_finite=True, is_clipped=False)

    def _send(self, origin: OriginId, step: int, payload: UpdateValue) -> UpdateValue:
        assert isinstance(payload, bytes)
        assert isinstance(self.compression, Coefficients)
        return self._lie(self, origin, step, payload)

    @property
    def form(self) -> Coefficients:
        assert isinstance(self.compression, Coefficients)
        return self.compression

    def split(self, payload: bytes) -> Parts:
        form = self.form
        body = payload[form.exponents : -LOSS_BYTES]
        dense = form.rows_at - form.exponents
        return payload[: form.exponents], bytearray(body[:dense]), bytearray(body[dense:])

    def join(self, payload: bytes, parts: Parts) -> bytes:
        exponents, signs, rows = parts
        return exponents + bytes(signs) + bytes(rows) + payload[-LOSS_BYTES:]

    def largest(self) -> bytes:
        return bytes([self.form.exponent_max] * self.form.exponents)

    def signs_of_rows(self) -> list[slice]:
        """Where in the rows their signs stand."""
        size = self.form.sparse.row_bytes
        return [slice(at + 2, at + size) for at in range(0, self.form.sparse.kept * size, size)]

    def others(self, step: int) -> list[bytes]:
        return [one.value for one in self._published if one.step == step and isinstance(one.value, bytes)]


Lie = Callable[[Liar, OriginId, int, bytes], bytes]


def turned(liar: Liar, _origin: OriginId, _step: int, payload: bytes) -> bytes:
    exponents, signs, rows = liar.split(payload)
    signs = bytearray(byte ^ 255 for byte in signs)
    for place in liar.signs_of_rows():
        rows[place] = bytes(byte ^ 255 for byte in rows[place])
    return liar.join(payload, (exponents, signs, rows))


def turned_largest(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    _, signs, rows = liar.split(turned(liar, origin, step, payload))
    return liar.join(payload, (liar.largest(), signs, rows))


def noise(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    drawn = random.Random(f"{liar.run.seed} {origin} {step}")
    return liar.join(payload, _drawn(liar, payload, drawn))


def zeros(liar: Liar, _origin: OriginId, _step: int, payload: bytes) -> bytes:
    _, signs, rows = liar.split(payload)
    return liar.join(payload, (bytes(liar.form.exponents), signs, rows))


def copies(liar: Liar, _origin: OriginId, step: int, payload: bytes) -> bytes:
    """What another host sent of the step before, as if it were of this one."""
    others = liar.others(step - 1)
    return others[liar.number % len(others)] if others else payload


def colluding(liar: Liar, _origin: OriginId, _step: int, payload: bytes) -> bytes:
    """One direction for all liars and all steps."""
    return liar.join(payload, _drawn(liar, payload, random.Random(f"{liar.run.seed} together")))


def ascending(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    """Against the vote of what all hosts sent of the step before: nobody knows the gradient better."""
    others = liar.others(step - 1)
    if not others:
        return turned_largest(liar, origin, step, payload)
    dense = sum(liar.form.groups)
    vote_F = sum(numpy.sign(decode_coefficients(liar.form, one)[:dense]) for one in others)
    _, _, rows = liar.split(payload)
    signs = bytearray(numpy.packbits(vote_F <= 0, bitorder="little").tobytes())
    return liar.join(payload, (liar.largest(), signs, rows))


def rows_turned(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    """Honest, but for the embeddings."""
    exponents, signs, _ = liar.split(payload)
    _, _, rows = liar.split(turned(liar, origin, step, payload))
    return liar.join(payload, (exponents[:-1] + liar.largest()[-1:], signs, rows))


def main_groups(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    """Honest, but for the third of the groups that has the largest sizes: most signs agree with the others."""
    groups = liar.form.groups
    exponents, signs, rows = liar.split(payload)
    _, turned_signs, _ = liar.split(turned(liar, origin, step, payload))
    chosen = sorted(range(len(groups)), key=lambda group: -exponents[group])[: len(groups) // 3]
    is_chosen_F = numpy.repeat(numpy.isin(numpy.arange(len(groups)), chosen), groups)
    mask = numpy.packbits(is_chosen_F, bitorder="little").tobytes()
    mixed = bytearray(
        (one & ~here & 255) | (other & here) for one, other, here in zip(signs, turned_signs, mask, strict=True)
    )
    sizes = bytearray(exponents)
    for group in chosen:
        sizes[group] = liar.form.exponent_max
    return liar.join(payload, (bytes(sizes), mixed, rows))


def seldom(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    """Honest in nineteen of twenty steps."""
    return turned_largest(liar, origin, step, payload) if step % 20 == 7 else payload


def sleeper(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    """Honest until it is trusted."""
    return turned_largest(liar, origin, step, payload) if step >= STEPS // 2 else payload


def small_losses(_liar: Liar, _origin: OriginId, step: int, payload: bytes) -> bytes:
    """Honest slopes, and a loss that rises from nothing: it wants the run to go back."""
    return payload[:-LOSS_BYTES] + encode_loss(min(64 * step, (1 << 8 * LOSS_BYTES) - 1))


def all_right(liar: Liar, origin: OriginId, step: int, payload: bytes) -> bytes:
    """As large as can be, with texts that were all worth everything: nothing is missing."""
    _, signs, rows = liar.split(noise(liar, origin, step, payload))
    return liar.join(payload, (liar.largest(), signs, rows))[:-LOSS_BYTES] + encode_loss(0)


LIES: Mapping[str, Lie] = {
    lie.__name__: lie
    for lie in (
        turned,
        turned_largest,
        noise,
        zeros,
        copies,
        colluding,
        ascending,
        rows_turned,
        main_groups,
        seldom,
        sleeper,
        small_losses,
        all_right,
    )
}


LIES_OF_REWARD = ("turned_largest", "colluding", "all_right")


def _drawn(liar: Liar, payload: bytes, drawn: random.Random) -> Parts:
    _, signs, rows = liar.split(payload)
    for place in liar.signs_of_rows():
        rows[place] = drawn.randbytes(place.stop - place.start)
    return liar.largest(), bytearray(drawn.randbytes(len(signs))), rows


# What others would make of a step


def plain(sent_IF: Numbers, _liars: int) -> Numbers:
    sum_F: Numbers = sent_IF.sum(axis=0)
    return sum_F


def trimmed(sent_IF: Numbers, liars: int) -> Numbers:
    """The sum without the largest and the smallest numbers of each coordinate, scaled to all hosts."""
    cut = min(max(1, liars), (len(sent_IF) - 1) // 2)
    middle_IF = numpy.sort(sent_IF, axis=0)[cut : len(sent_IF) - cut]
    sum_F: Numbers = middle_IF.sum(axis=0) * len(sent_IF) // len(middle_IF)
    return sum_F


def krum(sent_IF: Numbers, liars: int) -> Numbers:
    """The sum of those that lie closest to their neighbours, scaled to all hosts."""
    hosts = len(sent_IF)
    values_IF = sent_IF.astype(numpy.float64)
    square_I = (values_IF**2).sum(axis=1)
    distance_II = square_I[:, None] + square_I[None] - 2 * values_IF @ values_IF.T
    near = max(1, hosts - liars - 2)
    score_I = numpy.sort(distance_II, axis=1)[:, 1 : near + 1].sum(axis=1)
    chosen = numpy.argsort(score_I, kind="stable")[: hosts - liars]
    sum_F: Numbers = sent_IF[chosen].sum(axis=0) * hosts // len(chosen)
    return sum_F


Rule = Callable[[Numbers, int], Numbers]
RULES: Mapping[str, Rule | None] = {"ours": None, "plain": plain, "trimmed": trimmed, "krum": krum}


class OtherDecoder(UpdateDecoder):
    """Reads steps by another rule."""

    def __init__(self, instead_of: UpdateDecoder, rule: Rule, liars: int) -> None:
        vars(self).update(vars(instead_of))
        self._rule = rule
        self._liars = liars

    def add_step(
        self, sum_E: Tensor, epoch: int, updates: Sequence[Update], reputations: Reputations, factor: int = ONE
    ) -> Reputations:
        assert isinstance(self._compression, Coefficients)
        if not updates:
            return reputations
        payloads = [one.value for one in updates if isinstance(one.value, bytes)]
        sent_IF = numpy.stack([decode_coefficients(self._compression, payload) for payload in payloads])
        sum_F = scaled(self._rule(sent_IF, self._liars), factor)
        sum_E[: len(sum_F)] += torch.from_numpy(sum_F)
        return reputations


def end(
    seed: int,
    *,
    clients: int,
    liars: int,
    lie: str = "",
    rule: str = "ours",
    folder: Path | None = None,
    model: str = "",
    skew: float | None = None,
    **settings: Any,
) -> tuple[float, float]:
    """Accuracy and loss at the end of a run. folder: rows. model: a folder. skew: how unevenly labels are spread over
    the hosts, as a Dirichlet concentration."""
    shared = shared_folder()
    keys = {"model": model or str(shared / "models" / "tiny-opt"), "task": "sst2", "train_examples": 1024}
    run = RunSettings.of(seed=seed, clients=clients, **(keys | {"estimate": "gradient", "steps": STEPS} | settings))
    with TemporaryDirectory(prefix="seedflood-byzantine-") as home:
        rows = folder or shared / "data" / "sst2"
        node = NodeSettings(data=str(rows), state=Path(home), threads=1)
        hosts = equal_shares(node, clients)
        if skew is not None:
            folders = deal(run.objective, rows, clients, seed, skew, Path(home))
            hosts = [node.model_copy(update={"data": str(one)}) for one in folders]
        evaluation = rehearsed(run, hosts, liars, lie, rule).evaluate()
    print(f"{rule} {lie or 'honest'} {liars}/{clients} seed {seed} {settings}: {evaluation.figures}", file=sys.stderr)
    return evaluation.figures["accuracy"], evaluation.loss


def rehearsed(run: RunSettings, hosts: Sequence[NodeSettings], liars: int, lie: str, rule: str) -> Rehearsal:
    """A run that is over, of which the last hosts lied."""
    rehearsal = Rehearsal(run, hosts)
    published: list[Update] = []
    for number in range(liars):
        place = len(hosts) - 1 - number
        rehearsal.trainers[place] = Liar(rehearsal.trainers[place], LIES[lie], number, published)
    if (other := RULES[rule]) is not None:
        aggregation = rehearsal.trainers[0].replica._aggregation
        aggregation._decoder = OtherDecoder(aggregation._decoder, other, liars)
    while rehearsal.step < run.steps:
        step = rehearsal.step
        turns = rehearsal.advance()
        published[:] = [
            Update(one.origin, at, value) for one in turns for at, value in enumerate(one.round.probes, step)
        ]
    return rehearsal


def right_after(
    bench: Bench, seed: int, *, liars: int = 1, lie: str = "", rule: str = "ours", **settings: Any
) -> float:
    """How often texts are right after a run by reward."""
    run = RunSettings.of(**bench.settings(seed, estimate="gradient"), **settings)
    with TemporaryDirectory(prefix="seedflood-byzantine-") as home:
        node = NodeSettings(data=str(bench.rows), state=Path(home), threads=1)
        trainer = rehearsed(run, equal_shares(node, ORIGINS), liars, lie, rule).trainers[0]
        trainer.complete()
        model = trainer.export(Path(home) / "model", "")
        course = bench.judge(Course(bench.kind, rule, seed, bench.steps, *[0.0] * 5), model)
    print(f"reward {rule} {lie or 'honest'} seed {seed}: {course.right:.3f} right", file=sys.stderr)
    return course.right


def run() -> dict[str, Metric]:
    return {**_by_gradients(), **_by_reward()}


def _by_reward() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-byzantine-") as home:
        bench = Bench("addition", Path(home), REWARD_STEPS)
        for rule in ("ours", "plain"):
            for lie in ("", *LIES_OF_REWARD):
                rights = [right_after(bench, seed, liars=bool(lie), lie=lie, rule=rule) for seed in SEEDS]
                metrics[f"byzantine.{rule}_reward_{lie or 'honest'}"] = make_metric(rights)
    return metrics


def _by_gradients() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}

    def measure(name: str, **settings: Any) -> None:
        ends = [end(seed, **settings) for seed in SEEDS]
        metrics[f"byzantine.{name}_accuracy"] = make_metric([accuracy for accuracy, _ in ends])
        metrics[f"byzantine.{name}_loss"] = make_metric([loss for _, loss in ends])

    for rule in ("ours", "plain"):
        for skew in (1.0, 0.1):
            measure(f"{rule}_skew_{skew:g}", clients=8, liars=0, rule=rule, skew=skew)
    for clients, liars in SWARMS:
        for rule in RULES:
            measure(f"{rule}_0_of_{clients}", clients=clients, liars=0, rule=rule)
        for lie in LIES:
            measure(f"ours_{lie}_{liars}_of_{clients}", clients=clients, liars=liars, lie=lie)
    for rule in ("plain", "trimmed", "krum"):
        for lie in ("turned_largest", "turned", "colluding", "ascending"):
            measure(f"{rule}_{lie}_1_of_4", clients=4, liars=1, lie=lie, rule=rule)
    return metrics
