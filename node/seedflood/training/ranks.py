"""The ranks of a host: processes that are one replica, on one or several machines, each with a part of every frozen
matrix.

Rank 0 is the daemon. The others hold rows of the weights, and do what it orders: measure a part of a batch, fold an
epoch. What any rank lacks of a matrix it asks the others for, when it computes with it (`gather`, `lookup`).

Everything goes in *rounds*. In a round each rank says what it wants, in four integers, and then all carry that out
together, so nobody waits for a message that is not sent. A rank that wants nothing still takes part in rounds, and so
serves the others. So ranks may compute different things: a rank has more pieces of logits than another, or has no rows
left, and rank 0 alone evaluates and exports. FSDP2 needs equal calls on all ranks, and hooks of modules through whose
`forward` all products go: ours are made of slots, also outside of a module (logits in pieces, label words). It also
gathers the embeddings as a whole, a quarter of a model of 1 B parameters.

Sums over the pieces of a batch are made in the order of the pieces, whoever has computed which. On a CPU they are the
pieces of a host that is one process, so results are equal bit for bit, but for products with a matrix that is gathered
in parts (`seedflood/fetched`).

Ranks trust each other and their network: torch.distributed neither encrypts nor asks who connects.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum, auto
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from seedflood.config import NodeSettings, RankPlace
from seedflood.errors import ConfigError, RankError
from seedflood.training.devices import find_device
from seedflood.training.loading import choose_device

Item = TypeVar("Item")
Made = TypeVar("Made")
Piece = TypeVar("Piece")

BEAT_SECONDS = 2.0
"""How often rank 0 asks whether the others are there."""

SILENCE_SECONDS_MAX = 60.0
"""A rank is gone if it does not answer for so long. If its process has ended, the others learn it at once."""

AGREEING_SECONDS = 0.05
"""How often ranks that start look who is there."""

JOIN_SECONDS_MAX = 300.0
"""How long ranks wait for each other when they start, and for the end of a transfer."""

ENDED, FAILED = 1, 2
"""How rank 0 has ended."""

FOREVER = timedelta(days=3650)
"""An idle rank waits for orders as long as the host lives: whether it lives is for the watch to say."""


class RoundKind(IntEnum):
    """What a rank wants of a round. From MEASURE on it is an order of rank 0, while the others want nothing."""

    NOTHING = 0
    PART = auto()
    ROWS = auto()
    MEASURE = auto()
    WRITE = auto()
    FOLD = auto()
    RELOAD = auto()


FACTS_OF = {
    RoundKind.NOTHING: 0,
    RoundKind.PART: 3,
    RoundKind.ROWS: 2,
    RoundKind.MEASURE: 6,
    RoundKind.WRITE: 4,
    RoundKind.FOLD: 1,
    RoundKind.RELOAD: 0,
}
"""How many integers a request has beside its kind."""

FACTS_MAX = max(FACTS_OF.values())

WhenOver = Callable[[RankError | None], None]


class Request(NamedTuple):
    """What a rank wants. facts: of PART the matrix, the part, and whether it is of the master; of ROWS the matrix, and
    how many rows; of MEASURE origin, step, epoch, number of the share of the rows, count of shares, and whether texts
    that were written before are used; of WRITE origin, step, epoch, and the step that was measured last; of FOLD the
    epoch."""

    kind: RoundKind
    facts: tuple[int, ...] = ()

    def packed(self) -> Tensor:
        """As many integers for each request."""
        unused = FACTS_MAX - len(self.facts)
        return torch.tensor([self.kind, *self.facts, *[0] * unused], dtype=torch.int64)

    @classmethod
    def unpacked(cls, numbers: Tensor) -> "Request":
        kind, *facts = numbers.tolist()
        return cls(RoundKind(kind), tuple(facts[: FACTS_OF[RoundKind(kind)]]))


class HeldRows(Protocol):
    """What a rank has of a matrix."""

    def block(self, part: int, *, is_master: bool) -> Tensor:
        """Our rows of a part, as many as each rank has."""

    def found(self, index_X: Tensor) -> Tensor:
        """Rows, with zeros in place of those that another rank has."""

    @property
    def device(self) -> torch.device: ...


class OneRank:
    """This process alone is the host: whatever is asked of the others is done already."""

    number, count = 0, 1

    def in_turn(self, pieces: Sequence[Piece], compute: Callable[[Piece], Tensor], width: int) -> Iterator[Tensor]:
        """What `compute` gives for each piece, in their order, on all ranks: `width` numbers of float64 in host
        memory."""
        yield from map(compute, pieces)

    def deal(self, items: Sequence[Item], make: Callable[[Sequence[Item]], Sequence[Made]]) -> Sequence[Made]:
        """What `make` gives for each item, on all ranks. Each rank makes it of some of them. It can be pickled."""
        return make(items)

    def order(self, kind: RoundKind, *facts: int, values: Tensor | None = None) -> None:
        """Rank 0 has the others do this. values: float32 in host memory, for `receive`."""

    def drop(self) -> None:
        """Forgets all matrices: the model is loaded again."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within, no other rank is within: a machine need not hold the whole model once for each of them."""
        yield

    def check_equal(self, *digests: bytes) -> None:
        """Raises ConfigError if these are not the same on all ranks."""

    def when_over(self, then: WhenOver) -> None:
        """From now on this, and nothing else, is called when rank 0 has ended in peace (None), or another rank is gone;
        on a thread of its own."""

    def end(self, *, in_peace: bool = True) -> None:
        """Lets the others end, too. in_peace: else it is to them as if this rank were gone. Returns when they know."""


ALONE = OneRank()


class Ranks(OneRank):
    """One of several processes. Only the compute thread uses it, but for `when_over` and `end`."""

    def __init__(self, place: RankPlace, device: torch.device, when_over: WhenOver) -> None:
        """Waits for all other ranks. Raises RankError."""
        self.number, self.count = place
        self.device = device
        """Where this rank computes."""
        self._when_over = when_over
        self._held: dict[int, HeldRows] = {}
        with _reaching():
            _join(place, device)
            beats = dist.new_group(backend="gloo", timeout=timedelta(seconds=SILENCE_SECONDS_MAX))
            self._watch = _Watch(beats, self.number, lambda fault: self._when_over(fault))
            self._rounds: Any = dist.new_group(backend="gloo", timeout=FOREVER)  # may hang, and is watched

    # Weights

    def hold(self, number: int, matrix: HeldRows) -> None:
        """From now on the others are served from this matrix."""
        self._held[number] = matrix

    def drop(self) -> None:
        self._held.clear()

    def gather(self, number: int, part: int, *, is_master: bool = False) -> Tensor:
        """The rows of all ranks of one part of a matrix, one below the other."""
        found = self._round(Request(RoundKind.PART, (number, part, is_master)))[1]
        assert found is not None
        return found

    def lookup(self, number: int, index_X: Tensor) -> Tensor:
        """Some rows of a matrix."""
        wanted = Request(RoundKind.ROWS, (number, len(index_X)))
        found = self._round(wanted, index_X.contiguous())[1]  # gloo would send other numbers of a view
        assert found is not None
        return found

    # Pieces of a batch

    def in_turn(self, pieces: Sequence[Piece], compute: Callable[[Piece], Tensor], width: int) -> Iterator[Tensor]:
        for start in range(0, len(pieces), self.count):
            here = pieces[start : start + self.count]
            own = compute(here[self.number]) if self.number < len(here) else torch.zeros(width, dtype=torch.float64)
            self._serve_the_rest()
            yield from self._all_gather(own)[: len(here)]

    def deal(self, items: Sequence[Item], make: Callable[[Sequence[Item]], Sequence[Made]]) -> Sequence[Made]:
        here = items[self.number :: self.count]
        own = list(make(here)) if here else []
        self._serve_the_rest()
        parts: list[Any] = [None] * self.count
        with _reaching():
            dist.all_gather_object(parts, own, group=self._rounds)
        return [parts[place % self.count][place // self.count] for place in range(len(items))]

    def _serve_the_rest(self) -> None:
        """Until no rank wants anything."""
        while any(one.kind != RoundKind.NOTHING for one in self._round(Request(RoundKind.NOTHING))[0]):
            pass

    # Orders

    def order(self, kind: RoundKind, *facts: int, values: Tensor | None = None) -> None:
        if self.number == 0:
            self._round(Request(kind, facts))
            if values is not None:
                self.receive(values)

    def next_order(self) -> Request:
        """Serves the others until rank 0 gives an order."""
        while (asked := self._round(Request(RoundKind.NOTHING))[0][0]).kind < RoundKind.MEASURE:
            pass
        return asked

    def receive(self, values: Tensor) -> Tensor:
        """The values of an order, in place of these."""
        with _reaching():
            dist.broadcast(values, src=0)
        return values

    # Begin and end

    @contextmanager
    def turn(self) -> Iterator[None]:
        for number in range(self.count):
            if number == self.number:
                yield  # once
            # All wait here until the rank with this number is through.
            self._all_gather(torch.zeros(1, dtype=torch.int64))

    def check_equal(self, *digests: bytes) -> None:
        own = torch.frombuffer(bytearray(hashlib.sha256(b"".join(digests)).digest()), dtype=torch.int64)
        if any(not torch.equal(own, other) for other in self._all_gather(own)):
            raise ConfigError(
                "the processes of this host read different models, rows or settings: give all of them the same files."
            )

    def when_over(self, then: WhenOver) -> None:
        self._when_over = then

    def end(self, *, in_peace: bool = True) -> None:
        self._watch.end(in_peace=in_peace)

    def wait_until_over(self) -> None:
        """Until what `when_over` has set was called, or for so long that it should have been."""
        self._watch.join(SILENCE_SECONDS_MAX)

    # Rounds

    def _round(self, own: Request, index_X: Tensor | None = None) -> tuple[list[Request], Tensor | None]:
        """What each rank wants, and what we have got. index_X: of ROWS."""
        requests = [Request.unpacked(one) for one in self._all_gather(own.packed())]
        if own.kind == RoundKind.PART and all(one == own for one in requests):
            return requests, self._gather(own, None)
        answers: list[Tensor | None] = []
        for number, one in enumerate(requests):
            if one.kind == RoundKind.PART:
                answers.append(self._gather(one, number))
            elif one.kind == RoundKind.ROWS:
                answers.append(self._look_up(one, number, index_X))
            else:
                answers.append(None)
        return requests, answers[self.number]

    def _gather(self, wanted: Request, by: int | None) -> Tensor | None:
        """by: the rank that wants it; None: all do."""
        matrix, part, is_master = wanted.facts
        block_SK = self._held[matrix].block(part, is_master=bool(is_master))
        if by is not None and by != self.number:
            with _reaching():
                dist.gather(block_SK, dst=by)
            return None
        whole_XK = block_SK.new_empty(self.count * len(block_SK), *block_SK.shape[1:])
        blocks = list(whole_XK.view(self.count, *block_SK.shape).unbind())
        with _reaching():
            if by is None:
                dist.all_gather(blocks, block_SK)
            else:
                dist.gather(block_SK, blocks, dst=by)
        return whole_XK

    def _look_up(self, wanted: Request, by: int, index_X: Tensor | None) -> Tensor | None:
        number, count = wanted.facts
        matrix = self._held[number]
        if by != self.number or index_X is None:
            index_X = torch.empty(count, dtype=torch.int64, device=matrix.device)
        with _reaching():
            dist.broadcast(index_X, src=by)
        found_XK = matrix.found(index_X)  # each row is zero but for one rank
        with _reaching():
            dist.reduce(found_XK, dst=by)
        return found_XK if by == self.number else None

    def _all_gather(self, own_X: Tensor) -> Sequence[Tensor]:
        """What each rank has, in host memory, as much of each."""
        all_NX = own_X.new_empty(self.count, len(own_X))
        with _reaching():
            dist.all_gather(list(all_NX.unbind()), own_X, group=self._rounds)
        return all_NX.unbind()


def join_ranks(place: RankPlace, node: NodeSettings, when_over: WhenOver) -> OneRank:
    """The ranks of this host, once all are there. when_over: see `OneRank`. Raises ConfigError or RankError."""
    if place.world_size == 1:
        return ALONE
    device = find_device(choose_device(node))
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(
            f'a host over several processes computes on CUDA or on CPUs, and here is "{device.type}": set device = '
            '"cpu" in [node], or start it as one process.'
        )
    return Ranks(place, device, when_over)


def _join(place: RankPlace, device: torch.device) -> None:
    """Connects all ranks, with a group for what is on the device, too."""
    backend, wait = "gloo", timedelta(seconds=JOIN_SECONDS_MAX)
    if device.type == "cuda":
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    store, rank, count = next(rendezvous("env://", timeout=wait))
    store = dist.PrefixStore(_agree(store, place), store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=wait)


def _agree(store: Any, place: RankPlace) -> str:
    """A name that these ranks have alone. When torchrun starts them again, its store still has what earlier ones left
    there. So each writes a word of its own, and what words it sees, until all see the same. The count of restarts
    (TORCHELASTIC_RESTART_COUNT) is no such name: each machine has its own."""
    own, end = secrets.token_hex(8), time.monotonic() + JOIN_SECONDS_MAX
    store.set(f"seedflood/word/{place.rank}", own)
    while time.monotonic() < end:
        name = b"-".join(store.get(f"seedflood/word/{rank}") for rank in range(place.world_size)).decode()
        store.set(f"seedflood/seen/{place.rank}", name)
        if all(store.get(f"seedflood/seen/{rank}").decode() == name for rank in range(place.world_size)):
            return name
        time.sleep(AGREEING_SECONDS)
    raise RankError


@contextmanager
def _reaching() -> Iterator[None]:
    """Raises RankError if another rank cannot be reached: torch says that as a RuntimeError of many kinds. Too little
    memory here is another one."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if "allocate memory" in str(error):
            raise
        raise RankError from error


class _Watch:
    """A thread on which ranks tell each other every few seconds that they live, and rank 0 that it ends. In the end it
    calls `then`: with None if rank 0 has ended in peace, else a rank is gone."""

    def __init__(self, group: Any, number: int, then: WhenOver) -> None:
        self._group, self._number, self._then = group, number, then
        self._is_ending = Event()
        self._in_peace = True
        self._thread = Thread(target=self._work, name="watch", daemon=True)
        self._thread.start()

    def end(self, *, in_peace: bool) -> None:
        self._in_peace = in_peace
        self._is_ending.set()
        self.join()

    def join(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _work(self) -> None:
        is_over = torch.zeros(1, dtype=torch.int64)
        try:
            while not int(is_over):
                if self._number == 0 and self._is_ending.wait(BEAT_SECONDS):  # the others wait for this one
                    is_over.fill_(ENDED if self._in_peace else FAILED)
                dist.all_reduce(is_over, group=self._group)
        except RuntimeError:
            self._then(RankError())
        else:
            self._then(RankError() if self._number > 0 and int(is_over) == FAILED else None)
