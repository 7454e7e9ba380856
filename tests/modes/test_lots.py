"""Hosts that draw lots, on the daemon that trains models: its links, journal, page, metrics, settings and end."""

import json

import pytest
from lots import WHOLE

from clusters import Closed
from seedflood.config import load_settings
from seedflood.errors import ConfigError
from seedflood.host.places import JOURNAL_FILE, RESULT_FILE
from seedflood.storage.journal import Journal


async def status_of(http, daemon):
    async with http.get(f"http://{daemon.address}/api/status") as answer:
        return await answer.json()


async def test_a_ring_agrees_and_ends(cluster):
    daemons = await cluster.ring(4, {"lots": {"most": 8.0}})
    results = await cluster.finish()
    assert len({result["mean"] for result in results}) == 1
    assert [result["steps"] for result in results] == [5] * 4
    assert all(len(daemon.node.lots.known) == 4 * 5 for daemon in daemons)
    assert 1.0 < max(daemons[0].node.lots.known.values()) <= 8.0
    kept = json.loads((cluster.folder / "n0" / RESULT_FILE).read_text())
    assert kept["result"] == results[0]


async def test_a_closed_run_draws_among_the_hosts_of_its_roster(cluster):
    closed = Closed(cluster, cluster.folder)
    closed.enrol("a", "b")
    run = {"clients": 2, "operator": closed.operator.public_key.hex()}
    for name, peers in (("a", []), ("b", ["a"])):
        await cluster.start(name, peers, run, {"roster": closed.path})
    results = await cluster.finish()
    assert len({result["mean"] for result in results}) == 1


async def test_what_was_drawn_is_in_the_journal_and_outlives_the_process(cluster):
    a = await cluster.start("a", [], {"clients": 2})
    await cluster.until(lambda: a.node.lots.known)
    drawn = dict(a.node.lots.known)
    a.drain()
    await a.close()
    run = load_settings(None, {"run": {"mode": "lots", "steps": 5, "clients": 2}}).run
    with Journal.open(cluster.folder / "a" / JOURNAL_FILE, run.run_id(), b"lots".ljust(32)) as journal:
        assert len(journal.records()) == len([WHOLE, *drawn])
    again = await cluster.start("a", [], {"clients": 2})
    assert again.node.lots.known == drawn
    b = await cluster.start("b", ["a"], {"clients": 2})
    await cluster.finish(again, b)
    assert again.node.lots.known == b.node.lots.known
    assert drawn.items() <= b.node.lots.known.items()


async def test_a_host_that_has_lost_its_journal_draws_nothing_before_a_neighbour_has_told_it_all(cluster):
    """Its key was used, so the others may know of lots that it has forgotten."""
    a = await cluster.start("a", [], {"clients": 3})
    b = await cluster.start("b", ["a"], {"clients": 3})
    await cluster.until(lambda: len(a.node.lots.known) == len(b.node.lots.known) == 2)
    drawn = dict(a.node.lots.known)
    a.drain()
    await a.close()
    (cluster.folder / "a" / JOURNAL_FILE).unlink()
    again = await cluster.start("a", ["b"], {"clients": 3})
    assert not again.node.lots.known
    await cluster.until(lambda: again.node.lots.known == drawn)
    c = await cluster.start("c", ["b"], {"clients": 3})
    await cluster.finish(again, b, c)
    assert drawn.items() <= again.node.lots.known.items()
    assert again.node.lots.known == b.node.lots.known == c.node.lots.known


async def test_operators_see_what_the_algorithm_tells(cluster, http):
    a = await cluster.start("a", [], {"clients": 2})
    await cluster.until(lambda: a.node.lots.known)
    said = await status_of(http, a)
    assert said["state"] == "ready"
    assert (said["node"]["run"]["mode"], said["node"]["run"]["algorithm"]) == ("lots", {"most": 1.0})
    assert said["figures"] == {"mean": pytest.approx(sum(a.node.lots.known.values()), abs=1e-6)}
    assert {(one["kind"], one["name"]) for one in said["blockers"]} == {("lot", "a"), ("lot", "somebody")}
    assert (said["progress"]["step"], said["progress"]["steps"], said["progress"]["epoch"]) == (0, 5, None)
    assert said["window"]["step"] is None
    assert said["journal"]["bundles"] is None
    async with http.get(f"http://{a.address}/metrics") as answer:
        text = await answer.text()
    assert 'seedflood_algorithm_figure{name="mean"}' in text
    async with http.get(f"http://{a.address}/readyz") as answer:
        assert answer.status == 200


async def test_nodes_of_two_modes_never_link(cluster):
    a = await cluster.start("a", [], {"clients": 2})
    other = await cluster.start("b", ["a"], {"clients": 2, "mode": "seedflood", "objective": {"task": "embedded"}})
    await cluster.until(lambda: other.ended.done())
    assert "another run" in str(other.ended.exception())
    assert len(a.links.open) == 0


def test_settings_of_the_mode_are_checked_like_all_others(lots):
    assert load_settings(None, {"run": {"mode": "lots", "lots": {"most": 2.0}}}).run.algorithm.most == 2.0
    with pytest.raises(ConfigError, match=r"\[run.lots\] has no key \"least\""):
        load_settings(None, {"run": {"mode": "lots", "lots": {"least": 2.0}}})
    with pytest.raises(ConfigError, match=r'the table \[run.seedflood\] is for mode = "seedflood"'):
        load_settings(None, {"run": {"mode": "lots", "seedflood": {"rank": 2}}})


def test_the_mode_has_a_run_of_its_own(lots):
    ids = {load_settings(None, {"run": run}).run.run_id() for run in ({}, {"mode": "lots"})}
    assert len(ids) == 2


def test_without_it_there_is_no_such_mode():
    with pytest.raises(ConfigError, match="choose one of seedflood"):
        load_settings(None, {"run": {"mode": "lots"}})
