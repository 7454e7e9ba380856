"""A router is asked to pass the port on, again and again, and takes that back at the end. It may refuse, be none, or
hang."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

from seedflood.errors import RouterError
from seedflood.transport import mapping
from seedflood.transport.mapping import PortMapping, Router

US = "192.168.7.2"


class MadeUp:
    """A router, as miniupnpc shows it. outside: "" as long as it is not connected. refuses: what it says to everyone.
    hangs: until somebody sets the event. ports: what it says of each that it passes on; descriptions are bytes."""

    def __init__(self):
        self.is_there, self.outside, self.refuses = True, "11.77.0.1", ""
        self.ports = {}
        self.asked = threading.Semaphore(0)
        self.hangs = threading.Event()
        self.hangs.set()
        self.lanaddr = US

    def __call__(self, discoverdelay):
        return self

    def discover(self):
        self.hangs.wait(60)
        if not self.is_there:
            raise Exception("Success")

    def selectigd(self):
        pass

    def externalipaddress(self):
        return self.outside

    def getspecificportmapping(self, port, protocol):
        if found := self.ports.get(port):
            host, inner, text, *more = found
            return host, inner, text.decode(), *more
        return None

    def addportmapping(self, port, protocol, host, inner, text, remote, lease_seconds):
        if self.refuses:
            raise Exception(self.refuses)
        self.ports[port] = (host, inner, text.encode(), True, lease_seconds)
        self.asked.release()
        return True

    def deleteportmapping(self, port, protocol):
        del self.ports[port]


@pytest.fixture
def router(monkeypatch):
    made = MadeUp()
    monkeypatch.setitem(sys.modules, "miniupnpc", SimpleNamespace(UPnP=made))
    monkeypatch.setattr(mapping, "WAIT_SECONDS", 60.0)  # a busy machine is no router that hangs
    yield made
    made.hangs.set()


@pytest.fixture
def told():
    return asyncio.Queue()


@pytest.fixture
async def open_port(told):
    """Asks for port 7070, and waits for the first answer."""
    made = []

    async def open_port():
        made.append(PortMapping(7070, lambda event, level, **facts: told.put_nowait((event, level, facts))))
        await made[0].tried()
        return made[0]

    yield open_port
    for one in made:
        await one.close()


async def test_a_port_is_passed_on_for_a_while_and_closed_at_the_end(router, open_port, told):
    opened = await open_port()
    assert told.get_nowait() == ("port mapped", "info", {"address": "11.77.0.1:7070"})
    assert router.ports == {7070: (US, 7070, b"seedflood", True, mapping.LEASE_SECONDS)}
    await opened.close()
    assert router.ports == {}


async def test_it_is_asked_for_again_and_only_what_is_new_is_told(router, open_port, told, monkeypatch):
    monkeypatch.setattr(mapping, "RENEW_SECONDS", 0.01)
    await open_port()
    router.ports.clear()  # it was switched off and on
    router.asked = threading.Semaphore(0)
    await asyncio.to_thread(lambda: [router.asked.acquire() for _ in range(2)])  # the first may be of before
    assert 7070 in router.ports
    router.outside = "11.77.0.9"
    assert [(await told.get())[2]["address"] for _ in range(2)] == ["11.77.0.1:7070", "11.77.0.9:7070"]


async def test_a_router_that_is_switched_on_later_is_asked_soon(router, open_port, told, monkeypatch):
    monkeypatch.setattr(mapping, "RETRY_SECONDS", 0.01)
    router.is_there = False
    await open_port()
    router.is_there = True
    assert [(await told.get())[0] for _ in range(2)] == ["port not mapped", "port mapped"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"is_there": False}, "no connected router answers to UPnP: switch it on there"),
        ({"outside": ""}, "no connected router answers to UPnP"),
        ({"outside": "100.64.3.1"}, r"no public address \(100.64.3.1\): another one stands before it"),
        ({"ports": {7070: ("192.168.7.3", 7070, b"other", True, 0)}}, "on to 192.168.7.3:7070: choose another port"),
        ({"ports": {7070: ("192.168.7.3", 7070, b"T\xfcr", True, 0)}}, "says of port 7070 cannot be read .*: choose"),
        ({"refuses": "Action not authorized"}, r"does not pass port 7070 on \(Action not authorized\): forward it"),
    ],
)
async def test_a_port_that_stays_closed_is_one_sentence_and_nothing_of_others_is_touched(
    router, open_port, told, state, words
):
    vars(router).update(state)
    ports = dict(router.ports)
    with pytest.raises(RouterError, match=words):
        Router(7070).open()
    opened = await open_port()
    await opened.close()
    assert told.get_nowait()[:2] == ("port not mapped", "warning")
    assert router.ports == ports


async def test_nobody_waits_for_a_router_that_hangs(router, open_port, told, monkeypatch):
    monkeypatch.setattr(mapping, "WAIT_SECONDS", 0.01)
    router.hangs.clear()
    opened = await open_port()
    await opened.close()
    assert told.empty()


async def test_a_port_that_is_closed_before_the_router_answers_is_left_to_the_next(router, open_port, monkeypatch):
    monkeypatch.setattr(mapping, "WAIT_SECONDS", 0.01)
    router.hangs.clear()
    closed = await open_port()
    await closed.close()
    router.ports[7070] = of_the_next = (US, 7070, b"seedflood", True, 1)
    router.hangs.set()
    closed._thread.join()
    assert router.ports == {7070: of_the_next}


async def test_a_node_dials_once_the_router_has_answered(router, make_node):
    router.hangs.clear()
    b = await make_node("b").start()
    a = await make_node("a", asks_router=True).start(b)
    assert a.linked == {}
    router.hangs.set()
    await a.until(lambda: b.origin in a.linked)
    assert a.port in router.ports
    await a.links.close()
    assert router.ports == {}
