"""Why a link is refused, and how that is told to the other side: a gRPC status whose message is a little JSON.

The dialler learns from it what an operator must change: which `[run]` settings differ, not only that some do. The
other side may be anyone, so its JSON is bounded and only the names of settings are taken from it.
"""

import json
import re
from typing import Any

import grpc

from seedflood.errors import PeerError, RunMismatchError, SeedfloodError
from seedflood.protocol.messages import Hello, OriginId, fingerprint

DETAILS_BYTES_MAX = 4096
"""HTTP/2 stacks drop trailers beyond 8 KiB."""

TEXT_CHARACTERS_MAX = 500
DIFFERENCES_MAX = 32

_SETTING = re.compile(r"[a-z][a-z0-9_]{0,40}")
_CODES = {
    "run": grpc.StatusCode.FAILED_PRECONDITION,
    "base": grpc.StatusCode.FAILED_PRECONDITION,
    "version": grpc.StatusCode.FAILED_PRECONDITION,
    "self": grpc.StatusCode.INVALID_ARGUMENT,
    "duplicate": grpc.StatusCode.ALREADY_EXISTS,
    "stopping": grpc.StatusCode.UNAVAILABLE,
}


def check_hello(theirs: Hello, ours: Hello) -> None:
    """Raises PeerError unless both sides speak the same protocol in the same run from the same base model."""
    if theirs.protocol_version != ours.protocol_version:
        raise PeerError(
            f"protocol version {theirs.protocol_version} there, {ours.protocol_version} here; "
            "run the same release of seedflood on all hosts",
            reason="version",
        )
    if theirs.run_id != ours.run_id:
        raise PeerError("another run: [run] must be equal on all hosts", reason="run")
    if theirs.base_digest != ours.base_digest:
        raise PeerError(
            "the weights of the base model differ; give both hosts the same files (same [run] model and revision)",
            reason="base",
        )
    if theirs.member.origin == ours.member.origin:
        if theirs.member.public_key == ours.member.public_key:
            raise PeerError("this is ourselves; take the address out of [[peers]]", reason="self")
        raise PeerError("an origin id that is ours, with another key", reason="identity")


def status(error: PeerError, *, run: str, origin: OriginId) -> tuple[grpc.StatusCode, str]:
    """What the server answers. run: our canonical `[run]`, told only if that is what differs."""
    facts: dict[str, Any] = {
        "reason": error.reason,
        "message": str(error)[:TEXT_CHARACTERS_MAX],
        "origin": fingerprint(origin),
    }
    details = json.dumps(facts)
    if error.reason == "run":
        with_run = json.dumps(facts | {"run": json.loads(run)})
        if len(with_run) <= DETAILS_BYTES_MAX:
            details = with_run
    return _CODES.get(error.reason, grpc.StatusCode.PERMISSION_DENIED), details


def parse(details: str | None) -> dict[str, Any] | None:
    """The facts of a refusal, None if the status is no refusal of ours."""
    if not details or len(details) > DETAILS_BYTES_MAX or not details.startswith("{"):
        return None
    try:
        facts = json.loads(details)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("reason"), str):
        return None
    return facts


def origin_in(facts: dict[str, Any]) -> OriginId | None:
    text = facts.get("origin")
    return int(text, 16) if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{16}", text) else None


def as_error(facts: dict[str, Any], address: str, run: str) -> SeedfloodError:
    """What the dialler tells its operator about a refusal."""
    reason, text = facts["reason"], str(facts.get("message", ""))[:TEXT_CHARACTERS_MAX]
    match reason:
        case "run":
            names = differences(run, facts.get("run"))
            which = f"these [run] settings differ: {', '.join(names)}" if names else "[run] differs"
            return RunMismatchError(
                f"{address} belongs to another run; {which}; make [run] equal on all hosts",
                peer=address,
                differences=names,
            )
        case "base" | "version":
            name = {"base": "base_digest", "version": "protocol_version"}[reason]
            return RunMismatchError(f"{address} cannot take part: {text}", peer=address, differences=(name,))
        case _:
            return PeerError(f"{address} refused the link: {text}", reason=reason[:40])


def differences(ours: str, theirs: object) -> tuple[str, ...]:
    """Names of the `[run]` settings that differ, sorted. ours: canonical JSON; theirs: whatever they sent."""
    if not isinstance(theirs, dict):
        return ()
    mine = json.loads(ours)
    names = (
        name
        for name in mine.keys() | theirs.keys()
        if isinstance(name, str) and _SETTING.fullmatch(name) and mine.get(name, ...) != theirs.get(name, ...)
    )
    return tuple(sorted(names)[:DIFFERENCES_MAX])
