"""How a command finds and queries a running node. It blocks, so it is for other processes than the node's own."""

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from seedflood.config import check_address
from seedflood.errors import NotRunningError, UsageError
from seedflood.operations.http_address import find_http_address

ANSWER_SECONDS, ANSWER_SECONDS_MAX = 10.0, {"/api/trace": 60.0}
"""A trace may read all event files of a busy node."""

ANSWER_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class RunningNode:
    """address: host:port of its HTTP server."""

    address: str

    def ask(self, path: str, **query: object) -> dict[str, Any]:
        """Sends a GET request and returns the JSON of the answer. Raises NotRunningError, or UsageError if the node
        rejects the request."""
        return self._answer(*self._request("GET", f"{path}?{urlencode(query)}" if query else path))

    def send(self, path: str, body: bytes) -> dict[str, Any]:
        """Sends JSON by a POST request and returns the JSON of the answer. Raises as `ask` does."""
        return self._answer(*self._request("POST", path, body))

    def _answer(self, status: int, body: bytes) -> dict[str, Any]:
        if status in (400, 404):
            raise UsageError(f"the node at {self.address}: {body.decode(errors='replace').strip().rstrip('.')[:300]}.")
        if status == 503:
            raise NotRunningError(f"the node at {self.address}: {body.decode(errors='replace').strip()[:300]}.")
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if status != 200 or not isinstance(answer, dict):
            raise NotRunningError(
                f"{self.address} answers, but not as a seedflood node; name its [node] http address with --node."
            )
        return answer

    def _request(self, method: str, target: str, sent: bytes | None = None) -> tuple[int, bytes]:
        host, _, port = self.address.rpartition(":")
        seconds = ANSWER_SECONDS_MAX.get(target.partition("?")[0], ANSWER_SECONDS)
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=seconds)
        try:
            connection.request(method, target, sent, {} if sent is None else {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise NotRunningError(
                f"no node has answered within {seconds:g} s at {self.address}: its process may be stopped or busy."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise NotRunningError(f"no node answers at {self.address} ({reason}); is it running?") from None
        finally:
            connection.close()


def node_at(address: str) -> RunningNode:
    """The node at host:port. Raises UsageError if that is no address."""
    try:
        return RunningNode(check_address(address))
    except ValueError as error:
        raise UsageError(f"--node: {error}.") from None


def node_in(state: Path) -> RunningNode:
    """The node whose state folder this is. Raises NotRunningError."""
    found = find_http_address(state)
    if found is None:
        raise NotRunningError(
            f"no node runs with the state folder {state}, or its [node] http is off; start it, or use --node HOST:PORT."
        )
    node = RunningNode(found.address)
    shown = node.ask("/api/status").get("node")
    if not isinstance(shown, dict) or shown.get("origin") != found.origin:
        raise NotRunningError(f"another node answers at {node.address}: the one of {state} has ended; start it again.")
    return node
