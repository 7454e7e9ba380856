"""Hosts behind NAT that others can dial all the same: an overlay goes through it."""

import shutil
import signal
from pathlib import Path

import pytest
from ledgers import check_replays
from networks import Network
from processes import Host, Hosts

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

TUN = Path("/dev/net/tun")
RUN = {"steps": 40}
STAY = {"then": "serve"}


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
