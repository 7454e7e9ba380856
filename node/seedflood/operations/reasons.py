"""Why a node waits, in words for people."""

from typing import Any

from seedflood.protocol.origin import fingerprint
from seedflood.protocol.view import Blocker

_CLAUSES: dict[str, str] = {
    "disk full": "its own disk is full",
    "no link": "it has no link with {name}",
    "start": "{name} have not come yet",
    "donor": "not everything that {name} holds has come yet",
    "former neighbour": "{name} may know what this node published before its journal was lost",
    "own past": "it may not know all that was published with its key before",
    "announcement": "{name} has not confirmed that it expects this node",
    "window": "{step} of {name} has not come",
    "joining": "{name} has not caught up",
    "never joined": "{name} of the run never joined",
    "last words": "{step} of {name} has not come, and the run waits for it before it ends",
    "end": "{name} has not ended the run, as others have",
    "away": "{name} is not linked, and may still lack updates",
    "agreement": "{name} has not confirmed that it holds the same updates",
    "own replica": "its own replica is being rebuilt or evaluated",
    "partner": "the parameters of {name} for the round have not come",
    "copy": "{name} takes a copy of the replica",
    "neighbour": "{name} has not come to the end of the run",
}

_REMEDIES: dict[str, str] = {
    "last words": "; if it is gone for good, its operator settles that by `seedflood roster remove --node`",
}
"""What an operator can do, in a closed run."""


def explain(blocker: Blocker) -> str:
    """A clause about what the node waits for. A kind that is not listed above is shown by its name."""
    step = "an update" if blocker.first_lacking_step is None else f"step {blocker.first_lacking_step}"
    clause = _CLAUSES.get(blocker.kind)
    return clause.format(name=blocker.name, step=step) if clause else f"{blocker.kind} ({blocker.name})"


def describe_blocker(blocker: Blocker, now: float, *, is_closed: bool = False) -> dict[str, Any]:
    """The blocker as JSON values. now: on the node's clock. is_closed: does the run have a roster?"""
    return {
        "kind": blocker.kind,
        "name": blocker.name,
        "origin": fingerprint(blocker.origin) if blocker.origin is not None else None,
        "step": blocker.first_lacking_step,
        "seconds": round(max(0.0, now - blocker.since), 3),
        "reason": explain(blocker) + (_REMEDIES.get(blocker.kind, "") if is_closed else ""),
    }
