"""Journals for tests, and bundles that are always the same."""

from pathlib import Path

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.bundles import Bundle, make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.storage.journal import Journal
from seedflood.storage.seedflood.journal import BundleJournal

RUN, BASE = b"r" * 32, b"b" * 32
PERIOD = 20
"""Steps per epoch."""


def bundle(origin: int, step: int, updates: int = 1, skipped: int = 0) -> Bundle:
    """The bundle of an origin at a step."""
    probes = tuple(((step + k) % 2**16, -origin % 997) for k in range(updates))
    return make_bundle(origin, step, probes, skipped, b"%64d" % step)


def open_journal(folder: Path | str) -> BundleJournal:
    return BundleJournal.open(Path(folder) / "journal", RUN, BASE, refresh_period=PERIOD)


def open_plain(folder: Path | str) -> Journal:
    """As an algorithm opens it that keeps nothing but records."""
    return Journal.open(Path(folder) / "journal", RUN, BASE)


def closed(epoch: int, bundles: list[Bundle], size: int = 40) -> ClosedEpoch:
    """A sum that stands for those of these bundles that belong to the epoch."""
    frontier = Frontier()
    for one in bundles:
        if one.step // PERIOD == epoch:
            frontier.add(one.origin, one.first_covered, one.last)
    return ClosedEpoch(epoch, frontier.held(), b"%d" % epoch + bytes(size))


def file_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
