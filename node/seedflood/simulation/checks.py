"""What must hold, judged from outside: from what hosts published, journalled and applied, not from what they say."""

from collections.abc import Sequence

from seedflood.simulation.host import Host


def find_violations(hosts: Sequence[Host], *, left: Sequence[Host] = ()) -> list[str]:
    """Broken promises of finished, healed hosts; each in a sentence that names the host and the update.

    left: hosts that left the run. They are not judged, but what they published counts.
    """
    violations = []
    published = {(h.origin, step): probe for h in (*hosts, *left) for step, probe in h.published.items()}
    for host in hosts:
        for (origin, step), count in host.ledger.applied.items():
            if count != 1:
                violations.append(f"{host.name} applied ({origin:016x}, {step}) {count} times")
            if (origin, step) not in published:
                violations.append(f"{host.name} applied ({origin:016x}, {step}), which nobody published")
        lost = published.keys() - host.ledger.applied.keys()
        violations += [f"{host.name} never applied ({origin:016x}, {step})" for origin, step in sorted(lost)]
        for bundle in host.journal.bundles:
            for update in bundle.updates():
                if published.get((update.origin, update.step)) != (update.seed, update.scalar):
                    violations.append(f"{host.name} holds another ({update.origin:016x}, {update.step}) than published")
    if len({host.node.frontier.digest() for host in hosts}) > 1:
        violations.append("frontiers differ")
    if len({host.ledger.sum for host in hosts}) > 1:
        violations.append("coefficients differ")
    return violations


def find_stuck(hosts: Sequence[Host]) -> list[str]:
    """Who has not finished, and what it waits for."""
    return [
        f"{host.name} is {host.node.phase.value if host.is_up else 'down'} at step {host.node.step}"
        + (f", waits for {', '.join(host.node.waiting_for())}" if host.is_up else "")
        for host in hosts
        if not (host.is_up and host.is_finished)
    ]
