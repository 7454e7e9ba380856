"""A trace in words: who said what to whom, what was kept and what was applied, so that a person can review a run.

A line is a moment in seconds, a host, and what it did. Hosts are h0, h1, ...; `h1:3` is the update of h1 for step 3,
`h1<4` that everything of h1 below step 4 is held, `h1.2.3 from 0` the statement 3 of the second life of h1, from step 0
on; `#5f0c` stands for bytes. Pings and their answers are left out.
"""

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Held
from seedflood.protocol.gasloc import messages as gasloc
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import Bundle, Update, Updates
from seedflood.protocol.swarm.messages import Hello, Member, Members, Opaque, Ping, Pong
from seedflood.transport.codec import PullPart

LEFT_OUT = (Ping, Pong)
SECRETS = ("signature", "public_key", "run_id", "base_digest")
"""Fields that tell a reader nothing."""


class Reader:
    """name: of an origin that is a host's, None for any other number."""

    def __init__(self, name: Callable[[int], str | None]) -> None:
        self._name = name

    def line(self, now: float, index: int, kind: str, what: str, values: tuple[object, ...]) -> str | None:
        """None: nothing that is worth a line."""
        if what == "committed" or any(isinstance(one, LEFT_OUT) for one in values):
            return None
        words = " ".join(one for one in map(self.words, values) if one not in ("", "[]"))
        return f"{now:8.3f}  h{index} {kind:<8}{what} {words}".rstrip()

    def words(self, value: object) -> str:
        match value:
            case Fraction():
                return str(value)
            case memoryview():
                return self.words(bytes(value))
            case bytes():
                return f"#{hashlib.sha256(value).hexdigest()[:4]}" if value else ""
            case bool() | None:
                return str(value).lower()
            case float():
                return f"{value:.3f}"
            case Enum():
                return value.name.lower()
            case int():
                return self._name(value) or ("ever" if value == STEP_MAX else str(value))
            case str():
                return value
            case Held():
                return " ".join([f"{self._name(value.origin)}<{value.mark}", *(f"{a}-{b}" for a, b in value.beyond)])
            case Bundle(origin, step, length, skipped):
                last = f"-{step + length - 1}" if length > 1 else ""
                return f"{self._name(origin)}:{step}{last}" + (f" (skips {skipped})" if skipped else "")
            case Update(origin, step):
                return f"{self._name(origin)}:{step}"
            case Updates(bundles):
                return f"updates {self.words(bundles)}"
            case Member():
                return self._statement(value)
            case Members(members):
                return f"statements {self.words(members)}"
            case Hello(member=member, frontier=frontier):
                return f"hello of {self.words(member)}, holds {self.words(frontier)}"
            case PullPart(number, message):
                return f"part {number}: {self.words(message)}"
            case Opaque(data):
                return self._opaque(data)
            case tuple() | list() if not hasattr(value, "_fields"):
                return f"[{', '.join(map(self.words, value))}]"
            case _:
                return self._fields(value)

    def _statement(self, member: Member) -> str:
        last = "" if member.last_step is None else f" to {self.words(member.last_step)}"
        steps = f"from {self.words(member.first_step)}{last}"
        linked = f" linked {self.words(member.neighbours)}" if member.neighbours else ""
        return f"{member.name}.{member.incarnation}.{member.version} {steps}{linked}"

    def _opaque(self, data: bytes) -> str:
        try:
            return self.words(gasloc.decode(data))
        except PeerError:
            return self.words(data)

    def _fields(self, value: object) -> str:
        names = [one.name for one in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
        told = [f"{name} {self.words(getattr(value, name))}" for name in names if name not in SECRETS]
        return f"{type(value).__name__.lower()} ({', '.join(told)})"
