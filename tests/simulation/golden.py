"""Golden traces: what each host said, kept and applied in twelve simulated runs, as counts and hashes in a file.

Three small runs more are there as texts, in the folder `golden`, so that a change of behaviour can be read in a review
(`reading`).

Whoever moves or renames code leaves them as they are, and so proves that it does what it did. Whoever changes what
hosts do writes files and texts anew, and says in the commit why they had to change:

    PYTHONPATH=. .venv/bin/python tests/simulation/golden.py write

To find the first moment at which two versions part, compare (`diff`) what each of them says of a run, line by line:

    PYTHONPATH=. .venv/bin/python tests/simulation/golden.py show bounded-all

`read` in place of `show` says the same in words.

A trace holds bytes as they go over the wire (of statements what they say), numbers and moments, and no name of the
code. Where a seam gets another name, `_divergence` follows, and no hash changes. Moments are rounded, for libraries
differ in the last bit of a logarithm; sums are stored and not compressed, for every build of zlib does that in the same
way.
"""

import hashlib
import json
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from fractions import Fraction
from pathlib import Path

import pytest
from reading import Reader

from seedflood.host.seedflood.seams import Adopt, Refill, Replay, Seal
from seedflood.protocol.frontier import Held
from seedflood.protocol.gasloc import orders
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, SumEpoch, TakeDigest
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import Hello, Member, Members, Opaque, Ping, Pong
from seedflood.transport import codec
from seedflood.transport.answer import cut
from seedflood.transport.codec import PullPart
from simulation.gasloc import runs as gasloc
from simulation.gasloc.compute import Compute
from simulation.gasloc.disk import ReplicaDisk
from simulation.gasloc.host import GaslocHost
from simulation.host import Host
from simulation.journal import MemoryJournal
from simulation.network import Network
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.journal import MemoryBundleJournal
from simulation.seedflood.runs import Plan, simulate

FILE = Path(__file__).with_name("golden.json")

KINDS = ("sent", "kept", "applied")

PLANS = {
    "strict-none": Plan(5, "ring", 1, 12, "strict", "none", update_kind="pairs", delay=0, optimizer="sgd"),
    "strict-all": Plan(6, "grid", 2, 12, "strict", "all", update_kind="coefficients", delay=2, optimizer="adam"),
    "strict-liars": Plan(6, "grid", 4, 8, "strict", "liars", update_kind="coefficients", delay=1, optimizer="momentum"),
    "bounded-none": Plan(5, "path", 4, 12, "bounded", "none", local_steps=2, update_kind="coefficients", delay=0),
    "bounded-all": Plan(6, "ring", 5, 12, "bounded", "all", update_kind="pairs", delay=1),
    "bounded-liars": Plan(6, "random-regular", 15, 8, "bounded", "liars", update_kind="coefficients", delay=0),
    "sums": Plan(5, "ring", 2, 24, "bounded", "adoption", refresh_period=2, update_kind="pairs", delay=0),
    "disks": Plan(
        6, "tree", 17, 16, "strict", "disks", refresh_period=4, update_kind="pairs", delay=0, optimizer="momentum"
    ),
    "keys": Plan(5, "grid", 12, 12, "bounded", "keys", update_kind="coefficients", delay=1),
}
"""Every window under no faults, all of them and liars; sums that are adopted, disks that are lost, keys in use twice.
What a plan leaves open is drawn from its seed."""

GASLOC_PLANS = {
    "gasloc-pairs-all": gasloc.Plan(6, "grid", 3, 16, "all", 2, "two", 0.0),
    "gasloc-full-losses": gasloc.Plan(5, "ring", 5, 12, "losses", 2, "full", 0.5),
    "gasloc-liars": gasloc.Plan(5, "complete", 6, 8, "liars", 4, "one", 0.5),
}
"""Of GASLoC: pairs under all faults, all neighbours where replicas are lost, liars."""

ALL_PLANS = {**PLANS, **GASLOC_PLANS}

TEXTS = {
    "strict": Plan(3, "path", 1, 3, "strict", "none", refresh_period=2, update_kind="pairs", delay=0, optimizer="sgd"),
    "crash": Plan(3, "path", 7, 6, "bounded", "crashes", update_kind="pairs", delay=0),
    "gasloc": gasloc.Plan(2, "complete", 1, 4, "none", 2, "one", 0.0),
}
"""The runs that are kept as texts: updates pass a middle host; a middle host crashes; a pair of GASLoC."""

FOLDER = Path(__file__).with_name("golden")

ORDERS: dict[type, str] = {
    orders.Restore: "restore",
    orders.TakeLocalSteps: "steps",
    orders.Encode: "encode",
    orders.Mix: "mix",
    orders.KeepCheckpoint: "checkpoint",
    orders.OpenCopy: "open copy",
    orders.Adopt: "adopt",
    orders.Publish: "publish",
    orders.Take: "take",
}
"""The word of a trace for each order of GASLoC."""


class Trace:
    """What happened on all hosts, a line for each thing, in the order of their happening."""

    def __init__(self, *, is_read: bool = False) -> None:
        """is_read: also in words."""
        self.lines: list[tuple[str, str]] = []
        """(kind, line)"""
        self.hosts: dict[int, Host] = {}
        self.text: list[str] = []
        self._reader = Reader(self._name) if is_read else None

    def _name(self, origin: int) -> str | None:
        return next((f"h{index}" for index, host in self.hosts.items() if host.origin == origin), None)

    def note(self, kind: str, index: int, what: str, *values: object) -> None:
        now = self.hosts[index].clock.now
        try:
            self.lines.append((kind, " ".join([f"{now:.6f}", f"h{index}", what, *map(spell, values)])))
            if self._reader is not None and (words := self._reader.line(now, index, kind, what, values)) is not None:
                self.text.append(words)
        except Exception as error:
            pytest.fail(f"{what} cannot be spelled: {error!r}")  # a host would only die of the error

    def facts(self) -> dict[str, str]:
        """How many lines of each kind, and the hash of them."""
        facts = {}
        for kind in KINDS:
            lines = [line for one, line in self.lines if one == kind]
            facts[kind] = f"{len(lines)} {_hash(chr(10).join(lines).encode())}"
        return facts


def spell(value: object) -> str:
    """A value as text: bytes by length and hash, messages as their frames, tuples as what is in them."""
    match value:
        case bytes():
            return f"{len(value)}:{_hash(value)}"
        case float():
            return f"{value:.6f}"
        case None | bool() | int() | str():
            return repr(value)
        case Fraction():
            return str(value)
        case Ping(sent_at) | Pong(sent_at):
            return f"{len(b''.join(codec.encode(value)))}:{sent_at:.6f}"
        case ClosedEpoch():
            return f"({','.join(map(spell, cut([value])))})"
        case Bundle():
            return spell(Updates((value,)))
        case PullPart(number, Members(members)):
            return f"part{spell((number, members))}"
        case Members(members):
            return spell(members)
        case Hello(run_id, base_digest, member, members, frontier):
            return f"hello{spell((run_id, base_digest, member, members, frontier))}"
        case Member():
            return f"member{spell(facts_of(value))}"
        case Held():
            return spell(astuple(value))
        case tuple() | list():
            return f"({','.join(map(spell, value))})"
        case _:
            return spell(b"".join(codec.encode(value)))


def facts_of(member: Member) -> tuple[object, ...]:
    """What a statement says, however that is encoded and signed."""
    who = (member.public_key, member.name, *member.age, member.neighbours)
    return (*who, member.first_step, member.last_step, member.hop_milliseconds, *STATED[-1](member))


def _stated_by_seedflood(member: Member) -> tuple[object, ...]:
    return (stated(member).published_before,)


STATED = [_stated_by_seedflood]
"""The last one reads what the algorithm of the run states."""


def run(plan: Plan | gasloc.Plan, *, is_read: bool = False) -> tuple[Trace, dict[str, object]]:
    """What happened in the run, and what the file says of it."""
    trace, compress = Trace(is_read=is_read), zlib.compress
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zlib, "compress", lambda raw, **_: compress(raw, level=0))
        if isinstance(plan, Plan):
            _divergence(patch, trace)
            result = simulate(plan)
            digest = result.digest
        else:
            _watch_gasloc(patch, trace)
            result = gasloc.simulate(plan)
            digest = _hash(spell([trace.hosts[index].replica.values for index in sorted(trace.hosts)]).encode())
    facts = {
        "virtual_seconds": round(result.virtual_seconds, 3),
        "healed": result.healed,
        "digest": digest,
        "steps": " ".join(str(trace.hosts[index].node.step) for index in sorted(trace.hosts)),
    }
    return trace, facts | trace.facts()


def text_of(plan: Plan | gasloc.Plan) -> str:
    """What happened in a run, in words."""
    return "\n".join([f"# {plan}", *run(plan, is_read=True)[0].text, ""])


def read() -> dict[str, dict[str, object]]:
    return json.loads(FILE.read_text())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _make_tap(patch, trace):
    def tap(owner, name, kind, told):
        """told: of the arguments, the index of the host and what is to be written."""
        method = getattr(owner, name)

        def tapped(*args, **settings):
            index, *values = told(*args, **settings)
            trace.note(kind, index, *values)
            return method(*args, **settings)

        patch.setattr(owner, name, tapped)

    return tap


def _watch_gasloc(patch, trace):
    """The same of hosts that train by GASLoC."""
    tap, start = _make_tap(patch, trace), GaslocHost.start

    def started(host, **settings):
        trace.hosts[host.index] = host
        start(host, **settings)

    patch.setattr(sys.modules[__name__], "STATED", [lambda member: (member.algorithm,)])
    patch.setattr(GaslocHost, "start", started)
    tap(
        Network, "_pass_on", "sent", lambda _, link, sender, item: (sender, f"to h{link.far_end(sender)}", Opaque(item))
    )
    tap(Network, "_carry", "sent", lambda _, link, sender, item: (sender, f"to h{link.far_end(sender)}", item))
    tap(MemoryJournal, "keep", "kept", _kept)
    tap(
        ReplicaDisk,
        "save",
        "kept",
        lambda disk, one: (disk._owner.index, "checkpoint", one.round, one.data),
    )
    tap(Compute, "put", "applied", _ordered)


def _kept(disk, members, records=(), *, durable):
    what = [(one.key, one.value) for one in records]
    return disk._owner.index, "durable" if durable else "open", list(members), what


def _ordered(compute, order):
    values = [getattr(order, one.name) for one in fields(order) if one.name != "sink"]
    if isinstance(order, orders.Mix):
        values[1] = [(share.partner, share.weight) for share in order.partners]
    return compute._host.index, ORDERS[type(order)], [float(one) if isinstance(one, float) else one for one in values]


def _divergence(patch, trace):
    """Writes down everything that passes the seams of the drivers, answers to pulls and raw bytes of liars, too."""
    tap = _make_tap(patch, trace)

    def read_aloud(host, items):
        for item in items:
            trace.note("applied", host.index, "read", item)
            yield item

    start, compute = SeedfloodHost.start, SeedfloodHost.compute

    def started(host, **settings):
        trace.hosts[host.index] = host
        start(host, **settings)

    def ordered(host, job):
        match job:
            case Replay() | Refill():
                job = type(job)(*(read_aloud(host, items) for items in job))
            case _:
                trace.note("applied", host.index, *_told_of(job))
        compute(host, job)

    patch.setattr(SeedfloodHost, "start", started)
    patch.setattr(SeedfloodHost, "compute", ordered)
    tap(Network, "_carry", "sent", lambda _, link, sender, item: (sender, f"to h{link.far_end(sender)}", item))
    tap(MemoryBundleJournal, "append", "kept", _appended)
    tap(MemoryBundleJournal, "commit", "kept", lambda disk: (disk._owner.index, "committed"))
    tap(MemoryBundleJournal, "cut", "kept", lambda disk, spans: (disk._owner.index, "cut", tuple(spans)))
    tap(MemoryBundleJournal, "adopt", "kept", lambda disk, closed: (disk._owner.index, "sum", closed))


def _appended(
    disk: MemoryBundleJournal, bundles: Sequence[Bundle], members: Iterable[Member], *, durable: bool
) -> tuple[object, ...]:
    return disk._owner.index, "durable" if durable else "open", bundles, members


def _told_of(job):
    match job:
        case ClosedWindow():
            return "window", job.steps, job.updates, job.late, job.received, job.missing
        case Adopt():
            return "adopt", *job
        case Seal(epoch):
            return "seal", epoch
        case _:
            names = {Measure: "measure", TakeDigest: "digest", SumEpoch: "sum"}
            return names[type(job)], *(getattr(job, one.name) for one in fields(job))


def _write() -> None:
    facts = {name: run(plan)[1] for name, plan in ALL_PLANS.items()}
    FILE.write_text(json.dumps(facts, indent=2) + "\n")
    for name, plan in TEXTS.items():
        (FOLDER / f"{name}.txt").write_text(text_of(plan))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write"]:
            _write()
        case ["read", name]:
            print(text_of({**ALL_PLANS, **TEXTS}[name]))
        case ["show", name]:
            for kind, line in run(ALL_PLANS[name])[0].lines:
                print(kind, line)
        case _:
            sys.exit(__doc__)
