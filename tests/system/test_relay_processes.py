"""Relays as processes, without a single package of the extra `train`: two hosts that can only dial reach each other
through them, on one machine and behind NAT."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import recipe
from ledgers import check_replays, finish
from networks import BLOCK, OVERLAY_MTU, PORT, Network
from processes import RUN, Host, Hosts, Line

from benchmarks.server import without
from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, spell

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EXTRA = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["train"]
BLOCKED = {re.split(r"[<>=]", one)[0] for one in EXTRA}
WITHOUT_EXTRA = without(BLOCKED)
RELAY = (sys.executable, "-c", WITHOUT_EXTRA, "relay", "--peers", "peers.toml")
MEBIBYTES_MAX = 150


class Swarm:
    """Two hosts that train and listen nowhere, and relays that all of them dial."""

    def __init__(
        self,
        hosts: Hosts,
        relays: list[tuple[str, str]],
        homes: tuple[str, str] = ("", ""),
        listen: str = "",
        **run: Any,
    ):
        """relays: (address, namespace) of each. homes: the namespaces of the two hosts. listen: where these do."""
        self._hosts = hosts
        self._run = RunSettings.place(RUN | {"clients": 2} | run)
        addresses = [address for address, _ in relays]
        self.relays = [
            self._place(f"relay{k}", RELAY, space, addresses[:k], listen=address)
            for k, (address, space) in enumerate(relays)
        ]
        self.hosts = [
            self._place(f"h{k}", (), home, addresses, evaluate_examples=0, threads=1, listen=listen)
            for k, home in enumerate(homes)
        ]
        for one in (*self.relays, *self.hosts):
            one.start()

    def _place(self, name: str, command: tuple[str, ...], space: str, dials: list[str], **node: Any) -> Host:
        folder = self._hosts.folder / name
        folder.mkdir()
        usual = {"name": name, "listen": "", "state": str(folder / "state"), "progress_seconds": 0}
        text = spell({"run": self._run, "node": usual | node})
        text += "".join(f'[[peers]]\naddress = "{address}"\n' for address in dials)
        (folder / "peers.toml").write_text(text)
        self._hosts.hosts.append(Host(folder, space, command))
        return self._hosts.hosts[-1]

    def told_by_peers(self, host: Host, *patterns: str) -> str:
        return host.told_by_peers(*patterns, program=WITHOUT_EXTRA)

    def end(self, *relays: Host) -> dict[str, set[str]]:
        """Waits for the end of the hosts and of these relays, which have one digest. Whom each was linked with."""
        assert [one.end() for one in (*self.hosts, *relays)] == [0] * (2 + len(relays))
        assert len({one.updates for one in check_replays(self.hosts)}) == 1
        results = [one.result() for one in (*self.hosts, *relays)]
        assert len({result["digest"] for result in results}) == 1
        return {result["name"]: {link["peer"] for link in result["links"]} for result in results}


@pytest.fixture
def nat(network: Network) -> Network:
    if not shutil.which("iptables"):
        pytest.skip("needs iptables, to put hosts behind NAT")
    return network


def mebibytes(host: Host) -> float:
    """The most memory that it has had."""
    assert host.process is not None
    said = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{host.process.pid}/status").read_text(), re.MULTILINE)
    assert said is not None
    return int(said[1]) / 1024


def free_address() -> str:
    return f"127.0.0.1:{reserve_ports(1)[0]}"


@pytest.mark.long
def test_a_relay_needs_nothing_that_training_needs_and_ends_with_the_hosts(hosts: Hosts):
    swarm = Swarm(hosts, [(free_address(), "")], steps=100, refresh_period=20)
    relay = swarm.relays[0]
    assert relay.wait_for("learned the base model and the form of updates")["peer"] in ("h0", "h1")
    relay.wait_for("progress", step=80)
    assert mebibytes(relay) < MEBIBYTES_MAX
    swarm.end(relay)
    assert not relay.has_said("waiting")
    told = json.loads((swarm.hosts[0].folder / "state/result.json").read_text())["result"]
    relay.start()
    assert relay.end() == 0
    assert relay.result()["digest"] == told["digest"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry", "words"), [("node_main", ()), ("main", ("generate", "--model", "embedded", "a gripping film"))]
)
def test_whoever_needs_a_model_hears_how_to_install_what_is_missing(tmp_path: Path, entry: str, words: tuple[str, ...]):
    (tmp_path / "peers.toml").write_text('[node]\nlisten = ""\n')
    program = WITHOUT_EXTRA.replace("import main", f"import {entry} as main")
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 78
    assert "pip install 'seedflood[train]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_relay_that_is_killed_knows_the_run_when_it_comes_back_and_serves_who_lost_its_disk(hosts: Hosts):
    swarm = Swarm(hosts, [(free_address(), "")], steps=200)
    relay, host = swarm.relays[0], swarm.hosts[0]
    relay.wait_for("progress", step=30)
    relay.kill()
    relay.start()
    assert relay.wait_for("started")["journal_bundles"] > 0
    host.kill()
    shutil.rmtree(host.folder / "state")
    host.start()
    host.wait_for("caught up", updates=30)
    assert not relay.has_said("learned again")
    relay.signal(signal.SIGTERM)
    assert relay.end() == 0


@pytest.mark.long
def test_who_has_trained_in_a_run_is_no_relay_in_it(hosts: Hosts):
    swarm = Swarm(hosts, [(free_address(), "")], steps=10**6)
    host = swarm.hosts[0]
    host.wait_for("progress", step=1)
    host.kill()
    host.command = (*RELAY[:-2], "--peers", str(host.folder / "peers.toml"))
    host.start()
    assert host.end() == 78
    assert "has trained in this run" in host.events[-1]["event"]


@pytest.mark.long
def test_two_hosts_behind_nat_and_a_relay_end_a_run_with_one_digest(hosts: Hosts, nat: Network):
    where = nat.attach(0)
    homes = (nat.attach_behind_nat(0), nat.attach_behind_nat(1, mtu=OVERLAY_MTU))
    swarm = Swarm(hosts, [where], homes, listen=f"0.0.0.0:{PORT}", steps=300)
    swarm.hosts[0].wait_for("progress", step=10)
    swarm.told_by_peers(
        swarm.hosts[0],
        rf"^relay0 sees this host as {BLOCK}\.\d+:{PORT}, and it cannot be dialled there",
        "^Without relay0 this host would be cut off from h1",
    )
    linked = swarm.end(swarm.relays[0])
    assert linked == {"h0": {"relay0"}, "h1": {"relay0"}, "relay0": {"h0", "h1"}}


@pytest.mark.long
def test_the_readmes_two_laptops_and_a_small_server_end_with_one_digest(
    hosts: Hosts, nat: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(recipe.STEPS, "100")
    init, relay, start = recipe.with_a_relay()
    address, server = nat.attach(0)
    spaces = {"server": server, "ada": nat.attach_behind_nat(0), "bob": nat.attach_behind_nat(1)}
    for space in spaces.values():
        nat.name(space, {"server.example.org": address.removesuffix(f":{PORT}")})
    (tmp_path / ".venv").symlink_to(sys.prefix)
    subprocess.run(["bash", "-ec", init], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    for name, space in spaces.items():
        folder = tmp_path / "run" / name
        (folder / ".venv").symlink_to(sys.prefix)
        command = ("bash", "-c", f"exec {relay if name == 'server' else start}")
        hosts.hosts.append(Host(folder, space, command).start())
    results = finish(hosts.hosts)
    assert {result["name"]: {link["peer"] for link in result["links"]} for result in results} == {  # type: ignore[attr-defined]
        "server": {"ada", "bob"},
        "ada": {"server"},
        "bob": {"server"},
    }


def moment_of(line: Line) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


@pytest.mark.long
def test_of_two_relays_one_may_be_killed_and_nobody_loses_ten_seconds(hosts: Hosts, nat: Network):
    relays = [nat.attach(0), nat.attach(1)]
    swarm = Swarm(hosts, relays, (nat.attach_behind_nat(0), nat.attach_behind_nat(1)), steps=800)
    host = swarm.hosts[0]
    first, last = (host.wait_for("progress", step=step) for step in (20, 50))
    usual_seconds = (moment_of(last) - moment_of(first)).total_seconds()
    told = swarm.told_by_peers(
        swarm.relays[1], f"^relay0 sees this host as {relays[1][0]}, and it can be dialled there"
    )
    assert "cut off" not in told
    swarm.relays[0].kill()
    killed = time.monotonic()
    host.wait_for("link down")
    host.wait_for("progress", step=last["step"] + 30)
    assert time.monotonic() - killed < 10.0 + usual_seconds
    swarm.end(swarm.relays[1])
