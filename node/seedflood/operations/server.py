"""The HTTP server of a node: probes, metrics, the status page and its data. It changes nothing, with one exception: it
takes a roster that the operator of the run has signed, which proves itself (`seedflood roster`).

`/livez` answers as long as the event loop runs, whatever the model computes. `/readyz` says whether the node is ready:
it takes part, and with SeedFlood its replica was compared. A file in the state folder has the server's address, so that
the commands find it.

The page needs no network and no build: its ES modules are served as they are written. Nothing in it is inline, and what
others say is only ever set as text, so `default-src 'self'` is all that its content policy allows. uPlot draws curves
(50 kB); `tools/vendor.sh` fetches it.
"""

import asyncio
import contextlib
import ipaddress
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from seedflood.config import is_loopback
from seedflood.errors import ConfigError
from seedflood.listening import listen_at, room
from seedflood.operations.eventlog import event_files, read_lines
from seedflood.operations.http_address import HttpAddress, keep_http_address, remove_http_address
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.metrics import make_scrape
from seedflood.operations.names import resolve_origin
from seedflood.operations.status import describe, describe_readiness
from seedflood.operations.subject import LOADING
from seedflood.protocol.origin import STEP_MAX, fingerprint
from seedflood.protocol.swarm.outputs import EventLevel

STATIC_FOLDER = Path(__file__).parent / "static"

CLOSE_SECONDS = 1.0
KEEPALIVE_SECONDS = 15.0
EVENTS_DEFAULT = 100
PATH_CHARACTERS_MAX = 255
"""What a file system takes as a name: a longer one would be a fault of the disk."""
BODY_BYTES_MAX = 2 << 20
"""More than a roster of 4,096 entries takes."""
LEVELS = get_args(EventLevel)

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_log = logging.getLogger("seedflood.http")
_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Bytes that are not HTTP are the sender's fault. The sender gets an error, and the node's log no line."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OperationsServer:
    """`start`; then it answers requests on the loop. `close` leaves nothing behind."""

    def __init__(self, hub: TelemetryHub) -> None:
        self.address = ""
        self._hub = hub
        self._metrics = make_scrape(hub)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._room = room().http
        self._tracing = asyncio.Semaphore(1)
        self._verifying = asyncio.Semaphore(1)

    async def start(self) -> None:
        """Starts to listen. Raises BindError if it cannot, JournalError if the state folder cannot be written."""
        node = self._hub.settings.node
        listening = listen_at(node.http, "[node] http")
        app = web.Application(middlewares=[_guard_path], client_max_size=BODY_BYTES_MAX)
        if is_loopback(node.http):
            app.middlewares.append(_guard_host)
        app.on_response_prepare.append(_protect)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._scrape),
                web.get("/api/status", self._status),
                web.get("/api/events", self._events),
                web.get("/api/trace", self._trace),
                web.post("/api/roster", self._roster),
                web.static("/static", STATIC_FOLDER),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, logger=_log, keepalive_timeout=KEEPALIVE_SECONDS)
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(self._admit, sock=listening)
        host, port = listening.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        keep_http_address(node.state, HttpAddress(self.address, fingerprint(self._hub.origin)))

    async def close(self) -> None:
        if self._runner is not None:
            remove_http_address(self._hub.settings.node.state)
            if self._listener is not None:
                self._listener.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._runner.cleanup()

    def _admit(self) -> asyncio.Protocol:
        """A new connection. If there are as many as the process has room for, one ends: the oldest one of the address
        that has most. So whoever opens many ends their own, and a probe gets in."""
        assert self._runner is not None
        assert self._runner.server is not None
        there = {one: _host_of(one) for one in self._runner.server.connections if one.transport is not None}
        if len(there) >= self._room:
            held = Counter(there.values())
            most = max(held.values())
            next(one for one, host in there.items() if held[host] == most).force_close()
        return self._runner.server()

    # Answers

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC_FOLDER / "index.html")

    async def _live(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="alive\n")

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        lines = describe_readiness(self._hub)
        return web.Response(text="\n".join([*lines, ""]) if lines else "ready\n", status=503 if lines else 200)

    async def _scrape(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.StreamResponse:
        return _json(describe(self._hub))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        limit = _whole(request, "limit", EVENTS_DEFAULT)
        level = request.query.get("level", "info")
        if level not in LEVELS:
            raise web.HTTPBadRequest(text=f"level must be one of {', '.join(LEVELS)}\n")
        wanted = LEVELS[LEVELS.index(level) :]
        events = [event for event in self._hub.events if event["level"] in wanted]
        return _json({"events": events[-limit:] if limit else []})

    async def _trace(self, request: web.Request) -> web.StreamResponse:
        names = self._hub.names()
        origin = resolve_origin(request.query.get("origin", ""), names)
        if origin is None:
            known = ", ".join(sorted(set(names.values())))
            raise web.HTTPNotFound(text=f"no origin, or more than one, has that name here; known are {known}\n")
        step = _whole(request, "step", None)
        tracer, state = self._hub.tracer, self._hub.settings.node.state
        if tracer is None:
            if self._hub.subject.view().phase == LOADING:
                raise web.HTTPServiceUnavailable(text="the model is being loaded\n")
            raise web.HTTPNotFound(text="this run has no updates to trace\n")
        async with self._tracing:  # one at a time, because each may read all event files
            read, wait_for_log = tracer(origin, step, names.get(origin)), self._hub.wait_for_log()

            def wait_and_read() -> dict[str, Any]:
                wait_for_log()
                return read(read_lines(event_files(state)))

            return _json(await asyncio.to_thread(wait_and_read))

    async def _roster(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":  # no page of another site can send that
            raise web.HTTPUnsupportedMediaType(text="a roster is sent as application/json\n")
        if self._hub.take_roster is None:
            raise web.HTTPServiceUnavailable(text="the model is being loaded\n")
        data = await request.read()
        async with self._verifying:  # one at a time, because anybody may send anything
            try:
                serial = await self._hub.take_roster(data)
            except ConfigError as error:
                raise web.HTTPBadRequest(text=f"{error}\n") from None
        return _json({"serial": serial})


async def _protect(request: web.Request, response: web.StreamResponse) -> None:
    """Adds headers that protect the page from other sites, to errors, too."""
    response.headers.update(HEADERS)
    # Browsers must revalidate the page's modules, so that old and new ones do not mix after an upgrade.
    response.headers["Cache-Control"] = "no-cache" if request.path.startswith("/static/") else "no-store"


@web.middleware
async def _guard_path(request: web.Request, handler: Handler) -> web.StreamResponse:
    if len(request.rel_url.raw_path) > PATH_CHARACTERS_MAX:
        raise web.HTTPRequestURITooLong
    return await handler(request)


@web.middleware
async def _guard_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses requests under other host names than localhost, against DNS rebinding: a web page whose name was made to
    point to this machine."""
    host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
    if not _is_numeric(host.strip("[]")) and host != "localhost":
        raise web.HTTPMisdirectedRequest(text="this address is for localhost only\n")
    return await handler(request)


def _host_of(connection: web.RequestHandler) -> str:
    assert connection.transport is not None
    address = connection.transport.get_extra_info("peername")
    return str(address[0]) if address else ""


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _whole(request: web.Request, key: str, default: int | None) -> int:
    """A whole number of the query. default: if the key is missing; None if it must be there. Raises HTTPBadRequest."""
    text = request.query.get(key)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > STEP_MAX:
        raise web.HTTPBadRequest(text=f"{key} must be a whole number\n")
    return int(text)


def _json(value: dict[str, Any]) -> web.Response:
    """A JSON response. Values that JSON does not have, such as a path, become texts."""
    return web.json_response(value, dumps=lambda one: json.dumps(one, separators=(",", ":"), default=str))
