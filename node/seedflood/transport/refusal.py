"""Why a link is refused, and how the other side learns it: from a gRPC status with a short JSON message.

It says to the dialler what its operator must change. The dialler may be a stranger, so it gets only the first bytes of
the run id and nothing else of `[run]`. Both sides then name both runs in their logs, and `seedflood config check`
prints the run that a host's file describes. The refusal that we read may come from anyone, too, so its size is limited.
"""

import json
import re
from typing import Any

import grpc

from seedflood.errors import PeerError, RunMismatchError, SeedfloodError
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.swarm.messages import Hello
from seedflood.transport.texts import plain

DETAILS_BYTES_MAX = 4096
"""The most bytes of a refusal: HTTP/2 stacks drop trailers beyond 8 KiB."""

TEXT_CHARACTERS_MAX = 500
RUN_BYTES_SHOWN = 8
"""How many bytes of a run id are shown, also by `seedflood config check`. Who knows all 32 may say a hello."""

_RUN = re.compile(f"[0-9a-f]{{{2 * RUN_BYTES_SHOWN}}}")
_CODES = {
    "run": grpc.StatusCode.FAILED_PRECONDITION,
    "base": grpc.StatusCode.FAILED_PRECONDITION,
    "version": grpc.StatusCode.FAILED_PRECONDITION,
    "self": grpc.StatusCode.INVALID_ARGUMENT,
    "duplicate": grpc.StatusCode.ALREADY_EXISTS,
    "stopping": grpc.StatusCode.UNAVAILABLE,
    "budget": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def check_hello(theirs: Hello, ours: Hello) -> None:
    """Raises PeerError unless both sides speak the same protocol in the same run from the same base model. A relay that
    has still to learn the base model names none."""
    if theirs.protocol_version != ours.protocol_version:
        raise PeerError(
            f"{theirs.member.name} speaks protocol version {theirs.protocol_version}, {ours.member.name} "
            f"{ours.protocol_version}; run the same release of seedflood on all hosts",
            reason="version",
        )
    if theirs.run_id != ours.run_id:
        raise PeerError(
            f"another run ({run_fingerprint(theirs.run_id)} there, {run_fingerprint(ours.run_id)} here): "
            "[run] must be equal on all hosts",
            reason="run",
        )
    if theirs.base_digest and ours.base_digest and theirs.base_digest != ours.base_digest:
        raise PeerError(
            "the base model or its tokenizer differs; give both hosts the same files (same [run] model and revision)",
            reason="base",
        )
    if theirs.member.origin == ours.member.origin:
        if theirs.member.public_key == ours.member.public_key:
            raise PeerError("this is ourselves; take the address out of [[peers]]", reason="self")
        raise PeerError("an origin id that is ours, with another key", reason="identity")


def run_fingerprint(run_id: bytes) -> str:
    """The first bytes of a run id in hex, for people and strangers."""
    return run_id[:RUN_BYTES_SHOWN].hex()


def status(error: PeerError, origin: OriginId, run_id: bytes) -> tuple[grpc.StatusCode, str]:
    """The gRPC status with which the server refuses a link. origin, run_id: ours."""
    facts = {
        "reason": error.reason,
        "message": str(error)[:TEXT_CHARACTERS_MAX],
        "origin": fingerprint(origin),
    }
    if error.reason == "run":
        facts["run"] = run_fingerprint(run_id)
    return _CODES.get(error.reason, grpc.StatusCode.PERMISSION_DENIED), json.dumps(facts)


def parse(details: str | None) -> dict[str, Any] | None:
    """The facts of a refusal; None if this is not the status of a refusal."""
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


def as_error(
    facts: dict[str, Any], address: str, run_id: bytes, public_key: bytes | None = None, *, is_ours: bool = False
) -> SeedfloodError:
    """A refusal as an error, for the operator of the dialler. run_id: the dialler's run. public_key: the one that the
    other side has proven to have. is_ours: the dialler itself refused."""
    reason, text = facts["reason"], plain(str(facts.get("message", "")), TEXT_CHARACTERS_MAX)
    match reason:
        case "run":
            run = facts.get("run")
            theirs = run if isinstance(run, str) and _RUN.fullmatch(run) else ""
            which = f" {theirs}" if theirs else ""
            return RunMismatchError(
                f"{address} belongs to another run{which}, this host to {run_fingerprint(run_id)}; make [run] equal on "
                "all hosts and compare by `seedflood config check`, which prints the id of the run",
                public_key=public_key,
            )
        case "base" | "version":
            return RunMismatchError(f"{address} cannot take part: {text}", public_key=public_key)
        case _:
            verb = "was refused" if is_ours else "refused the link"
            return PeerError(f"{address} {verb}: {text}", reason=plain(reason, 40))
