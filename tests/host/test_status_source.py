from dataclasses import dataclass, field
from types import SimpleNamespace

from seedflood.config import Settings
from seedflood.host.status_source import StatusSource
from seedflood.protocol.swarm.messages import Member
from seedflood.transport.counters import LinkCounters

BETA = Member(b"b" * 32, "beta", 1)
SETTINGS = Settings.model_validate({"peers": [{"address": "127.0.0.1:1", "name": "beta"}, {"address": "127.0.0.1:2"}]})


@dataclass
class SomeLinks:
    """What a StatusSource reads of links."""

    open: dict[int, object] = field(default_factory=dict)
    dialled: dict[str, int | None] = field(default_factory=dict)
    counters: dict[str, LinkCounters] = field(default_factory=dict)

    def stats(self):
        return self.counters


def rows(links):
    node = SimpleNamespace(membership=SimpleNamespace(all=lambda: (BETA,)))
    status_source = StatusSource(SETTINGS, node, None, links, None, lambda: 0.0, parameters=(1, 4), incarnation=1)
    return [(one.peer, one.address, one.connected_at) for one in status_source.link_states()]


def linked_with_beta():
    return {BETA.origin: SimpleNamespace(hello=SimpleNamespace(member=BETA), opened_at=5.0)}


def test_an_address_that_was_never_reached_is_shown_by_its_configured_name():
    links = SomeLinks(dialled={"127.0.0.1:1": None, "127.0.0.1:2": None})
    assert rows(links) == [("beta", "127.0.0.1:1", None), ("127.0.0.1:2", "127.0.0.1:2", None)]


def test_a_neighbour_that_has_dialled_us_is_not_shown_as_dialled_too():
    links = SomeLinks(linked_with_beta(), {"127.0.0.1:1": None}, {"beta": LinkCounters()})
    assert rows(links) == [("beta", None, 5.0)]


def test_a_neighbour_that_was_linked_and_is_dialled_again_is_shown_once():
    links = SomeLinks({}, {"127.0.0.1:1": BETA.origin}, {"beta": LinkCounters()})
    assert rows(links) == [("beta", "127.0.0.1:1", None)]
