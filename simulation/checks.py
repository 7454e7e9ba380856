"""Checks of hosts from outside, whatever their algorithm."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from seedflood.protocol.swarm.membership import shorten
from seedflood.protocol.view import Blocker
from simulation.host import ENDED, Host

HARMLESS = ("duplicate", "self")
"""Reasons for which honest hosts refuse each other: both have dialled, or one was started twice."""


def find_mistakes(hosts: Sequence[Host]) -> list[str]:
    """What hosts did that must never happen, whatever the faults are."""
    return [f"{host.name} {mistake}" for host in hosts for mistake in (*host.mistakes, *host.judge())]


def find_ended(hosts: Sequence[Host]) -> list[str]:
    """Hosts that an exception has ended. Liars run the real node, too: it has a fault, or the lie was never told."""
    return [f"{host.name} {mistake}" for host in hosts for mistake in host.mistakes if mistake.startswith(ENDED)]


def find_refusals(hosts: Sequence[Host], refusals: Mapping[tuple[int, int, str], int]) -> list[str]:
    """Refusals among these hosts, but for harmless reasons. refusals: how often, by receiver, sender and reason."""
    names = {host.index: host.name for host in hosts}
    return [
        f"{names[receiver]} refused {names[sender]} ({reason}, {count} times)"
        for (receiver, sender, reason), count in sorted(refusals.items())
        if receiver in names and sender in names and reason not in HARMLESS
    ]


def find_stuck(hosts: Sequence[Host]) -> list[str]:
    """The hosts that have not finished, and what each waits for."""
    return [
        f"{host.name} is {host.node.phase if host.is_up else 'down'} at step {host.node.step}"
        + (f", waits for {_spell_all(host.node.blockers(host.clock.now))}" if host.is_up else "")
        for host in hosts
        if not host.is_done
    ]


def _spell_all(blockers: Iterable[Blocker]) -> str:
    """Hosts that a liar made up may all bear one name."""
    counts = Counter(map(_spell, blockers))
    return ", ".join(shorten([name if count == 1 else f"{count} times {name}" for name, count in counts.items()]))


def _spell(blocker: Blocker) -> str:
    step = blocker.first_lacking_step
    return f"{blocker.name} ({blocker.kind}{f' from step {step}' if step is not None else ''})"
