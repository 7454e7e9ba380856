"""Settings of one host: `[node]` and `[[peers]]`. They may differ between the hosts of a run. Relative paths
begin where the file is."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator

from seedflood.config.tables import Name, PublicKey, Section

ACCELERATORS = ("cuda", "mps", "xpu", "hpu", "mtia", "npu")
"""What PyTorch calls them, itself or by a package of their maker. AMD's GPUs are "cuda", too."""


def check_address(value: str) -> str:
    """Returns the address if it is "host:port", "[v6]:port" or "[v6%interface]:port"; raises ValueError otherwise."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):(\d{1,5})", value)
    if not match or int(match[2]) > 65535:
        raise ValueError(f'"{value}" is no address; write "host:port", as "10.0.0.2:7070" or "[fd00::2]:7070"')
    return value


class NodeSettings(Section):
    """`[node]`: this host."""

    name: Name = Field("node", description="Name of this host, shown everywhere.")
    role: Literal["train", "relay"] = Field(
        "train",
        description='What this host does: "train", or "relay": only pass on what others say, without model and rows.',
    )
    listen: str = Field("127.0.0.1:7070", description='Address and port to listen on; port 0 takes any, "" none.')
    proxy: str = Field(
        "",
        description='HTTP proxy by which peers beyond this machine are dialled, as "proxy.example.org:3128", if it '
        'allows CONNECT to their ports; "": none, whatever http_proxy and the like say.',
    )
    state: Path = Field(Path("seedflood-state"), description="Folder of this host's key, journal and results.")
    roster: Path | None = Field(
        None,
        description="The list of hosts that its operator signed, of a run with [run] operator; SIGHUP reads it.",
    )
    model_path: Path | None = Field(
        None, description="Folder that holds the base model here, if `run.model` is a name."
    )
    data: str | None = Field(
        None,
        description='File or folder of rows, or a hub data set, perhaps with splits (ROWS#train,test); or "embedded".',
    )
    shard: str | None = Field(None, description='Share of the training rows: "2/16" is the second of sixteen.')
    device: str = Field(
        "auto",
        description='"auto": the accelerator that PyTorch finds, else "cpu". Or one by name: "cuda" (NVIDIA, AMD), '
        '"cuda:1", "mps" (Apple), "xpu" (Intel).',
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "nf4"] = Field(
        "auto",
        description="Type of the weights: float32 on a CPU and on mps, bfloat16 on other GPUs (auto). int8, nf4: "
        "matrices of the base model in 8 or 4 bits, to save memory; this host's losses are a little others, what is "
        "learned is the same.",
    )
    threads: int | None = Field(None, ge=1, description="CPU threads for the model (default: all cores).")
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="Rows of a gradient at once, to save memory (default: all); with 1 layers are also computed again "
        "in the backward pass. Results differ by rounding.",
    )
    local_steps: int | None = Field(
        None,
        ge=1,
        le=2**20,
        description="GASLoC: steps of this host between two exchanges, if it is slower or faster than the others "
        "(default: as [run.gasloc] says).",
    )
    audit: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of measurements that this host repeats of others, to find out who sends something else; "
        "needs strict windows, float32 and the rows of the others. 0.03 is good, 0: none.",
    )
    allow_code: bool = Field(
        False, description="May a score in a file run here? Only the file whose SHA-256 the run names ever does."
    )
    evaluate_every: int | None = Field(
        None,
        ge=0,
        description="Also evaluate every so many steps; 0: only before and after (default: about twenty times in the "
        "run, but in at most 5 % of the time in which it computes).",
    )
    evaluate_examples: int | None = Field(
        None, ge=0, description="Validation rows to use (default: all); 0: the run is not evaluated."
    )
    export: Path | None = Field(None, description="Folder for the fine-tuned model when the run has ended.")
    then: Literal["serve"] | None = Field(None, description='After the run: "serve": stay (default: exit).')
    progress_seconds: float = Field(10.0, ge=0, description="Seconds between progress lines in the log.")
    patience_seconds: float = Field(
        60.0,
        ge=0,
        description="Seconds to wait for hosts that are away: at the beginning for the rest of the run once more than "
        "half are there (strict windows wait for all), at the end for neighbours.",
    )
    http: str = Field(
        "127.0.0.1:0",
        description='Address and port of the status page, /metrics, /livez and /readyz; port 0 takes any, "" none.',
    )

    @property
    def quantisation(self) -> Literal["int8", "nf4"] | None:
        """How matrices are kept, if in few bits. Whatever is no matrix then has the type of "auto"."""
        return self.dtype if self.dtype in ("int8", "nf4") else None

    def unquantised(self) -> Self:
        """The same host, with the base model as it was; in host memory, since its device may lack the room."""
        return self if self.quantisation is None else self.model_copy(update={"dtype": "auto", "device": "cpu"})

    @property
    def saves_memory(self) -> bool:
        """Are layers computed again in the backward pass? Only if no fewer rows could be taken at once."""
        return self.micro_batch == 1

    @field_validator("state", "roster", "model_path", "data", "export", "then", mode="before")
    @classmethod
    def _check_named(cls, value: Any) -> Any:
        if value == "":
            raise ValueError('"" names nothing; leave this key out')
        return value

    @field_validator("listen", "http")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        if value.startswith("upnp:"):
            raise ValueError(
                f'"{value}" is no address; write "0.0.0.0:7070" and forward the port in the router by hand'
            )
        return value if value == "" else check_address(value)

    @field_validator("proxy")
    @classmethod
    def _check_proxy(cls, value: str) -> str:
        return value and check_address(value.removeprefix("http://").removesuffix("/"))

    def proxy_of(self, address: str) -> str:
        """The proxy by which a peer is dialled; "" for none."""
        return "" if is_loopback(address) else self.proxy

    @field_validator("device")
    @classmethod
    def _check_device(cls, value: str) -> str:
        if not re.fullmatch(rf"auto|cpu|({'|'.join(ACCELERATORS)})(:\d+)?", value):
            raise ValueError(f'"{value}" is no device; write "auto", "cpu", "cuda", "cuda:1", "mps" or "xpu"')
        return value

    @field_validator("shard")
    @classmethod
    def _check_shard(cls, value: str | None) -> str | None:
        if value is not None:
            match = re.fullmatch(r"(\d+)/(\d+)", value)
            if not match or not 1 <= int(match[1]) <= int(match[2]):
                raise ValueError(f'"{value}" is no share; write "2/16" for the second of sixteen')
        return value


class PeerSettings(Section):
    """One `[[peers]]` entry: a neighbour to link with."""

    address: Annotated[str, AfterValidator(check_address)] = Field(description='Where it listens: "host:port".')
    origin: PublicKey | None = Field(
        None,
        description="Its public key, as `seedflood keygen` prints it: no other host is accepted here.",
    )


def divide_data(data: str) -> tuple[str, tuple[str, ...]]:
    """`PLACE#TRAIN,VALIDATION` of `[node] data`: where the rows are (`~` is the user's home), and which splits are
    meant, if it says so."""
    place, _, splits = data.partition("#")
    return os.path.expanduser(place), tuple(one.strip() for one in splits.split(",") if one.strip())


def is_loopback(address: str) -> bool:
    """Does the address reach this machine only?"""
    host = address.rsplit(":", 1)[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
