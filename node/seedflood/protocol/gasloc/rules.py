"""What all nodes of a GASLoC run agree on, and how long one of them waits."""

from dataclasses import dataclass, field
from typing import Literal

from seedflood.protocol.swarm.rules import Patience, SwarmRules

Matching = Literal["one", "two", "full"]
"""With whom a round is exchanged: one random neighbour, two, or all of them."""

ENCODING_BYTES_MAX = 16

CHUNK_BYTES_MAX = 256 << 10
"""The most bytes of a content in one piece. Smaller ones cost more for each byte; of larger ones more is lost by a
break."""

SLOTS: dict[Matching, int | None] = {"one": 1, "two": 2, "full": None}

CLOSING_ROUNDS = 3
"""Exchanges with all neighbours at the end of a run, without local steps. On a complete graph one makes replicas equal;
docs/how-to/gasloc.md says what three leave on other graphs."""


@dataclass(frozen=True, slots=True)
class GaslocRules(SwarmRules):
    """What all nodes of a run agree on (from `[run]`).

    steps: of the whole run, a multiple of local_steps. local_steps: what a host does between two exchanges; one that is
    slower or faster may do fewer or more, a round is a round. gamma: of the outer step (`Mix`). encoding: how
    parameters travel; the protocol only compares the word. delay_steps: so many steps of the next round are done while
    a round is exchanged. last_encoding: that of the end of a run, which loses nothing.
    content_bytes_max, copy_bytes_max: of the parameters as they travel, and of a checkpoint.

    fresh_rounds: whoever joins up to this round begins with the base model, later with a copy of a neighbour.
    """

    run_seed: int = 0
    local_steps: int = 100
    gamma: float = 0.0
    matching: Matching = "one"
    encoding: str = "bfloat16"
    delay_steps: int = 0
    last_encoding: str = "float32"
    content_bytes_max: int = 1 << 32
    copy_bytes_max: int = 1 << 34
    fresh_rounds: int = 2

    @property
    def training_rounds(self) -> int:
        return self.steps // self.local_steps

    @property
    def rounds(self) -> int:
        """The number of the round after all exchanges."""
        return self.training_rounds + CLOSING_ROUNDS

    def step_of(self, round_: int) -> int:
        """The step with which a round begins."""
        return min(round_ * self.local_steps, self.steps)

    def is_closing(self, round_: int) -> bool:
        """Is it an exchange at the end of the run, without local steps?"""
        return round_ >= self.training_rounds

    def slots_of(self, round_: int) -> int | None:
        """How many partners a host has at most; None: all its neighbours."""
        return None if self.is_closing(round_) else SLOTS[self.matching]

    def encoding_of(self, round_: int) -> str:
        return self.last_encoding if self.is_closing(round_) else self.encoding


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a node waits in an exchange. Whatever is measured, nothing takes longer than `seconds_max`.

    wait_factor: how long to wait for a partner that has not finished the round, as a share of the time of our own local
    steps. A host that is slower than that is left out. transfer_factor: a transfer may take this many times the time
    that follows from the link's throughput. floor_seconds: how long a busy host may take to answer. relink_seconds: how
    long to wait for a broken link. slow_share: a link that carries the parameters within this share of our local steps
    exchanges in every round, slower links less often; infinite: every link in every round. chunk_bytes: of a content
    that travel in one piece.
    """

    wait_factor: float = 1.0
    transfer_factor: float = 3.0
    floor_seconds: float = 2.0
    relink_seconds: float = 10.0
    throughput_min: float = 1e6
    keep_bytes_per_second: float = 50e6
    slow_share: float = 1.0
    seconds_max: float = 900.0
    chunk_bytes: int = CHUNK_BYTES_MAX

    def wait_seconds(self, local_seconds: float, hop_seconds: float) -> float:
        """How long to wait for a partner to reach the round; both have begun the last one at about the same time."""
        return min(self.wait_factor * local_seconds + self.floor_seconds + 4 * hop_seconds, self.seconds_max)

    def transfer_seconds(self, size: int, throughput: float | None, hop_seconds: float) -> float:
        """How long it may take until `size` bytes, of both directions, are sent and written on both sides, and both
        ends know it.

        throughput: bytes per second that the link was seen to carry; None if it has carried nothing yet.
        """
        rate = max(throughput or 0.0, self.throughput_min)
        expected = size / rate + size / self.keep_bytes_per_second
        return min(self.transfer_factor * expected + self.floor_seconds + 8 * hop_seconds, self.seconds_max)

    def least_bytes(self, seconds: float, chances: int) -> int:
        """How much of a copy must arrive in this time, where there were so many chances before, each with half of it:
        no link is too slow for ever."""
        return max(1, int(self.throughput_min * seconds) >> chances)


@dataclass(frozen=True, slots=True)
class Habits:
    """What each host chooses for itself. local_steps: per round; None: as many as the run says. checkpoint_rounds:
    between two checkpoints; after a crash the local steps since the last one are lost."""

    local_steps: int | None = None
    checkpoint_rounds: int = 1
    bounds: Bounds = field(default_factory=Bounds)
    patience: Patience = field(default_factory=Patience)
