"""A host with two tongues: it says one thing to one neighbour and another thing to the next."""

import pytest
from worlds import make_world

from seedflood.protocol.messages import Updates
from seedflood.simulation.checks import find_stuck


def make_two_tongued(host, peer, steps):
    """To this neighbour it says something else about these steps."""
    send = host.send

    def forge(bundle):
        if bundle.origin != host.origin or bundle.step not in steps:
            return bundle
        ((seed, scalar),) = bundle.probes
        other = bundle._replace(probes=((seed, scalar + 1),))
        return other._replace(signature=host._sign(other.signed_bytes(host.rules.run_id, host.public_key)))

    def send_forged(to, messages):
        if to == peer.origin:
            messages = [
                Updates(tuple(map(forge, message.bundles))) if isinstance(message, Updates) else message
                for message in messages
            ]
        send(to, messages)

    host.send = send_forged
    host._check_said = lambda message: None


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
@pytest.mark.parametrize("steps", [{3}, {2, 3, 5, 8}, {19}])
def test_a_host_with_two_tongues_is_named_and_all_others_end_with_equal_journals_and_digests(window, steps):
    world = make_world("path", 5, steps=20, window=window, refresh_period=1000)
    liar, deceived = world.hosts[1], world.hosts[2]
    world.start()
    world.run_for(1.0)
    make_two_tongued(liar, deceived, steps)
    world.run(400)
    assert find_stuck(world.hosts) == []
    world.run_for(5)  # what is on its way arrives
    assert len({host.ledger.digest() for host in world.hosts}) == 1
    assert len({frozenset(host.journal.bundles.items()) for host in world.hosts}) == 1
    for host in world.hosts:
        named = {event.facts["step"] for event in host.events if event.name == "a host contradicts itself"}
        assert named == {step for step in steps if step in named}
        assert {e.facts["member"] for e in host.events if e.name == "a host contradicts itself"} <= {"h1"}
        assert named, f"{host.name} named nobody"
        assert not host.node.is_doubted
