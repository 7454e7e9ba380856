"""What the two papers claim, and what each study here says of it.

A claim is a few checks, which were written down before the results were there. It holds if all of them pass, in part if
some do, and else it does not hold here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from study.evidence import Evidence, is_as_good, is_better
from study.links import PHONE, UNEQUAL
from study.plan import BYTES, CLIENTS, EXCHANGES, HOPS, RANK, REFRESH, SLOW, TOPOLOGIES
from study.summary import Spread

SEEDFLOOD = "SeedFlood, arXiv 2602.18181"
GASLOC = "GASLoC, arXiv 2606.11081"

Found = tuple[Sequence[bool], str]
"""The checks, and the figures that they are of."""


@dataclass(frozen=True, slots=True)
class Claim:
    """text: with what is checked. judge: raises LookupError if a result is missing."""

    paper: str
    text: str
    judge: Callable[[Evidence], Found]


@dataclass(frozen=True, slots=True)
class Judgement:
    """study: its name."""

    claim: Claim
    study: str
    verdict: str
    figures: str


def judge(studies: Sequence[Evidence]) -> Iterator[Judgement]:
    """All claims, in order, each by the studies that measured it."""
    for claim in CLAIMS:
        found = [one for evidence in studies for one in _judge(claim, evidence)]
        yield from found or [Judgement(claim, "-", "not measured", "-")]


def _judge(claim: Claim, evidence: Evidence) -> Iterator[Judgement]:
    """One, or none if a result is missing."""
    with suppress(LookupError):
        checks, figures = claim.judge(evidence)
        verdict = "holds" if all(checks) else "holds in part" if any(checks) else "does not hold here"
        yield Judgement(claim, evidence.study.name, verdict, figures)


def _bytes(evidence: Evidence) -> Found:
    own = evidence.bytes_of("seedflood")
    others = {name: evidence.bytes_of(name) for name in ("dsgd", "choco", "dsgd-lora", "choco-lora")}
    figures = ", ".join(f"{name} {sent:,.0f}" for name, sent in {"seedflood": own, **others}.items())
    return [own < sent for sent in others.values()], f"bytes per edge: {figures}"


def _gossip_without_gradients(evidence: Evidence) -> Found:
    return _compare(evidence, BYTES, "seedflood", ("dzsgd", "dzsgd-lora"), is_better)


def _gossip_with_gradients(evidence: Evidence) -> Found:
    return _compare(evidence, BYTES, "seedflood", ("dsgd", "choco", "dsgd-lora", "choco-lora"), is_as_good)


def _many_clients(evidence: Evidence) -> Found:
    few = evidence.worth(CLIENTS, "dsgd")
    settings = [f"clients {count}" for count in (32, 64, 128)]
    own = {setting: evidence.worth(CLIENTS, "seedflood", setting) for setting in settings}
    figures = _spelled({"dsgd, 16 clients": few, **own})
    return [is_as_good(one, few) for one in own.values()], figures


def _graphs(evidence: Evidence) -> Found:
    settings = ("base", "topology grid", "topology star", "topology complete")
    own = [evidence.worth(TOPOLOGIES, "seedflood", setting) for setting in settings]
    figures = _spelled(dict(zip(("ring", "grid", "star", "complete"), own, strict=True)))
    return [len(set(own)) == 1], figures


def _rank(evidence: Evidence) -> Found:
    base, high = evidence.worth(RANK, "seedflood"), evidence.worth(RANK, "seedflood", "rank 128")
    low = {f"rank {rank}": evidence.worth(RANK, "seedflood", f"rank {rank}") for rank in (4, 8)}
    checks = [*(is_better(base, one) for one in low.values()), is_as_good(base, high)]
    return checks, _spelled({**low, "rank 32": base, "rank 128": high})


def _refresh(evidence: Evidence) -> Found:
    base = evidence.worth(REFRESH, "seedflood")
    short = {one: evidence.worth(REFRESH, "seedflood", f"refresh period {one}") for one in (1, 10, 50)}
    checks = [is_better(base, short[1]), is_as_good(base, short[50])]
    return checks, _spelled({**{f"{one} steps": found for one, found in short.items()}, "the whole run": base})


def _hops(evidence: Evidence) -> Found:
    path = "topology path"
    whole = evidence.worth(HOPS, "seedflood", path)
    few = {hops: evidence.worth(HOPS, "seedflood", f"{path}, hops {hops}") for hops in (8, 4, 2, 1)}
    checks = [is_as_good(few[8], whole), is_as_good(few[4], whole), not is_as_good(few[1], whole)]
    return checks, _spelled({"full": whole, **{f"{hops} hops": found for hops, found in few.items()}})


def _aggregation(evidence: Evidence) -> Found:
    timing = evidence.updates
    last = timing.updates[-1]
    figures = (
        f"{timing.parameters:,} parameters, {last.count:,} updates: "
        f"{last.subspace_seconds:.3g} s in the subspace, {last.dense_seconds:.3g} s dense"
    )
    return [last.subspace_seconds < 1, last.dense_seconds > 100 * last.subspace_seconds], figures


def _one_step(evidence: Evidence) -> Found:
    return _compare(evidence, EXCHANGES, "gasloc", ("d-adam", "dsgd"), is_better, "local steps 1")


def _several_steps(evidence: Evidence) -> Found:
    settings = ("base", "local steps 10")
    found = [_compare(evidence, EXCHANGES, "gasloc", ("diloco",), is_as_good, setting) for setting in settings]
    return [check for checks, _ in found for check in checks], "; ".join(
        f"{setting}: {figures}" for setting, (_, figures) in zip(("5 steps", "10 steps"), found, strict=True)
    )


def _unequal_links(evidence: Evidence) -> Found:
    pairs = evidence.row(SLOW, "gasloc"), evidence.row(SLOW, "gasloc", "slow class 3")
    everyone = evidence.row(BYTES, "diloco")
    equal = [evidence.seconds(row, PHONE) for row in (pairs[0], everyone)]
    unequal = [evidence.seconds(row, UNEQUAL) for row in (pairs[1], everyone)]
    figures = (
        f"seconds to a validation loss of {evidence.goal():.3f}: gasloc {equal[0]:,.1f} and diloco {equal[1]:,.1f} on "
        f"equal links ({PHONE.name}), {unequal[0]:,.1f} and {unequal[1]:,.1f} where every fourth has an eighth of it"
    )
    return [unequal[0] < unequal[1]], figures


def _momentum(evidence: Evidence) -> Found:
    plain, faster = evidence.tried("gasloc", gamma=0.0), evidence.tried("gasloc", gamma=0.5)
    return [faster < plain], f"least validation loss of the tries: gamma 0: {plain:.4f}, gamma 0.5: {faster:.4f}"


def _compare(
    evidence: Evidence,
    title: str,
    own: str,
    others: Sequence[str],
    passes: Callable[[Spread, Spread], bool],
    setting: str = "base",
) -> Found:
    found = {name: evidence.worth(title, name, setting) for name in (own, *others)}
    return [passes(found[own], found[other]) for other in others], _spelled(found)


def _spelled(found: dict[str, Spread]) -> str:
    return ", ".join(f"{name} {one.mean:.3f} ({one.low:.3f} to {one.high:.3f})" for name, one in found.items())


CLAIMS = (
    Claim(SEEDFLOOD, "A run sends far fewer bytes than gossip of parameters, also where that is compressed.", _bytes),
    Claim(
        SEEDFLOOD, "It is better than gossip without gradients: with each seed, than both.", _gossip_without_gradients
    ),
    Claim(SEEDFLOOD, "It is as good as gossip with gradients, with few clients.", _gossip_with_gradients),
    Claim(SEEDFLOOD, "With 32 to 128 clients it is as good as DSGD with 16.", _many_clients),
    Claim(
        SEEDFLOOD,
        "What is learned does not depend on the graph; in strict windows that is so by construction.",
        _graphs,
    ),
    Claim(SEEDFLOOD, "A rank below 32 hurts; more than 32 is not needed.", _rank),
    Claim(SEEDFLOOD, "A new subspace in each step destroys learning; in every 50th it does no harm.", _refresh),
    Claim(SEEDFLOOD, "Flooding 4 or 8 hops a round costs nothing visible; 1 hop does.", _hops),
    Claim(
        SEEDFLOOD,
        "1,024 updates are applied in less than a second, a hundred times faster than dense ones.",
        _aggregation,
    ),
    Claim(GASLOC, "With one step between two exchanges it is better than D-Adam and DSGD.", _one_step),
    Claim(GASLOC, "With several steps between two exchanges it is as good as DiLoCo.", _several_steps),
    Claim(GASLOC, "Where links are unequal it is sooner at a loss than DiLoCo.", _unequal_links),
    Claim(GASLOC, "Momentum of the exchange learns faster than plain gossip.", _momentum),
)
