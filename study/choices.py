"""Which method to use in five situations, as far as each study here says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isinf

from study.evidence import Evidence
from study.links import HOME, LAN, PHONE, UNEQUAL, Links
from study.methods import METHODS
from study.methods.central import Central
from study.methods.clients import Clients
from study.methods.method import Initial, Method
from study.methods.seedflood import TwoSided
from study.plan import BYTES, PRE_TRAINERS
from study.summary import Spread


@dataclass(frozen=True, slots=True)
class Situation:
    """who: which methods can be used in it. links: that their times are compared on. initial: of the study that
    tells."""

    name: str
    who: Callable[[str, type[Method]], bool]
    links: Links
    initial: Initial = "pretrained"


@dataclass(frozen=True, slots=True)
class Choice:
    """study: its name. usable: how many of its methods can be used. seconds: to a loss, of those that were measured,
    the best one first. worths: what the same are worth in the end (`Evidence.worth`), the best one first."""

    situation: Situation
    study: str
    usable: int
    seconds: Sequence[tuple[str, float]]
    worths: Sequence[tuple[str, Spread]] = ()


def _anyone(_: str, kind: type[Method]) -> bool:
    return not issubclass(kind, Central)


def _without_gradients(_: str, kind: type[Method]) -> bool:
    return kind.order == "zeroth" and not issubclass(kind, Central)


def _with_frozen_weights(_: str, kind: type[Method]) -> bool:
    has_adapters = issubclass(kind, Clients) and kind.has_adapters
    return not issubclass(kind, Central) and (issubclass(kind, TwoSided) or has_adapters)


def _pre_training(name: str, _: type[Method]) -> bool:
    return name in PRE_TRAINERS


SITUATIONS = (
    Situation("phone-grade links", _anyone, PHONE),
    Situation("no memory for activations", _without_gradients, HOME),
    Situation("quantised weights, which a step must not write to", _with_frozen_weights, HOME),
    Situation("a fast LAN", _anyone, LAN),
    Situation("pre-training over unequal links", _pre_training, UNEQUAL, "random"),
)


def choose(studies: Sequence[Evidence]) -> Iterator[Choice]:
    """For each situation, in order, by the studies that measured two methods for it at least."""
    for situation in SITUATIONS:
        compression = [one for one in studies if one.study.plan.initial == situation.initial]
        found = [_choice(situation, one) for one in compression]
        yield from [one for one in found if len(one.seconds) > 1] or [Choice(situation, "-", 0, ())]


def _choice(situation: Situation, evidence: Evidence) -> Choice:
    """Methods that have not reached the loss come last; those without all results are left out."""
    usable = [name for name in evidence.study.used() if situation.who(name, METHODS[name])]
    seconds, worths = [], []
    for name in usable:
        with suppress(LookupError):
            seconds.append((name, evidence.seconds(evidence.row(BYTES, name), situation.links)))
            worths.append((name, evidence.worth(BYTES, name)))
    seconds.sort(key=lambda one: one[1])
    worths.sort(key=lambda one: -one[1].mean)
    return Choice(situation, evidence.study.name, len(usable), seconds, worths)


def spell(choice: Choice) -> tuple[str, str, str]:
    """The method that is the soonest, its figures beside those of the next ones, and the methods that are the best in
    the end."""
    if not choice.seconds:
        return "-", "not measured", "not measured"
    few = len(choice.seconds) < choice.usable
    missing = f"; {len(choice.seconds)} of {choice.usable} methods are measured" if few else ""
    best = ", ".join(f"{name} {_spell_worth(worth)}" for name, worth in choice.worths[:3])
    if isinf(choice.seconds[0][1]):
        return "-", f"{choice.situation.links.name}: none of them reaches it", best
    reached = [f"{name} {seconds:,.1f} s" for name, seconds in choice.seconds[:4] if not isinf(seconds)]
    return choice.seconds[0][0], f"{choice.situation.links.name}: {', '.join(reached)}{missing}", best


def _spell_worth(worth: Spread) -> str:
    return f"{worth.mean:.3f}" if worth.mean >= 0 else f"loss {-worth.mean:.3f}"
