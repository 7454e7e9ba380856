"""What must be true of hosts when a run is over, found out from their results and their journals.

A journal holds every update once, or the sum of an epoch and the frontier for which it stands. The *ledger* remembers
what journals held before, so it knows whether an origin ever said two things under one step, and whether a sum is that
of the updates it stands for.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
from processes import Host

from seedflood.errors import ExitCode
from seedflood.offline.learned import Replayed, replay
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.packing import unpack
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.loading import load_base
from seedflood.training.seedflood.trainer import Trainer


def finish(hosts: Iterable[Host]) -> list[dict[str, object]]:
    """Waits for the end of all; their results, whose digests are equal."""
    hosts = list(hosts)
    codes = {host.name: host.end() for host in hosts}
    assert set(codes.values()) == {ExitCode.OK}, codes
    results = [host.result() for host in hosts]
    assert len({result["digest"] for result in results}) == 1, results
    return results


def check_replays(hosts: Iterable[Host]) -> list[Replayed]:
    """The journal of each gives the digest that it told, and all signatures are right."""
    replays = [replay(host.settings) for host in hosts]
    assert all(one.is_sound for one in replays), replays
    assert all(one.result_digest == one.digest for one in replays), replays
    return replays


class Ledger:
    """Everything that journals of one run held whenever they were looked at. contradictions: (origin, step)."""

    def __init__(self, host: Host) -> None:
        """host: any of the run, for its settings."""
        settings = host.settings
        self.contradictions: list[tuple[int, int]] = []
        self._run = settings.run
        self._node = settings.node
        self._base_digest = load_base(settings.run, settings.node).digest
        self._bundles: dict[tuple[int, int], Bundle] = {}

    def look(self, path: Path) -> tuple[Frontier, list[ClosedEpoch]]:
        """Notes what is in the journal of a stopped host: the steps that it holds, and its sums.

        Fails if a step is held twice: by two bundles, or by a bundle and a sum.
        """
        run = self._run
        steps: set[tuple[int, int]] = set()
        with BundleJournal.open(
            path, run.run_id(), self._base_digest, refresh_period=run.seedflood.refresh_period
        ) as journal:
            sums = list(journal.closed_epochs())
            bundles = list(journal.replay())
        spans = [(one.origin, first, last) for closed in sums for one in closed.frontier for first, last in _spans(one)]
        spans += [(bundle.origin, bundle.first_covered, bundle.last) for bundle in bundles]
        frontier = Frontier()
        for origin, first, last in spans:
            covered = {(origin, step) for step in range(first, last + 1)}
            assert not covered & steps, f"{path} holds steps {first}..{last} of {origin:016x} twice"
            steps |= covered
            frontier.add(origin, first, last)
        for bundle in bundles:
            known = self._bundles.setdefault((bundle.origin, bundle.step), bundle)
            if known != bundle:
                self.contradictions.append((bundle.origin, bundle.step))
        return frontier, sums

    def check_sums(self, sums: Iterable[ClosedEpoch]) -> int:
        """Each is what its updates add up to, after what the epochs before it leave, where all of them were ever seen;
        how many those are."""
        trainer = Trainer(self._run, self._node)
        sums = list(sums)
        seen = [closed for closed in sums if self._has_all(closed)]
        taken = {closed.epoch for closed in sums if closed not in seen}
        for closed in sums:
            if closed.epoch in taken:
                trainer.replica.adopt(closed.epoch, closed.coefficients, ())
        for bundle in self._bundles.values():
            if bundle.step // self._run.seedflood.refresh_period not in taken:
                trainer.replica.apply(bundle.updates())
        for closed in seen:
            expected = unpack(trainer.replica.sum_epoch(closed.epoch), trainer.replica.epoch_bytes)
            if unpack(closed.coefficients, trainer.replica.epoch_bytes) != expected:
                pytest.fail(f"the sum of epoch {closed.epoch} is not that of its updates")
        return len(seen)

    def _has_all(self, closed: ClosedEpoch) -> bool:
        frontier = Frontier()
        for bundle in self._bundles.values():
            if bundle.step // self._run.seedflood.refresh_period == closed.epoch:
                frontier.add(bundle.origin, bundle.first_covered, bundle.last)
        return frontier.held() == Frontier(closed.frontier).held()


def _spans(held: Held) -> list[tuple[int, int]]:
    return [(0, held.mark - 1), *held.beyond] if held.mark else list(held.beyond)
