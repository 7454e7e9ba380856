"""A node that trains by something else than SeedFlood, as operators see it: made of values alone."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from seedflood.config import NodeSettings, RunSettings, Settings
from seedflood.config.tables import AlgorithmSettings
from seedflood.operations.console import Console
from seedflood.operations.subject import LinkState
from seedflood.protocol.origin import OriginId
from seedflood.protocol.view import Blocker, Hops, MemberView, View

NAMES = ("alpha", "beta", "gamma", "delta")


class GossipSettings(AlgorithmSettings):
    partners: int = Field(2, description="Neighbours per round.")
    share: float = Field(0.5, description="How much of a difference is given away.")


class StrangeRun(RunSettings):
    mode: Literal["gossip"] = "gossip"  # type: ignore[assignment]
    gossip: GossipSettings = GossipSettings()


def member(origin: OriginId, name: str) -> MemberView:
    status: Any = "self" if origin == 1 else "reachable" if name == "gamma" else "linked"
    return MemberView(origin, name, status, 0, 0, None, 1, 0.004)


VIEW = View(
    now=0.0,
    phase="gossiping",
    step=40,
    is_ready=True,
    is_doubted=False,
    linked=2,
    refused={"signature": 0, "no pair": 3},
    hops=Hops((0.002, 0.004), {2: 0.002, 4: 0.004}, (0.01,), (2, 0), 0.006),
    members=tuple(member(origin, name) for origin, name in enumerate(NAMES, 1)),
    edges=((1, 2), (1, 4), (2, 3), (3, 4)),
    diameter=2,
    cut_vertices=(),
    blockers=(Blocker("companion", 2, "beta", None, -12.0),),
    figures={"mean": 3.25, "spread": 0.00017, "pairs_met": 1234.0},
)


@dataclass
class StrangeNode:
    """An `operations.subject.Subject` that shows what a test wants shown."""

    shown: View = VIEW
    incarnation: int = 7
    is_finished: bool = False
    is_draining: bool = False
    is_disk_full: bool = False
    clock_fault: str | None = None
    handshakes: int = 0
    parameters: tuple[int, int] | None = None
    links: list[LinkState] = field(
        default_factory=lambda: [
            LinkState(name, origin, f"10.0.0.{origin}:7070", time.time() - 60, 120_000, 118_000)
            for origin, name in ((2, "beta"), (4, "delta"))
        ]
    )

    def view(self) -> View:
        return self.shown

    def show(self, **changes: Any) -> None:
        self.shown = replace(self.shown, **changes)

    def names(self) -> dict[OriginId, str]:
        return dict(enumerate(NAMES, 1))

    def link_states(self) -> list[LinkState]:
        return self.links

    def link_faults(self) -> Mapping[str, int]:
        return {"frame": 0}

    def journal_size(self) -> Mapping[str, int]:
        return {"bytes": 40_960, "records": 160}


def strange_settings(folder: Path) -> Settings:
    run = StrangeRun(name="strangers", clients=4, steps=100)
    node = NodeSettings(name="alpha", state=folder, http="127.0.0.1:0")
    return Settings.model_construct(run=run, node=node, peers=())


async def open_console(folder: Path, node: StrangeNode) -> Console:
    """folder: its state."""
    console = await Console.open(strange_settings(folder), 1)
    console.hub.subject = node
    for peer, name in ((2, "beta"), (4, "delta")):
        console.hub.connected(peer, name, is_dialled=True)
    return console
