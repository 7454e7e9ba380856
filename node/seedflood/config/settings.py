"""All tables of peers.toml together, by name, and what one of them rules out in another."""

from typing import Any, Self

from pydantic import create_model, model_validator

from seedflood.config.node import NodeSettings, PeerSettings
from seedflood.config.run import RunSettings
from seedflood.config.tables import AlgorithmSettings, Section, sections_of

QUANTIZED_COLUMNS_MAX = 512
"""As many take as much memory as the weights of 8 bits themselves, in a model of 1 B parameters."""

SECTIONS: dict[str, type[Section]] = {
    "run": RunSettings,
    **{f"run.{name}": table for name, table in sections_of(RunSettings).items()},
    "node": NodeSettings,
    "peers": PeerSettings,
}
"""The tables of peers.toml."""


def quantisation_fault(run: RunSettings, node: NodeSettings) -> str | None:
    """Why a host cannot keep this run's base model in the few bits of its `dtype`; None if it can, or need not."""
    if node.quantisation is None:
        return None
    if run.mode != "seedflood":
        return f'[node] dtype = "{node.dtype}" is for mode = "seedflood": leave it out'
    if run.objective.kl:
        return (
            f'[node] dtype = "{node.dtype}" saves no memory where kl needs the base model beside it: set another '
            "dtype, or kl = 0 in [run.objective]"
        )
    table = run.seedflood
    columns = -(-run.steps // table.refresh_period) * table.rank
    if columns > QUANTIZED_COLUMNS_MAX:
        return (
            f'[node] dtype = "{node.dtype}" keeps every epoch beside the weights, and this run has {columns} columns '
            f"of epochs, more than {QUANTIZED_COLUMNS_MAX}: increase refresh_period of [run.seedflood], or leave dtype "
            "out"
        )
    return None


def add_algorithm(name: str, table: type[AlgorithmSettings]) -> None:
    """Registers an algorithm: from now on `[run] mode` may be `name`, with a table `[run.NAME]`. table: its settings,
    all of which have defaults."""
    run = SECTIONS["run"]
    fields: dict[str, Any] = {name: (table, table())}
    SECTIONS["run"] = create_model("RunSettings", __base__=run, **fields)
    SECTIONS[f"run.{name}"] = table


class Settings(Section):
    """All of peers.toml; `load_settings` makes it."""

    run: RunSettings = RunSettings()
    node: NodeSettings = NodeSettings()
    peers: tuple[PeerSettings, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _pass_over_tls(cls, tables: Any) -> Any:
        """Files of before may say that links on this machine are secured, too: now all are."""
        if not isinstance(tables, dict) or "tls" not in tables:
            return tables
        if tables["tls"] not in ({}, {"loopback": True}):
            raise ValueError("[tls] is gone, because every link is secured, on this machine, too: take it out")
        return {name: table for name, table in tables.items() if name != "tls"}

    def changes_until_restart(self, after: Self) -> list[str]:
        """The settings in which `after` differs and which no reload takes up: all but `[[peers]]` and the roster."""
        return [
            f"{name}.{key}"
            for name, table in (("run", self.run), ("node", self.node))
            for key, value in table
            if value != getattr(getattr(after, name), key) and key != "roster"
        ]

    @model_validator(mode="after")
    def _check_roster(self) -> Self:
        if self.node.roster is not None and self.run.operator is None:
            raise ValueError(
                "[node] roster is for a closed run: name the operator's public key in [run] operator, or take roster "
                "out"
            )
        return self

    @model_validator(mode="after")
    def _check_relay(self) -> Self:
        if self.node.role == "relay" and self.run.mode != "seedflood":
            raise ValueError(
                f'mode = "{self.run.mode}" has no relays, which pass on what mode = "seedflood" sends: link its hosts '
                "with each other"
            )
        return self

    @model_validator(mode="after")
    def _check_audit(self) -> Self:
        if self.node.audit and self.run.mode != "seedflood":
            raise ValueError('[node] audit is for mode = "seedflood": leave it out')
        if self.node.audit and self.run.objective.task == "own":
            raise ValueError(
                "[node] audit cannot measure again what a script computes: leave it out, or choose another task than "
                '"own"'
            )
        is_rewarded = self.run.objective.task == "reward"
        if self.node.audit and is_rewarded and (self.run.objective.ahead or self.run.seedflood.local_steps > 1):
            raise ValueError(
                "[node] audit needs to know by which replica a text was written: set ahead = 0 in [run.objective] and "
                "local_steps = 1 in [run.seedflood], or leave audit out"
            )
        if self.node.audit and self.run.seedflood.window != "strict":
            raise ValueError(
                "[node] audit needs to know what another host had applied when it measured, which only strict windows "
                'tell: set window = "strict" in [run.seedflood], or leave audit out'
            )
        return self

    @model_validator(mode="after")
    def _check_quantize(self) -> Self:
        if (fault := quantisation_fault(self.run, self.node)) is not None:
            raise ValueError(fault)
        return self

    @property
    def pins(self) -> dict[str, bytes]:
        """The public keys that are expected at addresses."""
        return {peer.address: bytes.fromhex(peer.origin) for peer in self.peers if peer.origin is not None}
