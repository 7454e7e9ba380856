"""Whoever dials learns under which address it is seen, and whether it can be dialled there. Nobody can be made to dial
others."""

import asyncio

import pytest
from linked import pair

from seedflood.identity import Identity
from seedflood.protocol.swarm.messages import Ping
from seedflood.transport.codec import Seen
from seedflood.transport.credentials import Credentials
from seedflood.transport.reach import PAUSES, REMEMBERED


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What fails is not tried again, unless a test adds pauses."""
    made = [PAUSES[0]]
    monkeypatch.setattr("seedflood.transport.reach.PAUSES", made)
    return made


async def seen(a, b):
    """What b says of a, who has dialled it, if b knows."""
    await asyncio.gather(*b.links.look_back.tasks)
    ping = Ping(float(len(a.received_messages)))
    b.links.send(a.origin, [ping])
    await a.until(lambda: ping in a.received_messages)
    return a.links.open[b.origin].seen


async def test_who_listens_hears_its_address_and_that_it_can_be_dialled_there(make_node) -> None:
    a, b = await pair(make_node)
    assert await seen(a, b) == Seen(a.address, True)
    assert b.links.open[a.origin].looked_back is True
    assert b.links.open[a.origin].seen is None
    assert a.links.open[b.origin].looked_back is None
    assert not any(a.links.totals.faults.values())
    assert not any(b.links.totals.faults.values())


async def test_who_listens_nowhere_hears_its_address_and_is_not_dialled(make_node) -> None:
    b = await make_node("b").start()
    a = make_node("a")
    a.dial(b)
    await a.until(lambda: b.origin in a.linked)
    assert await seen(a, b) == Seen("127.0.0.1:0", False)


async def test_an_address_where_nobody_answers_is_told_as_that(make_node, unused_tcp_port) -> None:
    b = await make_node("b").start()
    a = make_node("a")
    a.links._port = unused_tcp_port
    a.dial(b)
    await a.until(lambda: b.origin in a.linked)
    assert await seen(a, b) == Seen(f"127.0.0.1:{unused_tcp_port}", False)


async def test_where_another_host_answers_is_not_the_address_of_this_one(make_node) -> None:
    def secured(name):
        identity = Identity.generate()
        return make_node(name, identity=identity, credentials=Credentials(identity))

    b, other = await secured("b").start(), await secured("other").start()
    a = secured("a")
    a.links._port = other.port
    a.dial(b)
    await a.until(lambda: b.origin in a.linked)
    assert await seen(a, b) == Seen(other.address, False)


async def test_an_address_is_tried_once_however_many_ports_its_hosts_name(make_node) -> None:
    a, b = await pair(make_node)
    assert await seen(a, b) == Seen(a.address, True)
    c = await make_node("c").start(b)
    await c.until(lambda: b.origin in c.linked)
    assert await seen(c, b) is None
    assert b.links.open[c.origin].looked_back is None


async def test_nobody_is_tried_while_too_many_are_remembered(make_node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert REMEMBERED > 0
    monkeypatch.setattr("seedflood.transport.reach.REMEMBERED", 0)
    a, b = await pair(make_node)
    assert await seen(a, b) is None


def count_attempts(monkeypatch: pytest.MonkeyPatch, *answers: bool) -> list[str]:
    """The addresses that are tried from now on. answers: what comes of it."""
    tried: list[str] = []

    async def answer(_, address: str, key: bytes) -> bool:
        tried.append(address)
        return answers[len(tried) - 1]

    monkeypatch.setattr("seedflood.transport.reach.LookBack._answers", answer)
    return tried


async def link_again(a, b) -> None:
    a.links.drop(b.origin, "to come again")
    await b.until(lambda: a.origin not in b.linked)
    await b.until(lambda: a.origin in b.linked)
    await a.until(lambda: b.origin in a.linked)


async def test_who_was_too_busy_to_answer_is_tried_again(make_node, pauses: list[float], monkeypatch) -> None:
    tried = count_attempts(monkeypatch, False, False, True)
    pauses += [0.01] * 3
    a, b = await pair(make_node)
    assert await seen(a, b) == Seen(a.address, True)
    assert b.links.open[a.origin].looked_back is True
    assert tried == [a.address] * 3


async def test_an_address_is_not_tried_more_often_by_coming_again(make_node, monkeypatch) -> None:
    tried = count_attempts(monkeypatch, False)
    a, b = await pair(make_node)
    for _ in range(2):
        await link_again(a, b)
        assert await seen(a, b) == Seen(a.address, False)
    assert tried == [a.address]


async def test_nothing_waits_to_look_back_at_a_link_that_has_ended_and_its_attempt_counts(
    make_node, pauses: list[float], monkeypatch
) -> None:
    """Else who links again and again, from addresses where nobody answers, has us keep all of these links."""
    tried: asyncio.Queue[str] = asyncio.Queue()

    async def hang(_, address: str, key: bytes) -> bool:
        tried.put_nowait(address)
        await asyncio.Future()
        return False

    monkeypatch.setattr("seedflood.transport.reach.LookBack._answers", hang)
    pauses += [0.01] * 2
    a, b = await pair(make_node)
    for number in range(5):
        if number < 3:
            assert await tried.get() == a.address
        await link_again(a, b)
        assert len(b.links.look_back.tasks) <= 1
    assert tried.empty()
