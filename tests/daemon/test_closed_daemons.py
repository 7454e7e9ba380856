"""Whole nodes of a closed run, over real gRPC: who is not on the roster is heard by nobody."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clusters import Closed, Cluster, PinnedCluster
from seedflood.errors import ConfigError, RemovedError, RunMismatchError
from seedflood.host.daemon import Daemon
from seedflood.host.enrolment import Enrolment
from seedflood.identity import Identity, verify
from seedflood.operations.metrics import make_scrape
from seedflood.operations.status import describe
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.swarm.admission import NOT_LISTED
from seedflood.protocol.swarm.messages import Member, Members, Ping
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.roster_file import read_roster
from seedflood.transport.owner import LinkSettings
from seedflood.transport.server import DialledStream


@pytest.fixture
def closed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Closed:
    """Hosts that are refused dial again soon; else it is up to half a minute."""
    monkeypatch.setattr("seedflood.host.daemon.LinkSettings", partial(LinkSettings, redial_seconds_max=0.5))
    return Closed(cluster, tmp_path)


def is_linked(one: Daemon, other: OriginId) -> bool:
    return other in one.links.open


async def test_hosts_of_a_closed_run_train_and_end_with_one_digest(closed: Closed) -> None:
    closed.enrol("a", "b", "c")
    run = {"clients": 3, "steps": 10, "window": "strict"}
    for name, peers in (("a", []), ("b", ["a"]), ("c", ["b"])):
        await closed.start(name, peers, **run)
    daemons = list(closed.cluster.daemons.values())
    await closed.cluster.until(lambda: all(daemon.result is not None for daemon in daemons))
    assert len({str(daemon.result["digest"]) for daemon in daemons if daemon.result}) == 1


async def start_heedless(
    closed: Closed, name: str, peers: list[str], monkeypatch: pytest.MonkeyPatch, **run: Any
) -> Daemon:
    """A host that heeds no roster, and brings none."""
    with monkeypatch.context() as patched:
        patched.setattr(Enrolment, "open", classmethod(lambda cls, settings, _: cls(None, "", settings.node.state)))
        return await closed.start(name, peers, **{"clients": 3} | run)


def metrics_of(daemon: Daemon) -> str:
    return make_scrape(daemon.hub)().decode()


async def test_a_stranger_is_refused_in_its_hello_which_is_counted_and_logged_once(
    closed: Closed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed.enrol("a", "b")
    a, b = await closed.start("a", [], clients=3), await closed.start("b", ["a"], clients=3)
    closed.make_key("c")
    c = await start_heedless(closed, "c", ["a"], monkeypatch)
    await closed.cluster.until(lambda: is_linked(a, b.node.origin) and describe(a.hub)["roster"]["refused"] >= 1)
    # It dials again and again. What operators are shown is as old as the last turn of the daemon, so it is waited for.
    await closed.cluster.until(lambda: describe(a.hub)["roster"]["refused"] == a.links.totals.faults["roster"])
    times = a.links.totals.faults["roster"]
    assert not is_linked(a, c.node.origin)
    assert c.node.origin not in a.node.membership
    assert a.node.admission.refused == {"stranger": times}
    lines = [record.getMessage() for record in caplog.records if NOT_LISTED in record.getMessage()]
    assert sum(line.startswith("refused ") for line in lines) == 1
    scraped = metrics_of(a)
    assert f'seedflood_peer_faults_total{{reason="roster"}} {times}.0' in scraped
    assert f'seedflood_updates_rejected_total{{reason="stranger"}} {times}.0' in scraped
    assert "seedflood_run_closed 1.0" in scraped
    assert "seedflood_roster_serial 2.0" in scraped
    assert "seedflood_roster_hosts 2.0" in scraped
    assert "seedflood_run_closed 0.0" in metrics_of(c)
    told = {"serial": 2, "hosts": 2, "gone": 0, "refused": times, "removals": [], "contradicted": 0}
    assert describe(a.hub)["roster"] == told


async def test_what_a_valid_peer_passes_on_of_a_stranger_is_neither_verified_nor_kept_nor_logged(
    closed: Closed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed.enrol("a", "b")
    a, b = await closed.start("a", [], clients=3), await closed.start("b", ["a"], clients=3)
    await closed.cluster.until(lambda: is_linked(b, a.node.origin) and is_linked(a, b.node.origin))
    verified: list[bytes] = []
    admission = a.node.admission
    monkeypatch.setattr(
        admission, "_verify", lambda key, message, signature: verified.append(key) or verify(key, message, signature)
    )
    strangers, run_id = [Identity.generate() for _ in range(100)], a.hello().run_id
    for k, stranger in enumerate(strangers):
        member = Member(stranger.public_key, "mallory", 1)
        member = replace(member, signature=stranger.sign(member.signed_bytes(run_id)))
        bundle = make_bundle(stranger.origin, k, ((1, 2),))
        bundle = bundle.with_signature(stranger.sign(bundle.signed_bytes(run_id, stranger.public_key)))
        b.links.send(a.node.origin, (Members((member,)), Updates((bundle,))))
        await asyncio.sleep(0)
    await closed.cluster.until(lambda: admission.refused.get("stranger", 0) >= 200)
    assert not {stranger.public_key for stranger in strangers} & set(verified)
    origins = {stranger.origin for stranger in strangers}
    assert not origins & {*a.node.membership.origins(), *a.node.frontier.origins}
    assert is_linked(a, b.node.origin)  # it may only have been faster than we with a new roster
    assert not [record for record in caplog.records if "mallory" in record.getMessage()]


async def test_a_roster_of_an_old_serial_is_ignored_and_a_forged_one_ends_the_link(closed: Closed) -> None:
    closed.enrol("a", "b")
    old = closed.roster
    closed.enrol("c")
    a, b = await closed.start("a", [], clients=3), await closed.start("b", ["a"], clients=3)
    await closed.cluster.until(lambda: is_linked(b, a.node.origin) and is_linked(a, b.node.origin))
    stranger = Member(Identity.generate().public_key, "eve", 1, signature=bytes(64))
    b.links.send(a.node.origin, (old, Members((stranger,))))  # whose refusal tells that the roster was heard
    await closed.cluster.until(lambda: a.node.admission.refused.get("stranger", 0) > 0)
    assert a.access.roster == closed.roster
    assert is_linked(a, b.node.origin)
    b.links.send(a.node.origin, (replace(old, serial=99),))
    await closed.cluster.until(lambda: a.links.totals.faults["roster"] > 0)
    assert a.access.roster == closed.roster


async def test_a_host_that_is_removed_ends_and_the_others_end_the_run_with_one_digest(closed: Closed) -> None:
    closed.enrol("a", "b", "c")
    old = closed.copy("old.json")
    run = {"clients": 3, "steps": 80}
    a = await closed.start("a", [], **run)
    b = await closed.start("b", ["a"], roster=old, **run)
    c = await closed.start("c", ["a", "b"], roster=old, **run)
    await closed.cluster.until(lambda: min(one.node.step for one in (a, b, c)) >= 5)
    closed.remove("c")
    closed.give(a)
    await closed.cluster.until(c.ended.done)
    with pytest.raises(RemovedError, match="the operator has removed this host"):
        await c.ended
    await closed.cluster.until(lambda: a.result is not None and b.result is not None)
    assert b.access.roster == a.access.roster == closed.roster
    assert a.result is not None
    assert b.result is not None
    assert a.result["digest"] == b.result["digest"]
    assert {member["name"]: member["status"] for member in describe(a.hub)["members"]}["c"] == "removed"
    assert a.node.frontier.last(c.node.origin) == b.node.frontier.last(c.node.origin) < 79
    with pytest.raises(ConfigError, match="the operator has removed this host, c"):
        await closed.start("c", ["a"], **run)


async def test_a_host_that_was_removed_while_it_was_down_hears_it_from_whom_it_dials_and_ends(closed: Closed) -> None:
    closed.enrol("a", "b")
    old = closed.copy("old.json")
    closed.remove("b")
    await closed.start("a", [], clients=2)
    b = await closed.start("b", ["a"], roster=old, clients=2)
    await closed.cluster.until(b.ended.done)
    with pytest.raises(RemovedError, match="the operator has removed this host"):
        await b.ended
    assert b.access.roster == closed.roster


async def test_a_removal_that_only_the_removed_host_was_told_of_is_passed_on_by_it(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its links are busy right then."""
    closed.enrol("a", "b", "c")
    old, run = closed.copy("old.json"), {"clients": 3, "steps": 1_000_000}
    a, b = await closed.start("a", [], roster=old, **run), await closed.start("b", ["a"], roster=old, **run)
    c = await closed.start("c", ["a"], **run)
    await closed.cluster.until(lambda: min(one.node.step for one in (a, b, c)) >= 3)
    may_go_on, is_busy, write = asyncio.Event(), asyncio.Event(), DialledStream.write

    async def write_later(stream: DialledStream, frame: bytes) -> None:
        is_busy.set()
        await may_go_on.wait()
        await write(stream, frame)

    monkeypatch.setattr(DialledStream, "write", write_later)
    c.links.send(a.node.origin, [Ping(1.0)])
    await is_busy.wait()
    closed.remove("c")
    closed.give(c)
    assert isinstance(c.ended.exception(), RemovedError)
    closing = asyncio.create_task(c.close())
    for _ in range(10):
        await asyncio.sleep(0)
    may_go_on.set()
    await closing
    await closed.cluster.until(lambda: a.access.roster == b.access.roster == closed.roster)


async def test_a_removed_host_that_heeds_no_roster_stays_out_even_of_a_host_that_starts_again(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed.enrol("a", "b", "c")
    old = closed.copy("old.json")
    run = {"clients": 3, "steps": 1_000_000}
    a = await closed.start("a", [], **run)
    b = await closed.start("b", ["a"], roster=old, **run)
    c = await start_heedless(closed, "c", ["a", "b"], monkeypatch, **run)
    await closed.cluster.until(lambda: min(one.node.step for one in (a, b, c)) >= 5)
    closed.remove("c")
    closed.give(a)
    gone = c.node.origin
    await closed.cluster.until(
        lambda: not (is_linked(a, gone) or is_linked(b, gone)) and b.access.roster == closed.roster
    )
    held = a.node.frontier.last(gone)
    await b.close()
    b = await closed.start("b", ["a"], roster=old, **run)  # it has kept the newer one
    assert b.access.roster == closed.roster
    assert b.node.frontier.last(gone) >= 0
    with closed.cluster.held(a, b, c):
        await closed.cluster.until(lambda: b.links.totals.faults["removed"] + a.links.totals.faults["removed"] > 1)
    step = b.node.step
    await closed.cluster.until(lambda: b.node.is_ready and b.node.step > step + 5)
    assert b.node.frontier.last(gone) == a.node.frontier.last(gone) >= held
    assert not is_linked(b, gone)


async def test_a_newcomer_is_let_in_by_the_roster_that_it_brings(closed: Closed) -> None:
    closed.enrol("a", "b")
    first = closed.copy("first.json")
    run = {"clients": 2, "steps": 1_000_000}
    a, b = await closed.start("a", [], roster=first, **run), await closed.start("b", ["a"], roster=first, **run)
    await closed.cluster.until(lambda: a.node.step >= 3)
    closed.enrol("c")
    c = await closed.start("c", ["a"], **run)
    await closed.cluster.until(lambda: c.node.is_ready and c.node.origin in b.node.membership)
    assert a.access.roster == b.access.roster == closed.roster
    assert read_roster(closed.folder / "a" / "roster.json").roster == closed.roster


@pytest.mark.long
async def test_who_is_admitted_in_place_of_a_removed_host_begins_where_a_strict_run_is(closed: Closed) -> None:
    closed.enrol("a", "b", "c")
    run = {"clients": 3, "steps": 120, "window": "strict"}
    a, b, c = [await closed.start(name, peers, **run) for name, peers in (("a", []), ("b", ["a"]), ("c", ["a", "b"]))]
    await closed.cluster.until(lambda: a.node.step >= 10)
    closed.remove("c")
    closed.give(a)
    with pytest.raises(RemovedError):
        await c.ended
    await closed.cluster.until(lambda: a.node.step >= 20)
    closed.enrol("d")
    d = await closed.start("d", ["a", "b"], **run)
    await closed.cluster.until(lambda: all(one.result is not None for one in (a, b, d)))
    assert len({str(one.result["digest"]) for one in (a, b, d) if one.result}) == 1
    word = a.node.membership.spoken(d.node.origin)
    assert word is not None
    assert word.first_step >= 20


async def test_a_host_that_cannot_take_part_is_told_what_to_do(closed: Closed) -> None:
    closed.enrol("a")
    with pytest.raises(ConfigError, match="so this host needs the roster that the operator signed"):
        await closed.cluster.start("x", [], {"operator": closed.operator.public_key.hex()})
    with pytest.raises(
        ConfigError, match=r"not on the roster \(serial 2\): its operator adds it by `seedflood roster add"
    ):
        await closed.start("b", [])
    closed.sign(closed.roster.adding(Entry("c", bytes([1] * 32))))
    with pytest.raises(ConfigError, match="lists c with another key than that of this host: put its own identity"):
        await closed.start("c", [])
    with pytest.raises(ConfigError, match=re.escape('is for the run "run", but [run] name is "two"')):
        await closed.start("a", [], name="two")
    with pytest.raises(ConfigError, match="is signed by the operator"):
        await closed.start("a", [], operator="ab" * 32)
    key = closed.make_key("late").public_key
    closed.sign(closed.roster.adding(Entry("late", key, not_after=0), Entry("relay", bytes(32), ("relay",))))
    closed.sign(Roster(9, (Entry("late", key, ("read",)),)))
    with pytest.raises(ConfigError, match="with the role read, and it was started to train"):
        await closed.start("late", [])


NEXT_YEAR = int(time.time()) + 365 * 86_400
DECADES = 43 * 365 * 86_400


def limit(closed: Closed, *names: str, until: int = NEXT_YEAR) -> None:
    """The operator gives these hosts time until then."""
    entries = (closed.roster.named(name) for name in names)
    closed.sign(closed.roster.adding(*(replace(entry, not_after=until) for entry in entries if entry is not None)))


def shift(daemon: Daemon, seconds: float) -> None:
    """Sets the clock of one host ahead, also the one that nobody can set."""
    daemon.access.calendar = daemon.access.settled = lambda: time.time() + seconds


@pytest.mark.parametrize("seconds", [DECADES, -DECADES])
async def test_a_clock_that_is_wrong_for_a_while_ends_nobody_and_all_end_with_one_digest(
    closed: Closed, seconds: int
) -> None:
    closed.enrol("a", "b", "c")
    entries = [replace(one, not_before=int(time.time()) - 86_400, not_after=NEXT_YEAR) for one in closed.roster.entries]
    closed.sign(closed.roster.adding(*entries))
    run = {"clients": 3, "steps": 120, "window": "strict"}  # more than it takes while a clock is looked at once
    a, b, c = [await closed.start(name, peers, **run) for name, peers in (("a", []), ("b", ["a"]), ("c", ["a", "b"]))]
    await closed.cluster.until(lambda: min(one.node.step for one in (a, b, c)) >= 5)
    shift(b, seconds)
    await closed.cluster.until(lambda: b.access.is_untimely and not a.ended.done())
    said = describe(b.hub)
    assert (said["state"], said["is_ready"]) == ("out of time", False)
    assert re.search(
        r"this host's clock reads (2069|1983|2070)-.* its neighbours' 20\d\d-.*\(a\)", said["why_not_ready"]
    )
    step = b.node.step
    await closed.cluster.until(lambda: b.clocks.fault() is not None)
    assert not b.ended.done()
    assert b.node.step <= step + 1
    shift(b, 0.0)
    await closed.cluster.until(lambda: all(one.result is not None for one in (a, b, c)))
    assert len({str(one.result["digest"]) for one in (a, b, c) if one.result}) == 1
    said_so = [event["event"] for event in b.hub.events]
    assert said_so.index("waits for its clock") < said_so.index("goes on: its clock lets it take part")


async def test_a_host_whose_time_is_over_waits_and_goes_on_when_a_neighbour_has_a_roster_that_gives_it_more(
    closed: Closed,
) -> None:
    closed.enrol("a", "b")
    limit(closed, "b", until=int(time.time()) - 60)
    old, run = closed.copy("old.json"), {"clients": 2, "steps": 20, "window": "strict"}
    a = await closed.start("a", [], roster=old, **run)
    b = await closed.start("b", ["a"], roster=old, **run)
    await closed.cluster.until(lambda: a.links.totals.faults["removed"] > 0 and "(a)" in (b.clocks.fault() or ""))
    assert not b.ended.done()
    assert (a.node.step, b.node.step) == (0, 0)
    limit(closed, "b")
    closed.give(a)
    await closed.cluster.until(lambda: a.result is not None and b.result is not None)
    assert b.access.roster == closed.roster


async def test_in_a_bounded_run_a_host_that_is_down_keeps_no_epoch_open_and_takes_the_sums_when_it_returns(
    closed: Closed,
) -> None:
    closed.enrol("a", "b", "c")
    run = {"clients": 3, "steps": 64, "window": "bounded", "refresh_period": 4, "rank": 1}
    a = await closed.start("a", [], **run)
    b = await closed.start("b", ["a"], **run)
    c = await closed.start("c", ["a", "b"], **run)
    await closed.cluster.until(lambda: min(one.node.step for one in (a, b, c)) >= 6)
    await c.close()
    left_at = c.node.frontier.last(c.node.origin)
    await closed.cluster.until(lambda: min(one.node.closings.compacted(a.node.origin).count() for one in (a, b)) >= 32)
    assert a.node.frontier.last(c.node.origin) <= left_at
    scraped = metrics_of(a)
    assert 'seedflood_algorithm_figure{name="quorum"} 2.0' in scraped
    assert 'seedflood_algorithm_figure{name="hosts_with_other_sums"} 0.0' in scraped
    assert describe(a.hub)["words"]["other sums"] == "none"
    c = await closed.start("c", ["a", "b"], **run)
    await closed.cluster.until(lambda: all(one.result is not None for one in (a, b, c)))
    assert len({str(one.result["digest"]) for one in (a, b, c) if one.result}) == 1
    assert c.node.frontier.last(a.node.origin) == 63


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Closed]:
    cluster = PinnedCluster(tmp_path)
    yield Closed(cluster, tmp_path)
    await cluster.close()


async def test_a_stranger_at_an_address_that_is_dialled_ends_nobody_by_saying_that_it_is_of_another_run(
    secured: Closed, caplog: pytest.LogCaptureFixture
) -> None:
    secured.enrol("b", "c")
    stranger = await secured.cluster.start("stranger", [], {"clients": 2})
    b = await secured.start("b", ["stranger"], clients=2)
    await secured.cluster.until(lambda: stranger.links.totals.faults["run"] >= 1)
    c = await secured.start("c", ["b"], clients=2, steps=400)
    await secured.cluster.until(lambda: is_linked(b, c.node.origin))
    assert not b.ended.done()
    assert any("belongs to another run" in line and "dialled again" in line for line in caplog.messages)


@pytest.mark.long
async def test_a_stranger_ends_no_relay_that_has_still_to_learn_its_run(secured: Closed) -> None:
    key = secured.make_key("relay").public_key
    secured.sign(secured.roster.adding(Entry("relay", key, ("relay",))))
    stranger = await secured.cluster.start("stranger", [], {"clients": 2})
    run, node = {"operator": secured.operator.public_key.hex()}, {"roster": secured.path, "role": "relay"}
    starting = asyncio.create_task(secured.cluster.start("relay", ["stranger"], run, node))
    await secured.cluster.until(lambda: starting.done() or stranger.links.totals.faults["run"] >= 2)
    assert not starting.done()
    starting.cancel()


async def test_hosts_of_the_roster_that_are_all_of_another_run_end_one_that_dials_them(secured: Closed) -> None:
    secured.enrol("a", "b")
    await secured.start("a", [], clients=2)
    b = await secured.start("b", ["a"], clients=2, steps=401)
    with pytest.raises(RunMismatchError, match="belongs to another run"):
        await b.ended
