"""Checks from outside: they go by what hosts published, journalled and applied, not by what the hosts say of it."""

from collections import Counter
from collections.abc import Sequence

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.roster import Roster
from simulation import checks
from simulation.seedflood.host import SeedfloodHost


def find_violations(hosts: Sequence[SeedfloodHost]) -> list[str]:
    """Broken promises of hosts that have healed and finished, each in a sentence that names the host and the update."""
    violations = find_mistakes(hosts)
    for host in hosts:
        if host.is_relay:
            host.read_journal()
    covered = {epoch: one for host in hosts for epoch, one in host.journal.covered.items()}
    for host in hosts:
        sums = host.journal.covered if host.is_relay else covered  # a relay may end before it has found all of them
        violations += _find_losses(host, hosts)
        is_comparable = not (host.chronicle.liars and (host.chronicle.is_tainted or host.is_relay))
        if is_comparable and host.ledger.digest() != host.chronicle.digest(host.node.applied, sums):
            violations.append(f"{host.name} has other coefficients than its updates add up to")
        if host.has_ended_in_doubt:
            violations.append(f"{host.name} ends in doubt of its replica")
    violations += _find_unnamed(hosts)
    violations += _find_blamed(hosts)
    violations += find_doubles(hosts)
    if not has_equal_frontiers(hosts):
        violations.append("frontiers differ")
    if hosts[0].chronicle.liars and not has_equal_digests(hosts):
        violations.append("digests differ")
    return violations


def find_doubles(hosts: Sequence[SeedfloodHost]) -> list[str]:
    """Keys that two processes have. The older one ends when it learns of the newer one; a relay, which publishes
    nothing but its statement, only after both have outbid each other a few times."""
    names = Counter(host.name for host in hosts)
    return [f"{name} runs {count} times" for name, count in names.items() if count > 1]


def find_mistakes(hosts: Sequence[SeedfloodHost]) -> list[str]:
    """What hosts did that must never happen, whatever the faults are."""
    return [*hosts[0].chronicle.contradictions, *checks.find_mistakes(hosts)]


def _find_unnamed(hosts: Sequence[SeedfloodHost]) -> list[str]:
    """Hosts that do not name an origin of which two honest hosts took different updates of one step. Everybody must
    have the proof in the end, but who comes when the origin is removed: what it sent is not even verified then."""
    culprits = sorted(hosts[0].chronicle.two_tongued)
    known = [(host.name, host.named | host.node.access.former) for host in hosts]
    return [f"{name} does not name {one:016x}" for one in culprits for name, named in known if one not in named]


def _find_blamed(hosts: Sequence[SeedfloodHost]) -> list[str]:
    """Honest hosts that the page or the log of another shows as one that lies. A host whose bit had flipped did sign
    another sum, and a key that was copied votes twice."""
    chronicle = hosts[0].chronicle
    names = {host.name: host.origin for host in hosts}
    found = []
    for host in hosts:
        algorithm, ends = host.node.seedflood, host.node.ends
        voting, certificates = algorithm.exchange.voting, algorithm.holdings.certificates
        shown = host.node.view(host.clock.now).words.get("other sums", "none")
        blamed = {*voting.misvoting, *(names[name] for name in shown.split(", ") if name in names)}
        blamed -= {one.origin for one in hosts if one.was_corrupt}
        twice = certificates.doubles.keys() - chronicle.doubles.keys()
        lists = {"signs other sums": blamed, "votes twice": twice, "contradicts itself": ends.proofs.keys()}
        for what, origins in lists.items():
            honest = sorted(origins - chronicle.liars)
            found += [f"{host.name} shows that {origin:016x} {what}" for origin in honest]
    return found


def find_surplus(hosts: Sequence[SeedfloodHost], roster: Roster) -> list[str]:
    """Hosts that have applied other updates of one that was cut off than its cut keeps. All refuse a cut that
    contradicts compacted epochs, so then nothing is checked."""
    if any(event.name == "a cut contradicts compacted epochs" for host in hosts for event in host.events):
        return []
    found = []
    for gone, cut in ((entry, entry.cut) for entry in roster.entries if entry.cut is not None):
        published = {step for origin, step in hosts[0].chronicle.updates if origin == gone.origin}
        kept = {step for step in published if not cut.excludes(step, step)}
        for host in hosts:
            applied = {step for origin, step in host.ledger.applied if origin == gone.origin}
            if applied != kept:
                found.append(f"{host.name} follows the cut of {gone.name} not in the steps {sorted(applied ^ kept)}")
    return found


def has_equal_frontiers(hosts: Sequence[SeedfloodHost]) -> bool:
    return len({host.node.frontier.digest() for host in hosts}) == 1


def has_settled(hosts: Sequence[SeedfloodHost]) -> bool:
    """Do all hold the same, and have their models carried out all orders?"""
    return has_equal_frontiers(hosts) and not any(host.work for host in hosts)


def has_equal_digests(hosts: Sequence[SeedfloodHost]) -> bool:
    """Of those that have a replica."""
    return len({host.ledger.digest() for host in hosts if not host.is_relay}) == 1


def has_mended(hosts: Sequence[SeedfloodHost]) -> bool:
    """Are the digests of all hosts equal, and is no replica behind its journal? The final checks wait for this until
    time is up."""
    return has_equal_digests(hosts) and all(host.is_current for host in hosts)


def find_silence(host: SeedfloodHost) -> str | None:
    """Does the host stand still without a blocker?"""
    phase = host.node.phase
    if phase not in (Phase.JOINING, Phase.COLLECTING, Phase.FINISHING) or host.node.blockers(host.clock.now):
        return None
    return f"is {phase} at step {host.node.step}, and cannot say for whom it waits"


def _find_losses(host: SeedfloodHost, hosts: Sequence[SeedfloodHost]) -> list[str]:
    """Published updates that a host has not applied at the end, and holes in its frontier; but for those that nobody
    has since a process ended whose key a newer one has. It has to tell such holes when its run ends, which no run of a
    relay does."""
    liars, gone, frontier = host.chronicle.liars, _find_gone(hosts), host.node.frontier
    lost = {name for name in host.chronicle.updates if name[0] not in liars} - host.ledger.applied.keys()
    losses = [f"{host.name} never applied ({origin:016x}, {step})" for origin, step in sorted(lost - gone)]
    origins = [origin for origin in frontier.origins if origin not in liars]
    holes = [(one, *gap) for one in origins for gap in frontier.gaps(one, frontier.last(one))]
    if unexplained := [one for one in holes if not gone.issuperset(_steps(*one))]:
        losses.append(f"{host.name} ends with {len(unexplained)} holes in its frontier")
    elif not host.is_relay and (unreported := [one for one in holes if not _is_reported(host, *one)]):
        losses.append(f"{host.name} ends with {len(unreported)} holes in its frontier, and does not say so")
    return losses


def _is_reported(host: SeedfloodHost, origin: OriginId, first: int, last: int) -> bool:
    """Does the log say at the end of the run that these steps are missing?"""
    reports = [event.facts for event in host.events if event.name == "the run ends without some updates"]
    lines = [str(line) for facts in reports for line in facts["missing"]]  # type: ignore[attr-defined]
    name = host.node.membership.name(origin)
    return any(line.startswith(f"{name} steps ") and f" {first}-{last}," in f"{line}," for line in lines)


def _find_gone(hosts: Sequence[SeedfloodHost]) -> set[tuple[OriginId, int]]:
    """The steps that were only on the disk of a process that ended because a newer one had its key, and that no host
    holds, or only as steps that the newer one says it skips. If it has sent another update of such a step, that one is
    not gone."""
    steps, chronicle = set[tuple[OriginId, int]](), hosts[0].chronicle
    for bundle in chronicle.gone:
        if chronicle.bundles.get((bundle.origin, bundle.step), bundle) == bundle:
            steps |= _steps(bundle.origin, bundle.first_covered, bundle.last)
    skipped = {
        name for one in chronicle.bundles.values() for name in _steps(one.origin, one.first_covered, one.step - 1)
    }
    return {name for name in steps if name in skipped or not any(host.node.frontier.holds(*name) for host in hosts)}


def _steps(origin: OriginId, first: int, last: int) -> set[tuple[OriginId, int]]:
    return {(origin, step) for step in range(first, last + 1)}
