"""What any node wants done, in the order that is the contract: persist, then send, then all else. The parts of a node
put it into one outbox, until the shell collects it.

An algorithm may add fields of its own to these: what else it keeps, and what the compute thread is to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.roster import Roster

EventLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """A fact worth a log line. name: a stable word group; facts: plain values."""

    name: str
    level: EventLevel = "info"
    facts: dict[str, object] = field(default_factory=dict)


class Record(NamedTuple):
    """What an algorithm keeps under a key of its own; a later value takes the place of the earlier one. key: 1 to 64
    bytes. value: at most a mebibyte."""

    key: bytes
    value: bytes


@dataclass(slots=True)
class Outputs:
    """Honoured by the driver."""

    members: list[Member] = field(default_factory=list)
    """Persist: the newest statement of each origin."""
    roster: Roster | None = None
    """Persist before it is used: the list of hosts that counts from now on."""
    records: list[Record] = field(default_factory=list)
    """Persist, in this order: what the algorithm is to find again after a crash."""
    bundles: list[Any] = field(default_factory=list)
    """Persist, in this order: what an algorithm keeps as a log, if its journal takes that."""
    is_durable: bool = False
    """Something of our own is to be persisted: it must be on the disk before anything is sent."""
    send: list[tuple[OriginId, Message]] = field(default_factory=list)
    pull: list[tuple[OriginId, tuple[Held, ...]]] = field(default_factory=list)
    """Ask the peer for everything that this frontier lacks."""
    contents: set[OriginId] = field(default_factory=set)
    """Neighbours for which there is something on their connection for contents (`Swarm.next_content`)."""
    orders: list[Any] = field(default_factory=list)
    """For the compute side, in this order. None is carried out before what is to be persisted is on the disk: what was
    computed must not be forgotten."""
    drop: list[OriginId] = field(default_factory=list)
    """End the links with these peers: they do not belong to the run any more."""
    is_removed: bool = False
    """The roster does not list this host any more: nobody accepts what it sends."""
    is_superseded: bool = False
    """Another process with our key was started later than this one: nothing is to be published any more."""
    is_finished: bool = False
    """The run is over here: nothing is missing and the neighbours have everything."""
    events: list[Event] = field(default_factory=list)

    @property
    def ends_group(self) -> bool:
        """Does a group of the journal end with what is to be persisted here?"""
        return bool(self.members or self.records or self.is_durable)

    @property
    def payload_bytes(self) -> int:
        """How much of the bundles has no fixed size."""
        return 0

    @property
    def may_wait(self) -> bool:
        """May all of it wait for space on a full disk?"""
        return True


Wanted = TypeVar("Wanted", bound=Outputs, covariant=True)


class Outbox(Generic[Wanted]):
    """One outbox for all parts of a node. make: returns empty outputs, of the kind that its algorithm has."""

    def __init__(self, make: Callable[[], Wanted]) -> None:
        self._make = make
        self.outputs = make()
        """What has gathered since the last `take`."""

    def keep(self, member: Member) -> None:
        """Persists a statement."""
        self.outputs.members.append(member)

    def send(self, peer: OriginId, message: Message) -> None:
        self.outputs.send.append((peer, message))

    def order(self, order: Any) -> None:
        """For the compute side."""
        self.outputs.orders.append(order)

    def carry(self, peer: OriginId) -> None:
        """Something waits for the connection for contents."""
        self.outputs.contents.add(peer)

    def keep_record(self, record: Record) -> None:
        """Keeps a record, which is durable before anything is sent. A later record replaces one with the same key."""
        outputs = self.outputs
        outputs.records = [*(one for one in outputs.records if one.key != record.key), record]
        outputs.is_durable = True

    def finish(self) -> None:
        """The run is over here."""
        self.outputs.is_finished = True

    def log(self, name: str, level: EventLevel = "info", /, **facts: Any) -> None:
        """A fact for the log."""
        self.outputs.events.append(Event(name, level, facts))

    def take(self) -> Wanted:
        taken, self.outputs = self.outputs, self._make()
        return taken
