from dataclasses import dataclass, field
from types import SimpleNamespace

from nodes import PROBES, linked
from origins import B, C

from seams import Recorder
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.status_source import StatusSource
from seedflood.protocol.seedflood.outputs import Measured
from seedflood.protocol.swarm.messages import Member
from seedflood.transport.counters import LinkCounters

BETA = Member(b"b" * 32, "beta", 1)


@dataclass
class SomeLinks:
    """What a StatusSource reads of links."""

    open: dict[int, object] = field(default_factory=dict)
    dialled: dict[str, int | None] = field(default_factory=dict)
    counters: dict[str, LinkCounters] = field(default_factory=dict)

    @property
    def totals(self):
        return SimpleNamespace(stats=lambda: self.counters)


def make_source(node, driver, clock, links=None):
    view = getattr(node, "view", None)
    engine = SimpleNamespace(node=node, view=view, driver=driver, parameters=(1, 4))
    return StatusSource(engine, links, clock, None, incarnation=1)


def rows(links):
    node = SimpleNamespace(membership=SimpleNamespace(all=lambda: (BETA,)))
    status_source = make_source(node, None, lambda: 0.0, links)
    return [(one.peer, one.address, one.connected_at) for one in status_source.link_states()]


def linked_with_beta():
    hello = SimpleNamespace(member=BETA)
    return {BETA.origin: SimpleNamespace(hello=hello, opened_at=5.0, is_dialled=False, looked_back=None)}


def test_an_address_that_was_never_reached_is_shown_beside_who_is_linked():
    links = SomeLinks(linked_with_beta(), {"127.0.0.1:1": None}, {"beta": LinkCounters()})
    assert rows(links) == [("beta", None, 5.0), ("127.0.0.1:1", "127.0.0.1:1", None)]


def test_a_neighbour_that_was_linked_and_is_dialled_again_is_shown_once():
    links = SomeLinks({}, {"127.0.0.1:1": BETA.origin}, {"beta": LinkCounters()})
    assert rows(links) == [("beta", "127.0.0.1:1", None)]


def test_a_view_is_made_once_until_something_happens():
    made = []
    moment = [0.0]

    def view(now):
        made.append(now)
        return linked(B).view(now)

    driver = SimpleNamespace(turns=0)
    node = SimpleNamespace(view=view)
    source = make_source(node, driver, lambda: moment[0])
    assert source.view().now == 0.0
    moment[0] = 5.0
    assert (source.view().now, made) == (5.0, [0.0])
    driver.turns += 1
    assert (source.view().now, made) == (5.0, [0.0, 5.0])


def test_nothing_happens_behind_the_back_of_a_view():
    """After every call of the driver the view is what the node looks like, whatever was looked at before."""
    seams = Recorder()
    driver = SeedfloodDriver(linked(B, C), *seams.seams, lambda: 1.0)
    node = driver.node
    source = make_source(node, driver, lambda: 1.0)

    def fill():
        seams.disk.is_full = True
        driver.answered(Measured(node.step, PROBES))

    def free():
        seams.disk.is_full = False
        driver.tick()

    shown = [source.view()]
    for act in (
        lambda: driver.received(B.id, B.updates(0)),
        fill,
        lambda: driver.received(C.id, C.updates(0)),
        free,
        lambda: driver.disconnected(C.id, "gone"),
        driver.leave,
    ):
        act()
        assert source.view() == node.view(1.0)
        shown.append(source.view())
    assert len({(view.phase, view.step, view.linked, view.blockers, view.members) for view in shown}) == len(shown)
