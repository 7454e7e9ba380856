"""Partitions: four hosts in four network namespaces on a ring, and the cable between the halves pulled and put back;
paths that lose large packets, and addresses of one link."""

import shutil

import pytest
from ledgers import check_replays, finish
from networks import PORT, Network
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
    assert all(host.has_said("member is back") for host in made)


def test_a_path_that_loses_large_packets_is_told_and_hosts_link_when_it_is_mended(hosts: Hosts, network: Network):
    """As behind a tunnel with a smaller MTU, of which no ICMP tells: connections open, and nothing large arrives."""
    if not shutil.which("iptables"):
        pytest.skip("needs iptables")
    addresses, spaces = zip(network.attach(0), network.attach(1), strict=True)
    made = hosts.make(2, [(0, 1)], {"steps": 5}, addresses=addresses, spaces=spaces)
    for space in spaces:
        network.lose_large_packets(space)
    for host in made:
        host.start()
    for host in made:
        assert host.wait(lambda line: "but the TLS handshake does not end; large packets" in str(line.get("event")))
    for space in spaces:
        network.lose_no_packets(space)
    finish(made)


def test_hosts_at_link_local_addresses_train_together(hosts: Hosts, network: Network):
    ends = [network.attach(side) for side in (0, 1)]
    spaces = [space for _, space in ends]
    listening, dialling = made = hosts.make(2, [], {"steps": 5}, addresses=(f"[::]:{PORT}", ""), spaces=spaces)
    device = network.device(dialling.space)
    with (dialling.folder / "peers.toml").open("a") as file:
        file.write(f'[[peers]]\naddress = "[{network.link_local(listening.space)}%{device}]:{PORT}"\n')
    for host in made:
        host.start()
    finish(made)
