"""SeedFlood's engine: trainer, journal, node and driver, connected with the daemon."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from seedflood.config import Settings
from seedflood.errors import ConfigError, DivergenceError, RankError, SeedfloodError
from seedflood.host.compute import Compute, ComputeThread
from seedflood.host.results import UNEXPORTABLE, Results, try_export
from seedflood.host.seedflood.auditing import CANNOT_BE_AUDITED, Auditor, make_auditor, unaudited
from seedflood.host.seedflood.contradictions import Contradictions
from seedflood.host.seedflood.flooding import FloodEngine, make_rules, open_journal
from seedflood.host.seedflood.rank import load_first
from seedflood.host.seedflood.seams import Job
from seedflood.host.seedflood.shares import Shares
from seedflood.host.seedflood.work import Applied, Work
from seedflood.identity import Identity, verify
from seedflood.log import log
from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.origin import OriginId
from seedflood.protocol.packing import packed_bytes_max
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure
from seedflood.protocol.swarm.membership import shorten
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.view import View
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.own import NOT_HERE
from seedflood.training.seedflood.optimiser import STEP_MAX
from seedflood.training.seedflood.rewarded import TEACHING_TEXTS
from seedflood.training.seedflood.trainer import Round, Trainer
from seedflood.transport.texts import plain

TOO_LONG = "the first step would be too long for this model: the learning rate was halved before it"
UNLEARNED = "the hosts lose more than before: back to the best state, with half the learning rate"
WORTHLESS = "score: all texts of a step were worth 0 and taught nothing; the model must be right in some already"

WORDS_CHARACTERS_MAX = 400
"""Of what a model wrote, which may be anything."""


async def open_seedflood(
    settings: Settings,
    identity: Identity,
    compute: ComputeThread,
    hub: TelemetryHub,
    undo: AsyncExitStack,
    load: Callable[[], Trainer] | None = None,
) -> "SeedfloodEngine":
    """Loads model and rows, opens the journal, and restores the weights. load: makes the trainer of a script, which
    computes the losses. Raises SeedfloodError."""
    node, run = settings.node, settings.run
    if load is None and run.objective.task == "own":
        raise ConfigError(NOT_HERE)
    trainer = await compute.run(load or (lambda: load_first(settings)))
    log.info("rows read", **await compute.run(trainer.task.describe))
    if left := trainer.replica.untrained:
        log.warning("the routers and experts of this mixture stay as they are", left=left, of=trainer.parameters[0])
    if offloaded := trainer.replica.offloaded_bytes:
        log.warning("the device has no room for some weights: each pass copies them", bytes=offloaded)
    if node.quantisation is not None:
        say = "weights are quantised here: what this host loses differs a little from others; what is learned does not"
        log.warning(say, dtype=node.dtype)
    if (refused := await compute.run(lambda: try_export(settings, trainer))) is not None:
        hub.log(UNEXPORTABLE, "error", reason=str(refused))
    hub.log("opening the journal")
    journal = undo.enter_context(await asyncio.to_thread(open_journal, settings, trainer.base_digest))
    for one in journal.closed_epochs():
        await compute.run(partial(trainer.replica.adopt, one.epoch, one.coefficients, ()))
    engine = SeedfloodEngine(settings, trainer, journal)
    engine.report.is_quiet = load is not None  # stdout is the script's
    return engine


class SeedfloodEngine(FloodEngine):
    """One node that trains by SeedFlood."""

    auditor: Auditor | None
    results: Results

    def __init__(self, settings: Settings, trainer: Trainer, journal: BundleJournal) -> None:
        super().__init__(settings, journal, trainer.task.objective.names)
        self.parameters = trainer.parameters
        self.trainer = trainer
        self._oddities: Counter[str] = Counter()
        self._figures: Mapping[str, float] = {}
        """Of our last batch, as the words."""
        self._words: Mapping[str, str] = {}
        self._halvings: int | None = None
        """How often the learning rate has been halved; None before the first window of this process."""

    @property
    def _rate_halvings(self) -> int:
        return self._halvings or 0

    @property
    def frame_bytes_max(self) -> int:
        return packed_bytes_max(self.trainer.replica.epoch_bytes)

    def assemble(self, member: Member) -> None:
        run, node, trainer = self._settings.run, self._settings.node, self.trainer
        daemon = self.daemon
        step_reach = int(STEP_MAX) if run.seedflood.estimate == "gradient" else None
        replica = trainer.replica
        form = Form(replica.epoch_bytes, replica.left_bytes, trainer.compression, step_reach)
        rules = make_rules(run, trainer.base_digest, form)
        patience = Patience(start_seconds=node.patience_seconds, linger_seconds=node.patience_seconds)
        self._hub = daemon.hub
        sign = daemon.identity.sign
        self._connect(Node(rules, member, sign, verify, patience=patience, access=daemon.access, rows=trainer.rows))
        self.results = Results(self._settings, trainer, self.report, daemon.hub, daemon.run)
        self._work = Work(self.node.origin, trainer)
        self._compute = Compute(daemon.run, daemon.drive, self._work.begin, self._computed)
        self._compute.driver = self.driver
        self._shares = Shares(trainer.rows, self.node, daemon.hub)
        self._contradictions = Contradictions(daemon.hub, self.node.membership.name)
        self.auditor = make_auditor(node, self.node, trainer, self.journal, daemon)

    def start(self) -> None:
        self.trainer.ranks.when_over(self._end_of_ranks)
        self.results.evaluate_before()
        is_damaged, is_fresh = self.journal.damaged is not None, self.daemon.identity.is_fresh
        members = self.journal.members()
        self._shares.recall(members)
        self.driver.start(members, is_journal_damaged=is_damaged, is_key_fresh=is_fresh)

    def _end_of_ranks(self, fault: RankError | None) -> None:
        """On a thread of the ranks."""
        if fault is not None:
            self.daemon.loop.call_soon_threadsafe(self.daemon.failed, fault)

    def view(self, now: float) -> View:
        view = super().view(now)
        rate = self.trainer.rate_of(view.step, self._rate_halvings)
        figures = {"learning_rate": rate, "rate_halvings": float(self._rate_halvings)}
        figures = {**view.figures, **self._observer.figures, **self._figures, **figures}
        words = {**view.words, **self._words}
        if self._settings.run.seedflood.window == "strict" and (names := unaudited(self.node, self.trainer.rows)):
            words[CANNOT_BE_AUDITED] = ", ".join(shorten(names))
        view = self._contradictions.add_to(replace(view, figures=figures, words=words))
        return view if self.auditor is None else self.auditor.add_to(view)

    # What the driver did (seams.Observer)

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        super().learned(bundles, source)
        if self.auditor is not None:
            self.auditor.received(bundles)

    def applied(self, window: ClosedWindow) -> None:
        self._observer.applied(window)
        step = window.steps[1] + 1
        self.results.evaluate_on_the_way(step)
        if window.steps[0] <= window.steps[1]:
            self._shares.compare(update.origin for update in window.updates)
            self.results.log_progress(step, self.daemon.links, lambda: self._facts(window))

    def _facts(self, window: ClosedWindow) -> dict[str, Any]:
        """Of the progress, besides what any algorithm has."""
        return {
            "waited_seconds": round(window.waited_seconds, 4),
            "received": window.received,
            "late": self._hub.tally.late,
            "refused": sum(self.node.admission.refused.values()),
            "dropped": sum(one.updates_dropped for one in self.daemon.links.totals.stats().values()),
        }

    # What the model did

    def _put(self, job: Job) -> None:
        self._compute.put(job)
        if isinstance(job, Measure) and self.auditor is not None:
            self.auditor.accompany(job)

    def _computed(self, fact: Round | Applied) -> None:
        if isinstance(fact, Round):
            self._measured(fact)
        else:
            self._controlled(fact.step, fact.halvings)
            self._contradictions.update(fact.step, fact.reputations)

    def _measured(self, measured: Round) -> None:
        self.daemon.identity.use()
        self._figures = measured.figures
        self._words = {name: _on_one_line(text) for name, text in measured.words.items()}
        loss = round(measured.loss, 4) if measured.is_finite else None
        self._hub.measured(measured.step, len(measured.probes), loss, measured.seconds)
        if not measured.is_finite:
            self._warn("the loss is not finite; the update counts as zero", measured.step)
        if measured.figures.get(TEACHING_TEXTS) == 0 and measured.loss == 1:
            self._warn(WORTHLESS, measured.step)
        if measured.is_clipped:
            self._warn("a scalar was clipped; the learning rate may be too high", measured.step)

    def _controlled(self, step: int, halvings: int) -> None:
        is_first = step < self._settings.run.seedflood.local_steps
        before, self._halvings = 0 if is_first else self._halvings, halvings
        if before is not None and halvings > before:
            self._hub.history.halvings.append((step, halvings))
            self._hub.log(TOO_LONG if is_first else UNLEARNED, "warning", step=step, halvings=halvings)

    def _warn(self, sentence: str, step: int) -> None:
        """Warns the 1st, 2nd, 4th, 8th... time, because a run that goes wrong would warn at every step."""
        self._oddities[sentence] += 1
        times = self._oddities[sentence]
        if times & (times - 1) == 0:
            self._hub.log(sentence, "warning", step=step, times=times)

    # The end

    def result(self) -> dict[str, Any]:
        return {
            **self.report.figures(),
            "evaluated": {name: self.report.after[name] for name in ("rows", "texts") if name in self.report.after},
            **({"samples": [*self.report.samples.values()]} if self.report.samples else {}),
            "digest": self.results.digest.hex(),
            "updates": self.node.frontier.count(),
            "late_updates": self._hub.tally.late,
            "duplicates": self.node.duplicates,
            "rate_halvings": self._rate_halvings,
            "control_steps": [step for step, _ in self._hub.history.halvings],
        }

    def fault(self) -> SeedfloodError | None:
        if not self.node.is_doubted:
            return None
        return DivergenceError(
            "the run is over, but a neighbour's replica differs; compare `seedflood replay` on both hosts."
        )

    async def close(self) -> None:
        self._work.is_closed = True
        self.trainer.stop()
        ended = self.daemon.ended
        is_faulty = ended.done() and not ended.cancelled() and ended.exception() is not None
        await asyncio.to_thread(self.trainer.ranks.end, in_peace=not is_faulty)


def _on_one_line(text: str) -> str:
    """What a model wrote, for people: of bounded length, and with a sign where a line ends."""
    return plain(text.replace("\n", "⏎ ").replace("\t", " "), WORDS_CHARACTERS_MAX)
