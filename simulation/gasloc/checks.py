"""Checks from outside: they go by what hosts hold, not by what the hosts say of it."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from seedflood.protocol.gasloc.phase import Phase
from simulation import checks
from simulation.gasloc.host import DRIFT, GaslocHost
from simulation.gasloc.replica import NUMBER_MAX, minus, plus, square

KEPT_OUT_SECONDS = 300.0
"""Of a few donors and places each may be held by a liar in turn, for half a minute."""

find_mistakes = checks.find_mistakes


def find_violations(hosts: Sequence[GaslocHost]) -> list[str]:
    """Broken promises of hosts that have healed and finished."""
    violations = [*find_mistakes(hosts), *_find_leftovers(hosts), *_find_unbalanced(hosts)]
    violations += [*_find_unequal(hosts), *_find_huge(hosts)]
    if is_mean_exact(hosts) is False:
        violations.append("the mean of all replicas has moved")
    return violations


def is_mean_exact(hosts: Sequence[GaslocHost]) -> bool | None:
    """Is the sum of all replicas, before all took one of them, equal to the sum of the base models and of all local
    steps in them? None where this is not promised: momentum moves the sum, and so do a copy, which counts one replica
    twice, a lost disk, a liar, and a host that was removed."""
    is_promised = not (hosts[0].rules.gamma or hosts[0].chronicle.liars or hosts[0].gate().former)
    if not is_promised or any(host.replaced_before for host in hosts):
        return None
    found = expected = (Fraction(0),) * len(DRIFT)
    for host in hosts:
        values, steps = host.replica.last
        found = plus(found, values)
        expected = plus(expected, plus(host.base, tuple(steps * one for one in DRIFT)))
    return found == expected


def find_distance(hosts: Sequence[GaslocHost]) -> float | None:
    """How far from the mean is the replica with which all end, as a share of how far hosts were before the closing
    rounds, in the mean? None if not all of them came to these, or if they were equal."""
    begun = [one for host in hosts if (one := host.replica.before_closing) is not None]
    if len(begun) < len(hosts):
        return None
    mean = tuple(sum(values, Fraction(0)) / len(begun) for values in zip(*begun, strict=True))
    before = sum(square(minus(one, mean)) for one in begun) / len(begun)
    after = square(minus(hosts[0].replica.values, mean))
    return float(after / before) ** 0.5 if before else None


def find_silence(host: GaslocHost) -> str | None:
    """Does the host stand still without a blocker, though its model has nothing to do and its disk has space?"""
    phase, gasloc = host.node.phase, host.node.gasloc
    is_waiting = phase in (Phase.JOINING, Phase.FINISHING) or (
        phase in (Phase.EXCHANGING, Phase.CHOOSING) and not (gasloc.is_computing or gasloc.agreement.is_publishing)
    )
    if not is_waiting or host.work or host.driver.is_disk_full or host.node.blockers(host.clock.now):
        return None
    return f"is {phase} in round {gasloc.round}, and cannot say for whom it waits"


def find_kept_out(host: GaslocHost) -> str | None:
    """Does the host wait too long for a copy, though an honest neighbour has one?"""
    gasloc, now = host.node.gasloc, host.clock.now
    donors = {peer for peer, one in gasloc.talk.progress.items() if one.can_serve} - host.chronicle.liars
    if host.node.phase != Phase.JOINING or host.work or not donors:
        host.kept_out_since = now
    if now - host.kept_out_since > KEPT_OUT_SECONDS:
        return f"is kept from a copy for more than {KEPT_OUT_SECONDS:g} s"
    return None


def _find_unbalanced(hosts: Sequence[GaslocHost]) -> Iterator[str]:
    """Pairs of which one end has added another amount than the other has taken away. A pair mixes together or not at
    all. This is not promised for pairs with a replica that was replaced since, or with a liar."""
    by_origin = {host.origin: host for host in hosts}
    for host in hosts:
        for (round_, origin), part in sorted(host.replica.mixed.items()):
            other = by_origin.get(origin)
            if other is None or round_ < other.replaced_before:
                continue
            theirs = other.replica.mixed.get((round_, host.origin))
            if theirs is None:
                yield f"{host.name} has mixed round {round_} with {other.name}, which has not"
            elif any(a + b for a, b in zip(part, theirs, strict=True)):
                yield f"{host.name} and {other.name} have mixed different things in round {round_}"


def _find_unequal(hosts: Sequence[GaslocHost]) -> Iterator[str]:
    """Hosts that end with other parameters than another one."""
    ended = [host for host in hosts if host.is_up]
    for host in ended[1:]:
        if host.replica.values != ended[0].replica.values:
            yield f"{host.name} ends with other parameters than {ended[0].name}"


def _find_huge(hosts: Sequence[GaslocHost]) -> Iterator[str]:
    """Hosts with numbers that nobody can have learned."""
    for host in hosts:
        if max(map(abs, host.replica.values)) > NUMBER_MAX:
            yield f"{host.name} ends with numbers that nobody can have learned"


def _find_leftovers(hosts: Sequence[GaslocHost]) -> Iterator[str]:
    honest = {host.origin for host in hosts}
    for host in hosts:
        doubts = [entry.round for origin, entry in host.ledger.doubts() if origin in honest]
        if doubts:
            yield f"{host.name} ends in doubt of round {doubts[0]}"
        if not doubts and any(origin in honest for _, origin in host.journal.kept):
            yield f"{host.name} ends with parts that nobody needs"
