"""What trainers and relays share: rules, journal, node and driver of a host that passes on bundles."""

from abc import abstractmethod
from collections.abc import Sequence

from seedflood.config import RunSettings, Settings
from seedflood.host.engine import Engine
from seedflood.host.places import JOURNAL_FILE
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.seams import Job
from seedflood.operations.seedflood.observer import SeedfloodObserver
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow
from seedflood.protocol.seedflood.rules import Rules
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.transport.budget import Use


def make_rules(run: RunSettings, base_digest: bytes, form: Form) -> Rules:
    """Raises ConfigError if a bundle would be too large."""
    table = run.seedflood
    return Rules(
        run_id=run.run_id(),
        base_digest=base_digest,
        clients=run.clients,
        steps=run.steps,
        window=table.window,
        local_steps=table.local_steps,
        refresh_period=table.refresh_period,
        epoch_bytes=form.epoch_bytes,
        left_bytes=form.left_bytes,
        compression=form.compression,
        delay=table.delay,
        step_reach=form.step_reach,
        turn_rounds=table.turn_rounds(run.clients),
    )


def open_journal(settings: Settings, base_digest: bytes) -> BundleJournal:
    """Checks every record: minutes, if there are many millions. Raises SeedfloodError."""
    path, run = settings.node.state / JOURNAL_FILE, settings.run
    return BundleJournal.open(path, run.run_id(), base_digest, refresh_period=run.seedflood.refresh_period)


class FloodEngine(Engine):
    """It is the observer of its driver. What it computes, and what follows from a closed window, trainer and relay say
    themselves."""

    node: Node
    driver: SeedfloodDriver
    journal: BundleJournal

    _news = 0

    @abstractmethod
    def applied(self, window: ClosedWindow) -> None: ...

    @abstractmethod
    def _put(self, job: Job) -> None: ...

    def _connect(self, node: Node) -> None:
        """Makes the driver. What of `seams.Observer` is no method here, is that of the daemon or the telemetry."""
        self.node, daemon = node, self.daemon
        self._observer = SeedfloodObserver(daemon.hub, self._find_update)
        self.finished, self.superseded, self.removed = daemon.finished, daemon.superseded, daemon.removed
        self.noted, self.sent, self.adopted = self._observer.noted, self._observer.sent, self._observer.adopted
        self.driver = SeedfloodDriver(node, self.journal, daemon.links, self._put, self, daemon.loop.time)

    def used(self) -> Use:
        refused, vain = self.node.admission.refused, self.node.admission.in_vain
        return Use(self._news, self.node.duplicates + sum(refused.values()) - vain, vain)

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        self._news += len(bundles)
        self._observer.learned(bundles, source)

    def _find_update(self, origin: OriginId, step: int) -> tuple[bool, bool]:
        """(is the update held, is it applied)."""
        return self.node.frontier.holds(origin, step), self.node.applied.holds(origin, step)
