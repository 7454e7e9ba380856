"""Whole nodes of which some measure a round, and the others only apply it."""

import pytest

RUN = {"estimate": "gradient", "rank": 4, "batch_size": 2, "refresh_period": 8}
RUN |= {"window": "strict", "participants": 2}


async def test_hosts_that_take_turns_end_with_one_digest_and_wait_for_nothing_more(cluster):
    hosts = await cluster.ring(4, RUN | {"steps": 24})
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    for host in hosts:
        turns, frontier = host.node.rules.turns, host.node.frontier
        assert turns.rounds == 2
        assert [frontier.mark(other.node.origin) for other in hosts] == [
            turns.last(other.node.origin, 23) + 1 for other in hosts
        ]
        assert host.engine.trainer.replica._aggregation._final == {-1, 0, 1, 2}, "all turns of these epochs are over"


@pytest.mark.long
async def test_hosts_that_join_late_or_return_have_their_turns_from_then_on(cluster):
    run = RUN | {"clients": 3, "participants": 1, "refresh_period": 12, "steps": 96}
    a, b = await cluster.start("a", [], run), await cluster.start("b", ["a"], run)
    c = await cluster.start("c", ["a", "b"], run)
    await cluster.until(lambda: a.node.step >= 10)
    c.drain()
    await c.close()
    seen = a.node.step
    await cluster.until(lambda: a.node.step > seen + 10)
    c, d = await cluster.start("c", ["a"], run), await cluster.start("d", ["b"], run)
    results = await cluster.finish(a, b, c, d)
    assert len({result["digest"] for result in results}) == 1
    assert a.node.frontier.last(d.node.origin) > seen
