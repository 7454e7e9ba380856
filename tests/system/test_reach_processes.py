"""Hosts behind NAT that others can dial all the same: a router passes the port on, or an overlay goes through it."""

import shutil
import signal
from pathlib import Path

import pytest
from ledgers import check_replays
from networks import PORT, Network, lacking_tables, mapped_ports
from processes import Host, Hosts

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

UPNP = f"upnp:{PORT}"
TUN = Path("/dev/net/tun")
RUN = {"steps": 40}
STAY = {"then": "serve"}


@pytest.fixture
def upnp(network: Network) -> Network:
    pytest.importorskip("miniupnpc")
    need("miniupnpd", "iptables", "iptables-legacy")
    if lacks := lacking_tables():
        pytest.skip(f"needs legacy iptables: {lacks}")
    return network


@pytest.fixture
def overlay(network: Network) -> Network:
    need("wireguard-go", "iptables")
    try:
        TUN.open("r+b", buffering=0).close()
    except OSError as error:
        pytest.skip(f"needs {TUN}: {error.strerror}")
    return network


def need(*programs: str) -> None:
    if missing := [one for one in programs if not shutil.which(one)]:
        pytest.skip(f"needs {', '.join(missing)}")


def let_dial(host: Host, *addresses: str) -> None:
    with (host.folder / "peers.toml").open("a") as file:
        file.writelines(f'[[peers]]\naddress = "{one}"\n' for one in addresses)


def check_end(hosts: list[Host]) -> list[set[str]]:
    """The run is over, and all have one digest; now they are stopped. Whom each was linked with."""
    for one in hosts:
        one.signal(signal.SIGTERM)
    assert [one.end() for one in hosts] == [0] * len(hosts)
    assert len({one.updates for one in check_replays(hosts)}) == 1
    results = [one.result() for one in hosts]
    assert len({result["digest"] for result in results}) == 1
    return [{link["peer"] for link in result["links"]} for result in results]


def test_a_router_that_is_asked_lets_others_dial_in_until_the_node_is_stopped(hosts: Hosts, upnp: Network):
    home, outside, router = upnp.attach_behind_upnp(0)
    address, space = upnp.attach(1)
    spaces = (home, upnp.attach_behind_nat(1), space)
    mapped, other, third = made = hosts.make(3, [], RUN, STAY, addresses=(UPNP, UPNP, address), spaces=spaces)
    let_dial(mapped, address)
    let_dial(other, outside)
    for one in made:
        one.start()
    assert mapped.wait_for("port mapped")["address"] == outside
    assert "no connected router answers to UPnP" in other.wait_for("port not mapped")["reason"]
    for one in made:
        one.wait_for("finished")
    assert mapped_ports(router) == 1
    mapped.told_by_peers(f"^h2 sees this host as {outside}, ")
    assert check_end(made) == [{"h1", "h2"}, {"h0"}, {"h0"}]
    assert mapped_ports(router) == 0
    assert not any("mapped" in line.get("event", "") for line in third.events)


def test_a_relay_that_is_stopped_before_it_knows_its_run_closes_the_port(hosts: Hosts, upnp: Network):
    home, outside, router = upnp.attach_behind_upnp(0)
    [relay] = hosts.make(1, [], RUN, {"role": "relay"}, addresses=(UPNP,), spaces=(home,))
    assert relay.start().wait_for("port mapped")["address"] == outside
    assert mapped_ports(router) == 1
    relay.signal(signal.SIGTERM)
    assert relay.end() == 0
    assert mapped_ports(router) == 0


def test_hosts_of_an_overlay_dial_each_other_through_nat(hosts: Hosts, overlay: Network):
    home = overlay.attach_behind_nat(0)
    outside, space = overlay.attach(1)
    addresses = overlay.lay_over(home, space, outside)
    _, dials = made = hosts.make(2, [], RUN, STAY, addresses=addresses, spaces=(home, space))
    let_dial(dials, addresses[0])
    for one in made:
        one.start()
    for one in made:
        one.wait_for("finished")
    dials.told_by_peers(f"^h0 sees this host as {addresses[1]}, ")
    assert check_end(made) == [{"h1"}, {"h0"}]
