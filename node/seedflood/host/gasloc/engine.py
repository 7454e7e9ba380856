"""GASLoC's engine: trainer, checkpoints, files, node and driver, connected with the daemon."""

import asyncio
import math
from contextlib import AsyncExitStack
from typing import Any

from seedflood.config import Settings
from seedflood.host.compute import Compute, ComputeThread
from seedflood.host.driver import Driver
from seedflood.host.engine import Engine
from seedflood.host.gasloc.files import Incoming
from seedflood.host.gasloc.tokens import Tokens
from seedflood.host.gasloc.work import Resumed, Trouble, Work
from seedflood.host.places import GASLOC_FOLDER, JOURNAL_FILE, SNAPSHOTS_FOLDER, SNAPSHOTS_KEPT
from seedflood.host.results import UNEXPORTABLE, Results, try_export
from seedflood.identity import Identity, verify
from seedflood.log import log
from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules, Habits
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.rules import Patience
from seedflood.storage.journal import Journal
from seedflood.storage.snapshots import Snapshots
from seedflood.training.gasloc.encodings import ENCODINGS, payload_size
from seedflood.training.gasloc.loading import load_trainer
from seedflood.training.gasloc.outer import Mixed
from seedflood.training.gasloc.trainer import LAST_ENCODING, Trainer
from seedflood.training.gasloc.worker import LocalSteps
from seedflood.transport.budget import Use

IDLE_SECONDS = 30.0
"""How long a closing daemon waits for its last checkpoint."""

COPY_FACTOR, COPY_BYTES_SPARE = 9, 1 << 24
"""A copy has at most this many float32 numbers per parameter: itself, four of the outer step, four of an optimiser."""

CHECKPOINT_STEPS = 5
"""A checkpoint comes with each round, or if rounds are shorter with so many local steps: it takes as long as several of
these."""


async def open_gasloc(
    settings: Settings, identity: Identity, compute: ComputeThread, hub: TelemetryHub, undo: AsyncExitStack
) -> "GaslocEngine":
    """Loads model and rows, opens journal and folders. Raises SeedfloodError."""
    run, node = settings.run, settings.node
    trainer = await compute.run(lambda: load_trainer(run, node, identity.origin))
    log.info("rows read", **trainer.task.facts)
    if (refused := await compute.run(lambda: try_export(settings, trainer))) is not None:
        hub.log(UNEXPORTABLE, "error", reason=str(refused))
    hub.log("opening the journal")
    journal = undo.enter_context(
        await asyncio.to_thread(Journal.open, node.state / JOURNAL_FILE, run.run_id(), trainer.base.digest)
    )
    return GaslocEngine(settings, trainer, journal, compute)


class GaslocEngine(Engine):
    """One node that trains by GASLoC."""

    node: GaslocNode
    driver: Driver
    results: Results
    has_contents = True

    def __init__(self, settings: Settings, trainer: Trainer, journal: Journal, compute: ComputeThread) -> None:
        super().__init__(settings, journal, trainer.task.objective.names)
        state = settings.node.state
        count = trainer.base.parameters_count
        self.parameters = (count, count * trainer.base.dtype.itemsize)
        self.trainer = trainer
        self._compute = compute
        self._incoming = Incoming(state / GASLOC_FOLDER / "incoming")
        snapshots = Snapshots(state / SNAPSHOTS_FOLDER, SNAPSHOTS_KEPT)
        self._work = Work(trainer, self._incoming, snapshots, settings.run.run_id())
        self._tokens = Tokens(trainer.task.tokens_per_batch * settings.run.gasloc.local_steps)
        self._distance = 0.0

    def assemble(self, member: Member) -> None:
        run, node, settings = self._settings.run, self._settings.node, self._settings.run.gasloc
        daemon = self.daemon
        numbers = len(self.trainer.worker.flat.values_F)
        rules = GaslocRules(
            run_id=run.run_id(),
            base_digest=self.trainer.base.digest,
            clients=run.clients,
            steps=run.steps,
            run_seed=run.seed,
            local_steps=settings.local_steps,
            gamma=settings.gamma,
            matching=settings.matching,
            encoding=settings.encoding,
            delay_steps=settings.delay_steps,
            content_bytes_max=max(
                payload_size(ENCODINGS[name], numbers) for name in (settings.encoding, LAST_ENCODING)
            ),
            last_encoding=LAST_ENCODING,
            copy_bytes_max=COPY_FACTOR * 4 * numbers + COPY_BYTES_SPARE,
        )
        bounds = Bounds(slow_share=math.inf) if settings.local_steps == 1 else Bounds()
        patience = Patience(start_seconds=node.patience_seconds, linger_seconds=node.patience_seconds)
        rounds = max(1, CHECKPOINT_STEPS // (node.local_steps or settings.local_steps))
        habits = Habits(node.local_steps, checkpoint_rounds=rounds, bounds=bounds, patience=patience)
        self._hub = daemon.hub
        self.node = GaslocNode(rules, member, daemon.identity.sign, verify, self._incoming, habits, daemon.access)
        self.results = Results(self._settings, self.trainer, self.report, daemon.hub, daemon.run)
        self._work.node = self.node
        compute = Compute(daemon.run, daemon.drive, self._work.begin, self._computed)
        self.driver = Driver(self.node, self.journal, daemon.links, compute.put, daemon, daemon.loop.time)
        compute.driver = self.driver

    def start(self) -> None:
        self.results.evaluate_before()
        super().start()

    def used(self) -> Use:
        return Use(self.node.news, in_vain=sum(self.node.admission.refused.values()))

    # What the model did

    def _computed(self, fact: Resumed | LocalSteps | Mixed | Trouble) -> None:
        match fact:
            case Resumed(what, step):
                self._hub.log(f"{what} loaded", step=step)
            case LocalSteps():
                self._stepped(fact)
            case Mixed():
                self._mixed(fact)
            case Trouble(sentence, reason):
                self._hub.log(sentence, "error", reason=reason)

    def _stepped(self, taken: LocalSteps) -> None:
        self.daemon.identity.use()
        loss = round(taken.loss, 4) if math.isfinite(taken.loss) else None
        self._hub.measured(taken.step, taken.steps, loss, taken.seconds)
        self._tokens.add(taken.tokens, taken.seconds)
        self._show_tokens()
        if taken.skipped:
            sentence = "the gradient is not finite; nothing is learned of such steps"
            self._hub.log(sentence, "warning", step=taken.step, steps=taken.skipped)
        self._log_progress()

    def _mixed(self, mixed: Mixed) -> None:
        if mixed.neighbours and math.isfinite(mixed.distance):
            self._distance = mixed.distance
            self.node.show(consensus_distance=mixed.distance)
        self._tokens.observe(self.node.swarm_rounds(), self.daemon.loop.time())
        self._show_tokens()
        self.results.evaluate_on_the_way(self.node.step)
        self._log_progress()

    def _log_progress(self) -> None:
        facts = {"tokens_per_second": round(self._tokens.per_second), "distance": round(self._distance, 6)}
        self.results.log_progress(self.node.step, self.daemon.links, lambda: facts)

    def _show_tokens(self) -> None:
        tokens, sent = self._tokens, self.node.gasloc.carrier.bytes_sent
        self.node.show(
            tokens=float(tokens.count),
            tokens_per_second=tokens.per_second,
            swarm_tokens_per_second=tokens.swarm_per_second,
            bytes_per_token=sent / tokens.count if tokens.count else 0.0,
        )

    # The end

    def result(self) -> dict[str, Any]:
        """tokens, seconds and bytes: since the process began."""
        exchange, carrier = self.node.gasloc.exchange, self.node.gasloc.carrier
        choice = self.node.gasloc.agreement.choice
        return {
            **self.report.figures(),
            "digest": self.results.digest.hex(),
            "rounds": min(self.node.gasloc.round, self.node.rules.training_rounds),
            "exchanges": exchange.mixed,
            "exchanges_skipped": exchange.skipped,
            "equal_replicas": len(choice.equal()),
            "unequal_replicas": len(choice.unequal()),
            "consensus_distance": round(self._distance, 9),
            "tokens": self._tokens.count,
            "tokens_per_second": round(self._tokens.per_second, 1),
            "parameter_bytes_sent": carrier.bytes_sent,
            "parameter_bytes_received": carrier.bytes_received,
        }

    async def close(self) -> None:
        """Waits for all orders; the last one is a checkpoint."""
        await asyncio.wait({self._compute.run(lambda: None)}, timeout=IDLE_SECONDS)
