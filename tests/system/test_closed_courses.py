"""A course of closed runs over TLS, amid strangers, and with hosts that come too early or are killed too late."""

import asyncio
import contextlib
import secrets
import shutil
import sqlite3
from typing import Any

import grpc
import grpc.aio
import pytest
from processes import Host, Hosts, ring

from seedflood.config import RunSettings, load_course, spell
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity
from seedflood.protocol.swarm.messages import Hello, Member
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.roster_file import SignedRoster, write_roster
from seedflood.storage.tables import signed
from seedflood.transport import codec
from seedflood.transport.credentials import Credentials
from seedflood.transport.server import CHANNEL_OPTIONS, LINK_PATH

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

ALIKE: dict[str, Any] = {"estimate": "gradient", "batch_size": 2, "model": "embedded", "task": "embedded"}


class Course:
    """Two closed runs. The first hosts are on the roster of both, the others on that of the second one alone, and are
    started with its file."""

    def __init__(self, hosts: Hosts, both: int, later: int = 0, **node: Any) -> None:
        operator, count = Identity.generate(), both + later
        closed = {"operator": operator.public_key.hex()} | ALIKE
        first = {"name": "first", "steps": 200, "clients": both} | closed
        second = {"name": "second", "steps": 60, "clients": count} | closed
        usual = {"roster": "1.json", "then": "second.toml", "patience_seconds": 0.0}
        made = hosts.make(count, ring(count), first, usual | node)
        keys = [Identity.load_or_create(host.folder / "state" / KEY_FILE).public_key for host in made]
        entries = tuple(Entry(host.name, key) for host, key in zip(made, keys, strict=True))
        for host in made:
            for number, run, listed in ((1, "first", entries[:both]), (2, "second", entries)):
                path = host.folder / f"{number}.json"
                write_roster(path, SignedRoster.sign(operator, run, Roster(1, listed)))
            text = (host.folder / "peers.toml").read_text()
            for other, key in zip(made, keys, strict=True):
                address = f'address = "{other.settings.node.listen}"\n'
                text = text.replace(f"[[peers]]\n{address}", f'[[peers]]\norigin = "{key.hex()}"\n{address}')
            (host.folder / "peers.toml").write_text(text)
            following = {"run": RunSettings.place(second), "node": {"roster": "2.json"}}
            (host.folder / "second.toml").write_text(spell(following))
        for host in made[both:]:
            path = host.folder / "peers.toml"
            _, _, rest = path.read_text().partition("[node]")
            rest = rest.replace("1.json", "2.json").replace('then = "second.toml"\n', "")
            path.write_text(spell({"run": RunSettings.place(second)}) + "[node]" + rest)
        self.hosts = made
        self.runs = load_course(made[0].folder / "peers.toml")[0].runs


async def claim(address: str, run: str) -> tuple[grpc.StatusCode, str]:
    """What a stranger hears that says to be in this run, of which it knows the beginning."""
    identity = Identity.generate()
    run_id = bytes.fromhex(run) + secrets.token_bytes(24)
    hello = Hello(run_id, bytes(32), Member(identity.public_key, "stranger", 1, signature=bytes(64)))
    way = Credentials(identity).open(address, CHANNEL_OPTIONS)
    async with way.channel:
        call = way.channel.stream_stream(LINK_PATH)()
        for frame in codec.encode(hello):
            await call.write(frame)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        return await call.code(), await call.details()


def end_well(*made: Host) -> None:
    assert [host.end() for host in made] == [0] * len(made)
    last = [host.result() for host in made]
    assert {one["run"] for one in last} == {"second"}
    assert len({one["digest"] for one in last}) == 1


def test_a_stranger_that_says_to_be_in_the_next_run_ends_nobody_and_sends_nobody_on(hosts):
    course = Course(hosts, 2)
    for host in course.hosts:
        host.start()
    for host in course.hosts:
        host.wait_for("progress", step=5)
        code, _ = asyncio.run(claim(host.settings.node.listen, course.runs[1]))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
    for host in course.hosts:
        host.wait_for("progress", step=150)
    end_well(*course.hosts)
    for host in course.hosts:
        assert len([line for line in host.events if line.get("event") == "finished"]) == 2


def test_a_host_that_is_started_early_in_the_next_run_does_no_harm_and_gets_on_when_the_others_come(hosts):
    a, b, early = Course(hosts, 2, 1).hosts
    for host in (early, a, b):
        host.start()
    for host in (a, b):
        host.wait_for("finished")
        assert early.step == 0
    assert any("is in another run of the course" in line["event"] for line in early.events)
    end_well(a, b, early)


def test_a_host_that_was_killed_before_it_heard_that_all_have_ended_gets_on_when_all_others_are_in_the_next_run(hosts):
    course = Course(hosts, 3)
    a, b, late = course.hosts
    for host in course.hosts:
        host.start()
    for host in course.hosts:
        host.wait_for("goes on to the next run")
    late.kill()
    shutil.rmtree(late.folder / "state" / f"run-{course.runs[1]}", ignore_errors=True)
    own = signed(Identity.load(late.folder / "state" / KEY_FILE).origin)
    with contextlib.closing(sqlite3.connect(late.journal)) as journal, journal:
        journal.execute("DELETE FROM members WHERE origin != ?", (own,))
    a.kill()  # it knows from its disk that all have ended
    a.start().wait_for("started")
    late.start()
    end_well(a, b, late)
