"""Three daemons behind mutual TLS, and what a member, or anyone with sockets, can do to one of them.

The attacker is an independent implementation (`attacker.mjs`: Node.js, grpc-js, the project's .proto, TLS and
signatures by Node's own library). Training goes on through all of it, memory and open files stay within bounds, forged
updates are counted and told, and in the end the sums of all epochs are equal on all hosts. How late the loops were is
in the output.

Who is refused for its certificate: `test_secured_strangers.py`. Floods of valid frames: `test_real_liars.py`.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from ledgers import Ledger
from members import HERE
from processes import Host, Hosts, ring
from watching import Look, Watch, facts_of, http_address, look, run_client

from seedflood.errors import ExitCode
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity
from seedflood.offline.learned import replay
from seedflood.transport import certificates

PERIOD = 50
RUN = {"clients": 3, "steps": 1_000_000, "window": "bounded", "refresh_period": PERIOD}
NODE = {"http": "127.0.0.1:0", "start_seconds": 60.0, "progress_seconds": 1}

MEMORY_BYTES_MAX = 192 << 20
"""A thousand connections of TLS took 76 to 107 MiB."""

FILES_MAX = 40
"""How many more files than before may be open when an attack is over."""

pytestmark = [pytest.mark.system, pytest.mark.long]


class Swarm:
    """hosts: the first one is attacked. memory: of all in peace."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        self.victim = hosts[0]
        watch = Watch(hosts)
        for host in hosts:
            host.wait_for("progress", step=host.step + 50)
        watch.finish()
        self.memory = watch.memory
        self._facts = facts_of(hosts[0]) | {
            "another": _seed((hosts[2].settings.node.state / KEY_FILE).read_bytes()),
            "run_before": bytes(32).hex(),
            "authority": certificates.authority().decode(),
        }

    def attack(self, kind: str) -> tuple[dict[str, Any], Look, Look]:
        """What the attacker says, and the victim before and after. Asserts what holds for every attack."""
        watch = Watch(self.hosts)
        for host in self.hosts:
            host.listen()
        address = self.victim.settings.node.listen
        facts = json.dumps(self._facts | _member())
        try:
            said = run_client(HERE / "attacker.mjs", facts, address, http_address(self.victim), kind)
            for host in self.hosts:
                host.wait_for("progress", step=host.step + 5)
        finally:
            watch.stop()
        after, lateness = watch.finish(0.97)
        grown = [now - peace for now, peace in zip(watch.memory, self.memory, strict=True)]
        files = [now.open_files - before.open_files for now, before in zip(after, watch.before, strict=True)]
        report = {"said": said, "late": lateness, "files": files}
        report["megabytes"] = [round(size / (1 << 20), 1) for size in grown]
        report["windows"] = [now.step - before.step for now, before in zip(after, watch.before, strict=True)]
        print(json.dumps(report), file=sys.stderr)
        assert all(one.is_ready for one in after), report
        assert max(grown) <= MEMORY_BYTES_MAX, report
        assert max(files) <= FILES_MAX, report
        return said, watch.before[0], after[0]

    def has_refused(self, words: str) -> bool:
        """Has the victim told so?"""
        told = [str(line.get("event")) for line in self.victim.events]
        return any(line.startswith("refused ipv4:127.0.0.1: ") and words in line for line in told)


def _seed(pem: bytes) -> str:
    key = load_pem_private_key(pem, None)
    assert isinstance(key, Ed25519PrivateKey)
    return key.private_bytes_raw().hex()


def _member() -> dict[str, str]:
    """A key that nobody has seen yet, with its certificate."""
    key = Ed25519PrivateKey.generate()
    own = certificates.issue(Identity(key), time.time())
    return {"seed": key.private_bytes_raw().hex(), "key": own.key_pem.decode(), "chain": own.chain_pem.decode()}


@pytest.fixture(scope="module")
def swarm(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    made = Hosts(tmp_path_factory.mktemp("attacks"))
    hosts = made.make(3, ring(3), RUN, NODE, tls={"loopback": True})
    try:
        for host in hosts:
            host.start()
        for host in hosts:
            host.wait_for("progress", step=20)
        yield Swarm(hosts)
    finally:
        made.close()


@pytest.mark.parametrize("kind", ["forgery", "usurpation", "replay"])
def test_a_member_cannot_speak_for_others(swarm: Swarm, kind: str) -> None:
    said, before, after = swarm.attack(kind)
    assert said["links"] == 1
    assert json.loads(said["ends"][0])["reason"] == "signature"
    assert after.gain(before, "seedflood_updates_rejected_total signature") >= 1
    assert after.gain(before, "seedflood_peer_faults_total signature") == 1
    assert swarm.has_refused("has a wrong signature")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("scalar", "a scalar is out of range"), ("step", "a step is beyond"), ("ping", "sent_at is not finite")],
)
def test_a_number_that_no_field_may_hold_ends_its_link(swarm: Swarm, kind: str, words: str) -> None:
    said, before, after = swarm.attack(kind)
    assert json.loads(said["ends"][0])["reason"] == "limit"
    assert after.gain(before, "seedflood_peer_faults_total limit") == 1
    assert swarm.has_refused(words)


def test_a_frame_of_a_hundred_megabytes_ends_its_link(swarm: Swarm) -> None:
    """gRPC refuses it by itself and cancels the stream, so no counter of ours and no line of the log tells of it."""
    said, _, _ = swarm.attack("flood")
    assert said["links"] == 1
    assert "larger than max" in said["ends"][0]


@pytest.mark.parametrize("kind", ["slow", "noise"])
def test_connections_that_get_nowhere_are_closed(swarm: Swarm, kind: str) -> None:
    said, _, _ = swarm.attack(kind)
    assert said["closed"] == said["opened"]


def test_a_thousand_connections_are_borne(swarm: Swarm) -> None:
    said, before, after = swarm.attack("thousand")
    assert said["links"] == 1000
    assert after.gain(before, "seedflood_tls_handshakes_total") >= 1000


def test_in_the_end_all_have_learned_the_same(swarm: Swarm) -> None:
    hosts = swarm.hosts
    step = max(look(host).step for host in hosts)
    for host in hosts:
        host.wait_for("progress", step=step + 2 * PERIOD)
    assert [look(host).values["seedflood_replica_mismatches_total"] for host in hosts] == [0, 0, 0]
    for host in hosts:
        host.signal(signal.SIGTERM)
    assert {host.end() for host in hosts} == {ExitCode.OK}
    ledger = Ledger(hosts[0])
    sums = [{closed.epoch: closed for closed in ledger.look(host.journal)[1]} for host in hosts]
    common = set.intersection(*map(set, sums))
    assert max(common) >= step // PERIOD
    for epoch in common:
        assert len({(one[epoch].frontier, one[epoch].coefficients) for one in sums}) == 1
    assert not ledger.contradictions
    assert all(replay(host.settings).is_sound for host in hosts)
