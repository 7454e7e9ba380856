"""Who is found by audits, and who is accused wrongly: what a real model sends, and the count that daemons go by.

`measured` lets origins in float32 and in bfloat16 tell what they measure at the same replica, and measures it again as
an auditor does (`Trainer.measure_again`), with RUNS run seeds. Honest hosts are judged by what they sent in its order,
since errors may come in a row. Liars tell, in the order of the first run and as often as it takes, what each kind of
lie makes of it: TRIALS times each, and the share of trials in which they are named within 20 audits is printed, with
the median number of audits.
"""

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, pstdev
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy

from benchmarks.measure import Metric, make_metric
from seedflood.config import NodeSettings, RunSettings
from seedflood.host.seedflood.audit import Audits
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Update, UpdateValue
from seedflood.protocol.seedflood.payload import Coefficients, Compression
from seedflood.training.seedflood.compression import decode_coefficients, quantise
from seedflood.training.seedflood.trainer import Trainer

RUNS = 12
ORIGINS = 4
STEPS = 60
TRIALS = 60
WITHIN = 20
AUDITS_MAX = 200
SHARE = 0.03
DTYPES = ("float32", "bfloat16")
ESTIMATES: Mapping[str, Mapping[str, Any]] = {
    "two-sided": {"estimate": "two-sided"},
    "gradient": {"estimate": "gradient"},
    "gradient_local_4": {"estimate": "gradient", "rank": 4, "local_steps": 4},
}


class Audited(NamedTuple):
    """What one origin measured at one step: sent by a host of each dtype, and measured again by an auditor. other:
    what another origin sent of the step."""

    value: dict[str, UpdateValue]
    again: UpdateValue
    other: UpdateValue


Forge = Callable[[Audited, str, random.Random], UpdateValue]


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for estimate, settings in ESTIMATES.items():
        pools = [measured(settings, seed)[1] for seed in range(1, RUNS)]
        compression, pool, seconds = measured(settings, 0)
        cost = [SHARE * again / own for own, again in seconds]
        metrics[f"audits.{estimate}_cost_at_{SHARE:g}"] = make_metric([median(cost)], 0.05)
        for dtype in DTYPES:
            name = f"audits.{estimate}_{dtype}"
            judged = Judged(compression, pool, dtype)
            accused = sum(Judged(compression, one, dtype).accusations() for one in [pool, *pools])
            metrics[f"{name}_accused_of_{RUNS * (ORIGINS - 1)}"] = make_metric([float(accused)], 0)
            for kind, (forge, part) in forgers(compression, pool).items():
                taken = judged.audits_until_named(forge, part)
                share = sum(one <= WITHIN for one in taken) / TRIALS
                metrics[f"{name}_{kind}_named_within_{WITHIN}"] = make_metric([share])
                metrics[f"{name}_{kind}_audits"] = make_metric([float(one) for one in taken])
                print(f"{name}, {kind}: {share:.3f} within {WITHIN}; median {median(taken):g}", file=sys.stderr)
    return metrics


def measured(settings: Mapping[str, Any], seed: int) -> tuple[Compression, list[Audited], list[tuple[float, float]]]:
    """(the form, what was measured, seconds of (a round of one's own, one in the place of another))."""
    run = RunSettings.of(model="embedded", task="embedded", clients=ORIGINS, steps=400, seed=seed, **settings)
    count = run.seedflood.local_steps
    pool: list[Audited] = []
    seconds: list[tuple[float, float]] = []
    with TemporaryDirectory(prefix="seedflood-audits-") as folder:
        trainers = {dtype: origins(run, Path(folder), dtype) for dtype in DTYPES}
        exact = trainers["float32"]
        for step in range(0, STEPS, count):
            sent = {d: [t.measure(OriginId(o), step, count) for o, t in enumerate(trainers[d], 1)] for d in DTYPES}
            for origin, trainer in enumerate(exact, 1):
                begun = time.perf_counter()
                again = exact[0].measure_again(OriginId(origin), trainer.rows, step, count)
                spent = time.perf_counter() - begun
                for k in range(count):
                    ours = {d: sent[d][origin - 1].probes[k] for d in DTYPES}
                    other = sent["float32"][origin % ORIGINS].probes[k]
                    pool.append(Audited(ours, again.probes[k], other))
                if trainer is not exact[0]:
                    seconds.append((sent["float32"][0].seconds, spent))
            rounds = enumerate(sent["float32"], 1)
            updates = [Update(OriginId(o), step + k, one.probes[k]) for o, one in rounds for k in range(count)]
            for dtype in DTYPES:
                trainers[dtype][0].replica.apply(updates)
        return exact[0].compression, pool, seconds


def origins(run: RunSettings, folder: Path, dtype: str) -> list[Trainer]:
    """Of all origins, on one replica."""
    nodes = [
        NodeSettings(state=folder, device="cpu", dtype=dtype, shard=f"{k + 1}/{ORIGINS}", audit=1.0)
        for k in range(ORIGINS)
    ]
    first = Trainer(run, nodes[0])
    return [first, *(first.beside(node) for node in nodes[1:])]


class Judged:
    """What origins of one dtype sent, or would have sent, as an auditor counts it: each update as one audit."""

    def __init__(self, compression: Compression, pool: Sequence[Audited], dtype: str) -> None:
        self._compression = compression
        self._pool = pool
        self._dtype = dtype

    def accusations(self) -> int:
        """How many origins but the auditor are named by what they sent, honestly, in the order of their steps."""
        audits = Audits(self._compression)
        for k, one in enumerate(self._pool):
            if origin := k % ORIGINS:
                audits.compare(OriginId(1 + origin), k, [one.value[self._dtype]], [one.again])
        return len(audits.named)

    def audits_until_named(self, forge: Forge, share: float) -> list[int]:
        """Of each trial; AUDITS_MAX if that is not enough. share: of updates that are forged."""
        return [self._try(forge, share, random.Random(seed)) for seed in range(TRIALS)]

    def _try(self, forge: Forge, share: float, drawn: random.Random) -> int:
        audits = Audits(self._compression)
        first = drawn.randrange(len(self._pool))
        for count in range(1, AUDITS_MAX):
            one = self._pool[(first + count) % len(self._pool)]
            is_forged = drawn.random() < share
            sent = forge(one, self._dtype, drawn) if is_forged else one.value[self._dtype]
            if audits.compare(OriginId(1), count, [sent], [one.again]) is not None:
                return count
        return AUDITS_MAX


def forgers(compression: Compression, pool: Sequence[Audited]) -> dict[str, tuple[Forge, float]]:
    """By name: what is sent in place of what was measured, and in which share of updates."""
    integers = [_integers(compression, one.value["float32"]) for one in pool]
    sigma = pstdev(value for one in integers for value in one)

    def changed(change: Callable[[float, random.Random], float]) -> Forge:
        def forge(one: Audited, dtype: str, drawn: random.Random) -> UpdateValue:
            sent = one.value[dtype]
            return _replaced(compression, sent, [change(value, drawn) for value in _integers(compression, sent)])

        return forge

    return {
        "bias_of_one_sigma": (changed(lambda value, _: value + sigma), 1.0),
        "flips_in_5_percent": (changed(lambda value, _: -value), 0.05),
        "flips": (changed(lambda value, _: -value), 1.0),
        "copies": (
            lambda one, dtype, drawn: _replaced(compression, one.value[dtype], _integers(compression, one.other)),
            1.0,
        ),
        "noise": (changed(lambda _, drawn: drawn.gauss(0, sigma)), 1.0),
        "zeros": (changed(lambda value, drawn: 0.0), 1.0),
    }


def _integers(compression: Compression, sent: UpdateValue) -> list[int]:
    if isinstance(sent, tuple):
        return [sent[1]]
    assert isinstance(compression, Coefficients)
    return [int(one) for one in decode_coefficients(compression, sent)]


def _replaced(compression: Compression, instead_of: UpdateValue, integers: Sequence[float]) -> UpdateValue:
    if isinstance(instead_of, tuple):
        return instead_of[0], round(integers[0])
    assert isinstance(compression, Coefficients)
    return quantise(compression, numpy.array(integers) * 2.0**-compression.unit_bits)[0]
