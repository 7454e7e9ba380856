"""Pulls over a link: in both directions, in parts, beside live frames, and broken off."""

import random

import pytest
from linked import bundle, pair

from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import ClosedEpoch, Standing
from seedflood.protocol.swarm.messages import Members, Opaque, Ping
from seedflood.transport.answer import EPOCH_PART_BYTES, PULL_PARTS


@pytest.mark.parametrize("asker", ["dialler", "dialled"])
async def test_a_pull_works_in_both_directions(make_node, asker: str) -> None:
    a, b = await pair(make_node)
    asking, donor = (a, b) if asker == "dialler" else (b, a)
    asked: list[tuple[Held, ...]] = []

    def journal(frontier):
        asked.append(frontier)
        yield Members((donor.member,))
        yield Updates(tuple(map(bundle, range(4096))))
        yield Updates(tuple(map(bundle, range(4096, 6000))))

    donor.journal = journal
    frontier = (Held(5, 10, ((12, 13),)), Held(6, 1))
    assert asking.links.pull(donor.origin, frontier)
    assert not asking.links.pull(donor.origin, frontier)
    await asking.until(lambda: asking.pull_ends)
    assert asked == [frontier]
    assert [one.step for one in asking.bundles] == list(range(6000))
    assert asking.received_messages[0] == Members((donor.member,))
    assert asking.pull_ends == [(donor.origin, True)]
    assert asking.links.pull(donor.origin, frontier)
    await asking.until(lambda: len(asking.pull_ends) == 2)


async def test_live_frames_pass_a_pull_that_goes_no_further_than_the_asker(make_node) -> None:
    a, b = await pair(make_node)
    taken = 0

    def journal(frontier):
        nonlocal taken
        for taken in range(1, 201):
            yield Updates(tuple(bundle(taken * 256 + j) for j in range(256)))

    ahead: list[int] = []
    b.journal = journal
    a.on_received = lambda peer, message: ahead.append(taken - len(a.bundles) // 256)
    a.links.pull(b.origin, ())
    await a.until(lambda: a.bundles)
    b.links.send(a.origin, [Ping(1.0)])
    await a.until(lambda: Ping(1.0) in a.received_messages)
    assert taken < 200
    await a.until(lambda: a.pull_ends)
    assert a.pull_ends == [(b.origin, True)]
    assert len(a.bundles) == 200 * 256
    assert max(ahead) <= PULL_PARTS + 1


def closed_epoch(size: int) -> ClosedEpoch:
    return ClosedEpoch(3, (Held(42, 0, ((3000, 3999),)),), random.Random(size).randbytes(size))


@pytest.mark.parametrize("asker", ["dialler", "dialled"])
async def test_closed_epochs_and_the_standing_arrive_whole_in_a_pull(make_node, asker: str) -> None:
    a, b = await pair(make_node)
    asking, donor = (a, b) if asker == "dialler" else (b, a)
    answer = [
        Members((donor.member,)),
        closed_epoch(1_000_000),
        closed_epoch(100),
        Updates((bundle(4000),)),
        Standing((Held(42, 4001),), bytes(32)),
        Opaque(bytes(200_000)),
    ]
    donor.journal = lambda frontier: iter(answer)
    for _ in range(2):
        asking.received_messages.clear()
        asking.pull_ends.clear()
        asking.links.pull(donor.origin, ())
        await asking.until(lambda: asking.pull_ends)
        assert asking.received_messages == answer
        assert asking.pull_ends == [(donor.origin, True)]


async def test_the_parts_of_a_sum_are_heard_of_before_it_is_whole(make_node) -> None:
    a, b = await pair(make_node)
    b.journal = lambda frontier: iter([closed_epoch(1_000_000)])
    a.links.pull(b.origin, ())
    await a.until(lambda: a.pull_ends)
    assert a.parts_heard == 1_000_000 // EPOCH_PART_BYTES


async def test_bytes_of_answers_are_counted_apart(make_node) -> None:
    a, b = await pair(make_node)
    b.journal = lambda frontier: iter([closed_epoch(100_000)])
    b.links.send(a.origin, [Updates(tuple(map(bundle, range(1000))))])
    a.links.pull(b.origin, ())
    await a.until(lambda: a.pull_ends and len(a.bundles) == 1000)
    stats = a.links.totals.stats()["b"]
    assert 100_000 < stats.pull_bytes_received < 101_000
    assert stats.bytes_received - stats.pull_bytes_received > 50_000
    assert b.links.totals.stats()["a"].pull_bytes_received == 0


async def test_live_frames_pass_an_epoch(make_node) -> None:
    a, b = await pair(make_node)
    closed = closed_epoch(8 << 20)
    b.journal = lambda frontier: iter([Updates((bundle(1),)), closed])
    a.links.pull(b.origin, ())
    await a.until(lambda: a.bundles)
    b.links.send(a.origin, [Ping(1.0)])
    await a.until(lambda: a.pull_ends)
    assert a.received_messages == [Updates((bundle(1),)), Ping(1.0), closed]


async def test_a_pull_from_a_donor_that_fails_is_reported_as_incomplete(make_node) -> None:
    def journal(frontier):
        yield Updates((bundle(1),))
        raise OSError("disk")

    a, b = await pair(make_node)
    b.journal = journal
    a.links.pull(b.origin, ())
    await a.until(lambda: a.pull_ends)
    assert a.pull_ends == [(b.origin, False)]
    assert a.bundles == [bundle(1)]
    assert a.linked
    assert isinstance(b.failures[0], OSError)


async def test_a_pull_ends_incomplete_when_the_link_breaks(make_node) -> None:
    a, b = await pair(make_node)
    b.journal = lambda frontier: (Updates((bundle(k),)) for k in range(10**9))
    a.links.pull(b.origin, ())
    await a.until(lambda: a.bundles)
    await b.links.close()
    await a.until(lambda: a.pull_ends)
    assert a.pull_ends == [(b.origin, False)]
    assert [call[0] for call in a.calls if call[0] in ("pulled", "disconnected")] == ["pulled", "disconnected"]
