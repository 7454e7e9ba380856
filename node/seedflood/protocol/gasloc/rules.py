"""What all nodes of a GASLoC run agree on, and how long one of them waits."""

from dataclasses import dataclass, field
from typing import Literal

from seedflood.errors import ConfigError
from seedflood.protocol.swarm.rules import Patience, SwarmRules

Matching = Literal["one", "two", "full", "all"]
"""With whom a round is exchanged: one random neighbour, two, or all of them (full); all hosts of the swarm agree on
their mean (all)."""

ENCODING_BYTES_MAX = 16

SLOTS: dict[Matching, int | None] = {"one": 1, "two": 2, "full": None}

LAST_AGREEMENTS = 3
"""Attempts at the end of a run; a host that dies in the middle of one may cost the others that attempt."""


@dataclass(frozen=True, slots=True)
class GaslocRules(SwarmRules):
    """What all nodes of a run agree on (from `[run]`).

    steps: of the whole run, a multiple of local_steps. local_steps: what a host does between two exchanges; one that is
    slower or faster may do fewer or more, a round is a round. alpha, gamma: of the outer step (`Mix`). encoding: how
    parameters travel; the protocol only compares the word. delay_steps: so many steps of the next round are done while
    a round is exchanged. final_rounds: exchanges with all neighbours and without local steps, at the end.
    agrees_at_end: after that, all hosts take the mean of all replicas, which travels as last_encoding.
    content_bytes_max, copy_bytes_max: of the parameters as they travel, and of a copy with the state of the optimiser.

    fresh_rounds: whoever joins up to this round begins with the base model, later with a copy of a neighbour. stale
    rounds: who is so far behind takes a copy, too; 0: never.

    Raises ConfigError for what makes no run.
    """

    run_seed: int = 0
    local_steps: int = 100
    alpha: float = 1.0
    gamma: float = 0.0
    matching: Matching = "one"
    encoding: str = "bfloat16"
    delay_steps: int = 0
    final_rounds: int = 0
    agrees_at_end: bool = False
    last_encoding: str = "float32"
    content_bytes_max: int = 1 << 32
    copy_bytes_max: int = 1 << 34
    fresh_rounds: int = 2
    stale_rounds: int = 0

    def __post_init__(self) -> None:
        if self.local_steps < 1 or self.steps % self.local_steps:
            raise ConfigError(f"steps ({self.steps}) must be a multiple of local_steps ({self.local_steps}).")
        if not 0 < self.alpha <= 1 or not 0 <= self.gamma < 1:
            raise ConfigError("alpha must be above 0 and at most 1, gamma at least 0 and below 1.")
        if not 0 <= self.delay_steps <= self.local_steps:
            raise ConfigError(f"delay_steps must be between 0 and local_steps ({self.local_steps}).")
        if self.final_rounds < 0 or self.fresh_rounds < 0 or self.stale_rounds < 0:
            raise ConfigError("numbers of rounds cannot be negative.")
        if not 0 < len(self.encoding.encode()) <= ENCODING_BYTES_MAX:
            raise ConfigError(f"an encoding is named by 1 to {ENCODING_BYTES_MAX} bytes.")

    @property
    def training_rounds(self) -> int:
        return self.steps // self.local_steps

    @property
    def rounds(self) -> int:
        """All exchanges of the run."""
        return self.training_rounds + self.final_rounds + LAST_AGREEMENTS * self.agrees_at_end

    def matching_of(self, round_: int) -> Matching:
        if self.is_last_agreement(round_):
            return "all"
        return self.matching if round_ < self.training_rounds else "full"

    def is_agreement(self, round_: int) -> bool:
        """Do all hosts agree in this round?"""
        return self.matching_of(round_) == "all"

    def is_last_agreement(self, round_: int) -> bool:
        """Is it one of the attempts at the end of the run?"""
        return round_ >= self.first_last_agreement

    @property
    def first_last_agreement(self) -> int:
        return self.training_rounds + self.final_rounds

    def encoding_of(self, round_: int) -> str:
        return self.last_encoding if self.is_last_agreement(round_) else self.encoding

    def are_alike(self, round_: int, other: int) -> bool:
        """Could what was made ready for one of the rounds be exchanged in the other one?"""
        of_both = {(self.is_agreement(one), self.encoding_of(one)) for one in (round_, other)}
        return len(of_both) == 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a node waits in an exchange. Whatever is measured, nothing takes longer than `seconds_max`.

    wait_factor: how long to wait for a partner that has not finished the round, as a share of the time of our own local
    steps. A host that is slower than that is left out. transfer_factor: a transfer may take this many times the time
    that follows from the link's throughput. floor_seconds: how long a busy host may take to answer. relink_seconds: how
    long to wait for a broken link. slow_share: a link that carries the parameters within this share of our local steps
    exchanges in every round, slower links less often; infinite: every link in every round.
    """

    wait_factor: float = 1.0
    transfer_factor: float = 3.0
    floor_seconds: float = 2.0
    relink_seconds: float = 10.0
    throughput_min: float = 1e6
    keep_bytes_per_second: float = 50e6
    slow_share: float = 1.0
    seconds_max: float = 900.0

    def wait_seconds(self, local_seconds: float, hop_seconds: float) -> float:
        """How long to wait for a partner to reach the round; both have begun the last one at about the same time."""
        return min(self.wait_factor * local_seconds + self.floor_seconds + 4 * hop_seconds, self.seconds_max)

    def transfer_seconds(self, size: int, throughput: float | None, hop_seconds: float) -> float:
        """How long it may take until `size` bytes, of both directions, are sent and kept on both sides, and both ends
        know it.

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
