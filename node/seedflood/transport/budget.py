"""What a neighbour may cost: token buckets per peer, for work that brings nothing new.

Good news is free, however much of it there is: a budget that counted volume would hold up who has most to say. What is
paid for could go on for ever without use: frames without news, bundles that were held already, signatures verified in
vain, statements, digests, pulls. A flood is symmetric, so every neighbour may say once what any other has said: each
new bundle earns every peer one repeat.

Whoever has spent a bucket is *muted*: nothing is read from it until it has paid, so HTTP/2's flow control slows it
down, and nothing of what it says is lost. A score of seconds muted, which halves every minute, ends the link of one who
goes on for long; that, and what the protocol does not allow, is answered by a back-off that doubles. Nothing here
follows from what others say of a peer, and peers of our own configuration are muted but never refused.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import FrontierDigest, ReplicaDigest, Updates
from seedflood.protocol.swarm.messages import Members, Opaque
from seedflood.transport.codec import LinkMessage, Pull, PullEnd, PullMore, PullPart

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
"""Each takes some 5 % of a core at most. The bursts are a restart of all hosts, or a healed partition."""

MUTE_SECONDS_MAX = 2.0
"""At a time: pings of a muted peer are answered later, not never."""

SCORE_HALVES_SECONDS = 60.0
SCORE_MAX = 40.0
"""Seconds muted, of the last minutes: a link that is muted nearly all the time ends after about one."""

BACK_OFF_SECONDS_MIN, BACK_OFF_SECONDS_MAX = 0.5, 60.0


PEERS_REMEMBERED = 4096

RANGES_PER_PULL = 1024
"""So many cost as much again: each has to be looked for."""


class Use(NamedTuple):
    """What came of a message: news, repeats of what was held, and what was verified or unpacked in vain.

    SeedFlood counts bundles. A message that is opaque here is one piece of news if its algorithm had a use for it.
    """

    news: int = 0
    repeats: int = 0
    in_vain: int = 0


@dataclass(slots=True)
class Bucket:
    """level: what may be taken now; below 0: what is owed."""

    allowance: Allowance
    level: float
    at: float

    def take(self, amount: float, now: float) -> float:
        """Takes it; the seconds until that is paid for."""
        self.level = min(self.allowance.burst, self.level + (now - self.at) * self.allowance.per_second) - amount
        self.at = now
        return max(0.0, -self.level / self.allowance.per_second)

    def earn(self, amount: float) -> None:
        self.level = min(self.allowance.burst, self.level + amount)


class Conduct:
    """One peer, over all of its links."""

    def __init__(self, now: float) -> None:
        self._buckets = {kind: Bucket(allowance, allowance.burst, now) for kind, allowance in ALLOWANCES.items()}
        self._score = 0.0
        self._scored_at = now
        self._back_off = 0.0
        self._refused_until = now
        self._earned = 0

    def take(self, costs: dict[Kind, float], news_of_all: int, now: float) -> float:
        """For how many seconds nothing is to be read from it. news_of_all: new bundles so far, whoever told them."""
        earned: float = news_of_all - self._earned
        self._earned = news_of_all
        seconds = 0.0
        for kind, amount in costs.items():
            if kind == "repeats":
                paid = min(amount, earned)
                earned, amount = earned - paid, amount - paid
            seconds = max(seconds, self._buckets[kind].take(amount, now))
        self._buckets["repeats"].earn(earned)
        seconds = min(seconds, MUTE_SECONDS_MAX)
        self._score = self.score(now) + seconds
        self._scored_at = now
        return seconds

    def score(self, now: float) -> float:
        return float(self._score * 0.5 ** ((now - self._scored_at) / SCORE_HALVES_SECONDS))

    def is_unbearable(self, now: float) -> bool:
        return self.score(now) > SCORE_MAX

    def offend(self, now: float) -> None:
        """Its link was ended for a fault of its own: the next one waits, twice as long as last time."""
        if now > self._refused_until + BACK_OFF_SECONDS_MAX:
            self._back_off = 0.0
        self._back_off = min(max(2 * self._back_off, BACK_OFF_SECONDS_MIN), BACK_OFF_SECONDS_MAX)
        self._refused_until = now + self._back_off
        self._score = 0.0

    def is_refused(self, now: float) -> bool:
        return now < self._refused_until


class Budgets:
    """Of all peers. news: new bundles so far, whoever told them.

    A peer is known by its address and its key: nothing proves a key before TLS does, and nobody shall spend what is
    another's.
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
    """What a frame of so many bytes is charged for. Answers to our own pulls come as fast as we ask for them."""
    costs: dict[Kind, float] = {"repeats": use.repeats, "verifications": use.in_vain}
    told = message.message if isinstance(message, PullPart) else message
    if isinstance(told, Members):
        costs["statements"] = len(told.members)
    if isinstance(message, PullPart | PullEnd | PullMore) or (isinstance(message, Updates) and message.bundles):
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
