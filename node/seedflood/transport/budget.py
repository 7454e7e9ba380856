"""Rate limits: token buckets per peer, for work that brings nothing new.

New bundles are free, however many there are; only work that could go on for ever without use is charged. A peer that
has emptied a bucket is *muted*, and none of its messages is lost. Only a peer's own behaviour counts, never what others
say of it.

When a link ends, and who is refused: docs/explanation/links.md.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import EPOCH_PART_BYTES, FrontierDigest, ReplicaDigest
from seedflood.protocol.swarm.messages import Members, Opaque
from seedflood.transport.codec import EpochPart, LinkMessage, Pull, PullEnd, PullMore, PullPart

Kind = Literal["frames", "bytes", "repeats", "verifications", "statements", "digests", "pulls"]


class Allowance(NamedTuple):
    per_second: float
    burst: float


ALLOWANCES: dict[Kind, Allowance] = {
    "frames": Allowance(500, 5_000),
    "bytes": Allowance(4 << 20, 32 << 20),
    "repeats": Allowance(2_000, 131_072),
    "verifications": Allowance(200, 4_096),
    "statements": Allowance(500, 16_384),
    "digests": Allowance(50, 1_000),
    "pulls": Allowance(2, 32),
}
"""Each kind costs about 5 % of a core at most. The bursts are sized for a restart of all hosts, or a partition that
heals."""

MUTE_SECONDS_MAX = 2.0
"""A peer is muted for no longer than this at a time, so that its pings are answered late, but answered."""

SCORE_HALVES_SECONDS = 60.0
SCORE_MAX = 40.0
"""The highest score, in muted seconds. A link that is muted nearly all the time ends after about a minute."""

BACK_OFF_SECONDS_MIN, BACK_OFF_SECONDS_MAX = 0.5, 60.0


PEERS_REMEMBERED = 4096

RANGES_PER_PULL = 1024
"""Each this many ranges of a pull cost as much as one more pull, because each range has to be looked up."""


class Use(NamedTuple):
    """What a message was good for: how much was new, how much was held already, and how much was verified or unpacked
    in vain.

    SeedFlood counts bundles. An `Opaque` message counts as one piece of news if its algorithm could use it.
    """

    news: int = 0
    repeats: int = 0
    in_vain: int = 0

    def since(self, before: "Use") -> "Use":
        """Of sums over all messages: what has come to them since."""
        return Use(*(after - earlier for earlier, after in zip(before, self, strict=True)))


@dataclass(slots=True)
class Bucket:
    """A token bucket. level: the tokens in it at the time `at`; below 0, the debt."""

    allowance: Allowance
    level: float
    at: float

    def take(self, amount: float, now: float) -> float:
        """Takes tokens. Returns the seconds until the debt is paid, 0 if there is none."""
        self.level = min(self.allowance.burst, self.level + (now - self.at) * self.allowance.per_second) - amount
        self.at = now
        return max(0.0, -self.level / self.allowance.per_second)

    def earn(self, amount: float) -> None:
        self.level = min(self.allowance.burst, self.level + amount)


class Conduct:
    """How one peer has behaved, over all of its links."""

    def __init__(self, now: float) -> None:
        self._buckets = {kind: Bucket(allowance, allowance.burst, now) for kind, allowance in ALLOWANCES.items()}
        self._score = 0.0
        self._scored_at = now
        self._back_off = 0.0
        self._refused_until = now
        self._earned = 0

    def take(self, costs: dict[Kind, float], news_of_all: int, now: float) -> float:
        """Charges the peer. Returns for how many seconds nothing may be read from it. news_of_all: new bundles so far,
        from all peers."""
        earned: float = news_of_all - self._earned
        self._earned = news_of_all
        seconds = 0.0
        for kind, amount in costs.items():
            if kind == "repeats":
                paid = min(amount, earned)
                earned, amount = earned - paid, amount - paid
            seconds = max(seconds, self._buckets[kind].take(amount, now))
        self._buckets["repeats"].earn(earned)  # every neighbour may repeat once what another one sent first
        seconds = min(seconds, MUTE_SECONDS_MAX)
        self._score = self.score(now) + seconds
        self._scored_at = now
        return seconds

    def score(self, now: float) -> float:
        return float(self._score * 0.5 ** ((now - self._scored_at) / SCORE_HALVES_SECONDS))

    def is_unbearable(self, now: float) -> bool:
        return self.score(now) > SCORE_MAX

    def offend(self, now: float) -> None:
        """The link was ended for a fault of this peer. It is refused for a while, twice as long as last time."""
        if now > self._refused_until + BACK_OFF_SECONDS_MAX:
            self._back_off = 0.0
        self._back_off = min(max(2 * self._back_off, BACK_OFF_SECONDS_MIN), BACK_OFF_SECONDS_MAX)
        self._refused_until = now + self._back_off
        self._score = 0.0

    def is_refused(self, now: float) -> bool:
        return now < self._refused_until


class Budgets:
    """The conduct of all peers. news: new bundles so far, from all peers.

    A peer is known by its address and its key together: without TLS a key proves nothing, and nobody may spend another
    peer's budget.
    """

    def __init__(self) -> None:
        self.news = 0
        self._of: OrderedDict[tuple[str, OriginId], Conduct] = OrderedDict()

    def of(self, source: str, origin: OriginId, now: float) -> Conduct:
        conduct = self._of.pop((source, origin), None) or Conduct(now)
        self._of[source, origin] = conduct
        if len(self._of) > PEERS_REMEMBERED:
            self._of.popitem(last=False)
        return conduct


def costs_of(message: LinkMessage | None, size: int, use: Use) -> dict[Kind, float]:
    """What a frame of `size` bytes costs. Answers to our own pulls cost nothing by volume: we set their pace. But parts
    that hold nothing, or less of a sum than they could, may go on for ever."""
    costs: dict[Kind, float] = {"repeats": use.repeats, "verifications": use.in_vain}
    inner = message.message if isinstance(message, PullPart) else message
    if isinstance(inner, Members):
        costs["statements"] = len(inner.members)
    if isinstance(message, PullEnd | PullMore) or (isinstance(inner, Updates) and inner.bundles):
        return costs
    if isinstance(message, PullPart) and isinstance(inner, EpochPart | Opaque) and not _is_scanty(inner):
        return costs
    if isinstance(message, Opaque) and use.news:
        return costs
    costs |= {"frames": 1, "bytes": size}
    match message:
        case FrontierDigest() | ReplicaDigest():
            costs["digests"] = 1
        case Pull(_, frontier):
            costs["pulls"] = 1 + sum(len(held.beyond) for held in frontier) / RANGES_PER_PULL
    return costs


def _is_scanty(part: EpochPart | Opaque) -> bool:
    """Is it a part of a sum, not the last one, and shorter than honest donors cut it?"""
    return isinstance(part, EpochPart) and not part.is_last and len(part.data) < EPOCH_PART_BYTES
