"""Partitions: four hosts in four network namespaces on a ring, and the cable between the halves pulled and put back."""

import pytest
from ledgers import check_replays, finish
from networks import Network
from processes import Hosts, ring

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_in_strict_windows_both_halves_wait_and_go_on_when_the_network_is_whole(hosts: Hosts, network: Network):
    made = hosts.make(4, ring(4), {"steps": 80}, **network.attach_two_and_two())
    for host in made:
        host.start()
    made[0].wait_for("progress", step=30)
    network.cut()
    for host in made:
        host.wait_until_cut_off()
    network.heal()
    finish(made)
    assert {one.updates for one in check_replays(made)} == {4 * 80}


@pytest.mark.long
def test_in_bounded_windows_both_halves_go_on_and_have_the_same_in_the_end(hosts: Hosts, network: Network):
    made = hosts.make(4, ring(4), {"steps": 800, "window": "bounded"}, **network.attach_two_and_two())
    for host in made:
        host.start()
    made[0].wait_for("progress", step=30)
    network.cut()
    for host in made:
        host.wait_for("member silent")
        host.wait_for("progress", step=host.step + 50)
    network.heal()
    finish(made)
    assert len({one.updates for one in check_replays(made)}) == 1
    assert all(host.has_said("member heard again") for host in made)
