"""Whole nodes in one loop: real gRPC on loopback, real journals, the embedded model."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedflood.config import RunSettings, Settings, load_settings
from seedflood.host.daemon import Daemon
from seedflood.host.process import start_daemon
from seedflood.identity import Identity
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.roster_file import SignedRoster, write_roster

RUN: dict[str, Any] = {"model": "embedded", "task": "embedded", "rank": 8, "batch_size": 4, "train_examples": 64}


class Cluster:
    """Starts daemons one after the other; each dials the ones it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, Daemon] = {}
        self._moved = asyncio.Event()

    def settings(self, name: str, peers: list[str], run: dict[str, Any], node: dict[str, Any]) -> Settings:
        addresses = [f"127.0.0.1:{self.daemons[peer].port}" for peer in peers]
        flags = {
            "run": self.run_settings(run),
            "node": {
                "name": name,
                "listen": "127.0.0.1:0",
                "state": self.folder / name,
                "evaluate_examples": 0,
                "patience_seconds": 20.0,
            }
            | node,
            "peers": [{"address": address} for address in addresses],
        }
        return load_settings(None, flags)

    def run_settings(self, run: dict[str, Any]) -> dict[str, Any]:
        """`[run]`, of keys by their bare names."""
        return RunSettings.place(RUN | run)

    async def start(
        self, name: str, peers: list[str], run: dict[str, Any], node: dict[str, Any] | None = None
    ) -> Daemon:
        settings = self.settings(name, peers, run, node or {})
        daemon = await start_daemon(settings)
        self.daemons[name] = daemon
        self._watch(daemon)
        return daemon

    def _watch(self, daemon: Daemon) -> None:
        """Wakes `until` after whatever happens to a node, when it tells of something, and when it ends."""
        daemon.engine.driver.do = self._moving(daemon.engine.driver.do)  # type: ignore[method-assign]
        daemon.hub.log = self._moving(daemon.hub.log)  # type: ignore[method-assign]
        daemon.ended.add_done_callback(lambda _: self._moved.set())

    def _moving(self, function: Callable[..., None]) -> Callable[..., None]:
        def call(*positional: Any, **named: Any) -> None:
            function(*positional, **named)
            self._moved.set()

        return call

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for what a node does or logs. Raises TimeoutError, and the fault with which a node has ended meanwhile,
        if any has."""
        try:
            async with asyncio.timeout(180):
                while not condition():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError as error:
            for daemon in self.daemons.values():
                if daemon.ended.done() and not daemon.ended.cancelled() and daemon.ended.exception() is not None:
                    raise daemon.ended.exception() from error  # type: ignore[misc]
            raise

    async def ring(self, size: int, run: dict[str, Any]) -> list[Daemon]:
        names = [f"n{k}" for k in range(size)]
        for k, name in enumerate(names):
            peers = [names[k - 1]] if k else []
            if k == size - 1 and size > 2:
                peers.append(names[0])
            await self.start(name, peers, {"clients": size} | run)
        return list(self.daemons.values())

    async def finish(self, *daemons: Daemon) -> list[dict[str, Any]]:
        chosen = daemons or tuple(self.daemons.values())
        await asyncio.gather(*(daemon.ended for daemon in chosen))
        results = [daemon.result for daemon in chosen]
        assert all(result is not None for result in results)
        return [result for result in results if result is not None]

    @contextmanager
    def held(self, *daemons: Daemon) -> Iterator[None]:
        """Meanwhile these compute nothing, so their run does not end. They go on listening and answering."""
        released = threading.Event()
        for daemon in daemons:
            daemon._compute.run(released.wait)
        try:
            yield
        finally:
            released.set()

    async def close(self) -> None:
        await asyncio.gather(*(daemon.close() for daemon in self.daemons.values()))


class Closed:
    """A cluster whose run has an operator."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.operator = Identity.generate()
        self.keys: dict[str, Identity] = {}
        self.roster = Roster(1)

    def make_key(self, name: str) -> Identity:
        (self.folder / name).mkdir()
        self.keys[name] = Identity.load_or_create(self.folder / name / "identity.pem")
        return self.keys[name]

    def enrol(self, *names: str) -> None:
        """Makes keys for hosts, and puts them on the roster."""
        for name in names:
            self.make_key(name)
        self.sign(self.roster.adding(*(Entry(name, self.keys[name].public_key) for name in names)))

    def remove(self, name: str) -> None:
        self.sign(self.roster.removing([name]))

    def sign(self, roster: Roster) -> None:
        signed = SignedRoster.sign(self.operator, "run", roster)
        self.roster = signed.roster
        write_roster(self.path, signed)

    @property
    def path(self) -> Path:
        return self.folder / "roster.json"

    async def start(self, name: str, peers: list[str], /, *, roster: Path | None = None, **run: Any) -> Daemon:
        run = {"steps": 400, "batch_size": 2, "window": "bounded", "operator": self.operator.public_key.hex()} | run
        return await self.cluster.start(name, peers, run, {"roster": roster or self.path, "then": "serve"})

    def copy(self, name: str) -> Path:
        """The roster as it is now, for a host that will not hear of a later one by itself."""
        path = self.folder / name
        path.write_text(self.path.read_text())
        return path

    def give(self, daemon: Daemon) -> None:
        """What SIGHUP does."""
        roster = daemon.enrolment.read(self.path)
        assert roster is not None
        daemon.enrol(roster)


class PinnedCluster(Cluster):
    """pins: public keys by name of the peer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pins: dict[str, bytes] = {}

    def settings(self, name: str, peers: list[str], run: dict[str, Any], node: dict[str, Any]) -> Settings:
        settings = super().settings(name, peers, run, node)
        pinned = tuple(
            entry.model_copy(update={"origin": self.pins[peer].hex() if peer in self.pins else None})
            for entry, peer in zip(settings.peers, peers, strict=True)
        )
        return settings.model_copy(update={"peers": pinned})
