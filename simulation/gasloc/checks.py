"""Checks from outside: they go by what hosts hold, not by what the hosts say of it."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from seedflood.protocol.gasloc.phase import Phase
from simulation import checks
from simulation.gasloc.host import DRIFT, GaslocHost
from simulation.gasloc.replica import NUMBER_MAX, Values, minus, plus, square

NOTHING: Values = (Fraction(0),) * len(DRIFT)

STRAY_REACHES = 2
"""A liar pulls a partner by half of its reach in a round, and by up to four times that in closing ones."""

KEPT_OUT_SECONDS = 300.0
"""Of a few donors and places each may be held by a liar in turn, for half a minute."""

find_mistakes = checks.find_mistakes


def find_violations(hosts: Sequence[GaslocHost]) -> list[str]:
    """Broken promises of hosts that have healed and finished."""
    violations = [*find_mistakes(hosts), *_find_unbalanced(hosts)]
    violations += [*_find_unequal(hosts), *_find_huge(hosts), *_find_strayed(hosts)]
    movement = find_movement(hosts)
    if movement is not None and movement.total != movement.explained:
        violations.append("the mean of all replicas has moved by more than uneven pairs explain")
    return violations


class Movement(NamedTuple):
    """How far the sum of all replicas has moved. halves: how many ends mixed what the other end has not taken away.
    explained: by these."""

    total: Values
    halves: int
    explained: Values


def find_movement(hosts: Sequence[GaslocHost]) -> Movement | None:
    """What differs between the sum of all replicas, before all took one of them, and the sum of the base models and of
    all local steps in them. None where nothing is promised of it: momentum moves the sum, and so do a copy, which
    counts one replica twice, a lost disk, a liar, and a host that was removed."""
    is_promised = not (hosts[0].rules.gamma or hosts[0].chronicle.liars or hosts[0].access().former)
    if not is_promised or any(host.replaced_before for host in hosts):
        return None
    total = explained = NOTHING
    for host in hosts:
        values, steps = host.replica.last
        learned = plus(host.base, tuple(steps * one for one in DRIFT))
        total = plus(total, minus(values, learned))
    uneven = [half for half in _halves(hosts) if not half.is_even]
    for half in uneven:
        explained = plus(explained, half.part)
    return Movement(total, len(uneven), explained)


def mean_moved(hosts: Sequence[GaslocHost]) -> float | None:
    """How far the mean has moved, as a share of how far base models were from their mean; None: see `find_movement`."""
    movement = find_movement(hosts)
    if movement is None:
        return None
    count = len(hosts)
    mean = tuple(sum(values, Fraction(0)) / count for values in zip(*(host.base for host in hosts), strict=True))
    apart = sum(square(minus(host.base, mean)) for host in hosts) / count
    moved = square(movement.total) / count**2
    return float(moved / apart) ** 0.5 if apart else 0.0


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
        phase in (Phase.EXCHANGING, Phase.CHOOSING)
        and not (gasloc.course.is_computing or gasloc.agreement.is_publishing)
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


class Half(NamedTuple):
    """What one end of a pair has added in a round. counterpart: what the other end has, None: nothing."""

    host: GaslocHost
    other: GaslocHost
    round: int
    part: Values
    counterpart: Values | None

    @property
    def is_even(self) -> bool:
        """Has the other end taken away what this one has added?"""
        if self.counterpart is None:
            return False
        return not any(a + b for a, b in zip(self.part, self.counterpart, strict=True))


def _halves(hosts: Sequence[GaslocHost]) -> Iterator[Half]:
    """Of pairs of these hosts. Not of those with a replica that was replaced since."""
    by_origin = {host.origin: host for host in hosts}
    for host in hosts:
        for (round_, origin), part in sorted(host.replica.mixed.items()):
            other = by_origin.get(origin)
            if other is not None and round_ >= other.replaced_before:
                yield Half(host, other, round_, part, other.replica.mixed.get((round_, host.origin)))


def _find_unbalanced(hosts: Sequence[GaslocHost]) -> Iterator[str]:
    """Pairs of which one end has added another amount than the other has taken away, or has mixed alone, without a
    reason: the other one gave up waiting, or an end was started again in that round. Then it has trained once more, and
    mixes what it holds now with what the other one has offered before."""
    for half in _halves(hosts):
        host, other, round_ = half.host, half.other, half.round
        if half.is_even or round_ in other.died_in:
            continue
        pair = (round_, host.origin)
        if half.counterpart is None and pair not in other.skipped and pair not in other.lost:
            yield f"{host.name} has mixed round {round_} with {other.name}, which has not"
        elif half.counterpart is not None and round_ not in host.died_in:
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


def _find_strayed(hosts: Sequence[GaslocHost]) -> Iterator[str]:
    """Hosts that end further from what honest hosts have learned than liars can have pulled them in all rounds. With
    momentum nothing bounds that."""
    rules, reach = hosts[0].rules, hosts[0].replica.reach
    farthest = (1 + STRAY_REACHES * rules.rounds) * reach
    for host in hosts:
        if not rules.gamma and max(map(abs, host.replica.values)) > farthest:
            yield f"{host.name} ends far from what honest hosts have learned"
