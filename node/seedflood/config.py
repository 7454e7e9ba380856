"""Settings: what `peers.toml` may say, how layers combine, and one clear sentence for what is wrong.

Layers, weakest first: defaults < peers.toml < `SEEDFLOOD__SECTION__KEY` in the environment < flags. `[run]` must be
equal on all hosts, its hash is the run id; everything else belongs to one host.
"""

import difflib
import hashlib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from seedflood.errors import ConfigError
from seedflood.protocol.origin import NAME_PATTERN

ENVIRONMENT_PREFIX = "SEEDFLOOD__"

SLOPES = 64

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
TaskName = Literal["embedded", "sst2", "rte", "boolq", "trec", "agnews", "prompted", "lm"]


class Section(BaseModel):
    """One table of peers.toml: an unknown key is an error, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class RunSettings(Section):
    """`[run]`: equal on all hosts. Its hash is the run id, so hosts that disagree never link."""

    name: Name = Field(default="run", description="Name of the run.")
    mode: Literal["seedflood"] = Field("seedflood", description="How the hosts train together.")
    model: str = Field(
        "embedded", description='Base model: "embedded", a Hugging Face name, or a folder (then equal on all hosts).'
    )
    task: TaskName = Field("sst2", description="A task known by name, your own prompts (prompted) or plain text (lm).")
    template: str | None = Field(
        None, description='Prompt of task "prompted", with the columns of the data in braces: "{sentence} . it was".'
    )
    label_words: tuple[str, ...] | None = Field(None, description="One word per label, in the order of the labels.")
    label_column: str | None = Field(None, description='Column that holds the label (default "label").')
    text_column: str | None = Field(None, description='Column of task "lm" that holds the text (default "text").')
    seed: int = Field(1, ge=0, le=2**63 - 1, description="Seed of the run: basis, batches and shards follow from it.")
    clients: int = Field(1, ge=1, le=65536, description="How many origins take part.")
    steps: int = Field(400, ge=1, le=2**40, description="Length of the run.")
    window: Literal["strict", "bounded", "none"] = Field(
        "strict", description="When a step closes: all heard; all heard or the time bound; never waits."
    )
    delay: int = Field(
        0,
        ge=0,
        le=64,
        description="So many rounds may be on their way while the next one is measured: 1 hides hops of up to a round.",
    )
    local_steps: int = Field(1, ge=1, le=64, description="Consecutive steps that share one message and signature.")
    estimate: Literal["two-sided", "one-sided", "gradient"] = Field(
        "two-sided",
        description="two-sided: every step has rows of its own and two forwards; one-sided: the local_steps of a round "
        "share rows and centre, one forward each and one for the centre; gradient: a forward and a backward.",
    )
    tell: Literal["coefficients", "slopes"] = Field(
        "coefficients",
        description="What is told of a gradient: all its coefficients, or exact slopes along some seeded directions.",
    )
    bits: Literal[8, 4] = Field(8, description="Per coefficient; what they leave out is told with the next step.")
    slopes: int = Field(SLOPES, ge=1, le=4096, description="How many a step, if slopes are told.")
    optimizer: Literal["sgd", "momentum", "adam"] = Field(
        default_factory=lambda known: "adam" if _has_gradient(known) and known.get("window") == "strict" else "sgd",
        description="What is done with the sum of a step; all but sgd need strict windows. Default: sgd, and adam for "
        "gradients in strict windows.",
    )
    weight_decay: float = Field(
        0.0, ge=0, lt=1, description="Towards the base model, times the learning rate; not with sgd."
    )
    warmup_steps: int = Field(0, ge=0, description="Steps in which the learning rate grows to its full size.")
    schedule: Literal["constant", "cosine", "linear"] = Field(
        default_factory=lambda known: "cosine" if _has_gradient(known) else "linear",
        description="How the learning rate goes down after that, until the end of the run. Default: linear; cosine "
        "for gradients.",
    )
    rank: int = Field(
        default_factory=lambda known: 8 if _has_gradient(known) else 32,
        ge=1,
        le=1024,
        description="Columns of each basis. Default: 32; 8 for gradients.",
    )
    refresh_period: int = Field(
        default_factory=lambda known: _whole_rounds(100, known) if _has_gradient(known) else 1000,
        ge=1,
        description="Steps per epoch, which share one subspace. Default: 1000; 100 for gradients, in whole rounds.",
    )
    basis: Literal["normal", "rademacher", "weights", "mixed"] = Field(
        default_factory=lambda known: "mixed" if _has_gradient(known) else "normal",
        description="Drawn; the weights' singular vectors; or half of each (mixed). Default: mixed for gradients.",
    )
    epsilon: float = Field(1e-3, gt=0, lt=1, description="Size of the perturbation.")
    learning_rate: float | None = Field(
        None, gt=0, description="Default: by estimate, optimizer, rank and number of parameters."
    )
    batch_size: int = Field(16, ge=1, description="Rows per origin and step.")
    max_length: int = Field(256, ge=8, description="Tokens per row at most; longer prompts lose their beginning.")
    train_examples: int | None = Field(None, ge=1, description="Training rows of all hosts together (default: all).")
    label_skew: float | None = Field(
        None, gt=0, description="Dirichlet concentration of labels over the shards (default: equal shares)."
    )

    @model_validator(mode="after")
    def _check_multiples(self) -> Self:
        if self.steps % self.local_steps or self.refresh_period % self.local_steps:
            raise ValueError(
                f"steps ({self.steps}) and refresh_period ({self.refresh_period}) must be multiples of "
                f"local_steps ({self.local_steps})"
            )
        return self

    @model_validator(mode="after")
    def _check_telling(self) -> Self:
        if self.tell == "slopes" and self.estimate != "gradient":
            raise ValueError('tell = "slopes" is about gradients: set estimate = "gradient", or leave it out')
        if self.bits != 8 and (self.estimate != "gradient" or self.tell != "coefficients"):
            raise ValueError('bits are those of coefficients: set estimate = "gradient" and tell = "coefficients"')
        if self.slopes != SLOPES and self.tell != "slopes":
            raise ValueError('slopes are told of gradients: set estimate = "gradient" and tell = "slopes"')
        return self

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        if self.optimizer != "sgd" and self.window != "strict":
            raise ValueError(
                f'optimizer = "{self.optimizer}" goes by steps, which must be complete: set window = "strict", or '
                'optimizer = "sgd"'
            )
        if self.weight_decay and self.optimizer == "sgd":
            raise ValueError('weight_decay goes by steps: set optimizer = "momentum" or "adam", or leave it out')
        if self.warmup_steps >= self.steps and self.warmup_steps:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) must be fewer than steps ({self.steps})")
        return self

    def canonical(self) -> str:
        """The one spelling of these settings that is hashed and compared between hosts: JSON with sorted keys."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def run_id(self) -> bytes:
        """32 bytes, equal on hosts with equal `[run]`."""
        return hashlib.sha256(b"seedflood run 1\0" + self.canonical().encode()).digest()


def _has_gradient(known: Mapping[str, Any]) -> bool:
    """known: the settings above the one whose default is asked for."""
    return known.get("estimate") == "gradient"


def _whole_rounds(steps: int, known: Mapping[str, Any]) -> int:
    local_steps = int(known.get("local_steps", 1))
    return -(-steps // local_steps) * local_steps


class NodeSettings(Section):
    """`[node]`: this host."""

    name: Name = Field("node", description="Name of this host, shown everywhere.")
    listen: str = Field("127.0.0.1:7070", description='Address and port to listen on; port 0 takes any, "" none.')
    state: Path = Field(Path("seedflood-state"), description="Folder of this host's key, journal and results.")
    model_path: Path | None = Field(
        None, description="Folder that holds the base model here, if `run.model` is a name."
    )
    data: str | None = Field(None, description="Folder with train.jsonl and validation.jsonl, or a hub data set.")
    shard: str | None = Field(None, description='Share of the training rows: "2/16" is the second of sixteen.')
    device: str = Field("auto", description='"auto", "cpu", "cuda" or "cuda:1".')
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of the weights: float32 on a CPU, bfloat16 on a GPU."
    )
    threads: int | None = Field(None, ge=1, description="CPU threads for the model (default: all cores).")
    micro_batch: int | None = Field(
        None, ge=1, description="Rows of a gradient at once, to save memory (default: all); results differ by rounding."
    )
    gradient_checkpointing: bool = Field(
        False, description="Save memory of a gradient: compute the layers again on the way back."
    )
    evaluate: bool = Field(True, description="Evaluate on the validation rows before and after the run.")
    evaluate_every: int = Field(0, ge=0, description="Evaluate every so many steps as well; 0: only before and after.")
    evaluate_examples: int | None = Field(None, ge=1, description="Validation rows to use (default: all).")
    export: Path | None = Field(None, description="Folder for the fine-tuned model when the run has ended.")
    when_finished: Literal["exit", "serve"] = Field("exit", description="After the run: exit, or serve late comers.")
    snapshots: int = Field(
        2, ge=0, description="Snapshots of the weights to keep; they save time at a restart. 0: none are written."
    )
    progress_seconds: float = Field(10.0, ge=0, description="Seconds between progress lines in the log.")
    start_seconds: float = Field(
        60.0, ge=0, description="How long the first window waits for all hosts (strict: for ever)."
    )
    linger_seconds: float = Field(60.0, ge=0, description="At the end, how long to wait for neighbours that are away.")
    http: str = Field(
        "127.0.0.1:0",
        description='Address and port of the status page, /metrics, /livez and /readyz; port 0 takes any, "" none.',
    )
    reflection: bool = Field(False, description="Let gRPC tools list the services of this node.")
    events_megabytes: int = Field(
        64, ge=0, le=65536, description="Room for the event log in the state folder, old files go first; 0: none."
    )
    tensorboard: Path | None = Field(
        None, description="Folder for TensorBoard's curves; needs the extra seedflood[tensorboard]."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto: console on a terminal, else JSON."
    )

    @field_validator("listen", "http")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        return value if value == "" else check_address(value)

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

    address: str = Field(description='Where it listens: "host:port".')
    name: Name | None = Field(None, description="Its name, for the reader; the peer says its own.")

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        return check_address(value)


class TlsSettings(Section):
    """`[tls]`: how links are protected."""

    insecure: bool = Field(False, description="Allow plain links beyond this machine. Only for networks you trust.")


SECTIONS: Mapping[str, type[BaseModel]] = {
    "run": RunSettings,
    "node": NodeSettings,
    "peers": PeerSettings,
    "tls": TlsSettings,
}


def check_address(value: str) -> str:
    """Returns the address if it is "host:port" or "[v6]:port"; raises ValueError otherwise."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", value)
    if not match or int(match[2]) > 65535:
        raise ValueError(f'"{value}" is no address; write "host:port", for example "10.0.0.2:7070"')
    return value


def is_loopback(address: str) -> bool:
    """Does the address reach this machine only?"""
    host = address.rsplit(":", 1)[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Settings(BaseSettings):
    """All of peers.toml. Immutable; `load_settings` makes it."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )
    run: RunSettings = RunSettings()
    node: NodeSettings = NodeSettings()
    peers: tuple[PeerSettings, ...] = ()
    tls: TlsSettings = TlsSettings()

    file_layer: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, EnvSettingsSource(settings_cls), InitSettingsSource(settings_cls, dict(cls.file_layer))

    @model_validator(mode="after")
    def _check_exposure(self) -> Self:
        addresses = [self.node.listen, *(peer.address for peer in self.peers)]
        exposed = [address for address in addresses if address and not is_loopback(address)]
        if exposed and not self.tls.insecure:
            raise ValueError(
                f'links beyond this machine ("{exposed[0]}") are not encrypted yet; on a network you trust say so with '
                "insecure = true in [tls]"
            )
        return self


def load_settings(path: Path | None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Combines the layers. flags: nested like the file, only what was given. Raises ConfigError with one sentence."""
    layer: dict[str, Any] = {}
    if path is not None:
        try:
            layer = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise ConfigError(f"{path} does not exist; name your peers.toml with --peers.") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} cannot be read: it is not UTF-8 text.") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    _check_environment()
    # The file is a layer of this call only: a subclass carries it, nothing is shared between calls.
    combined = type("Settings", (Settings,), {"file_layer": layer, "__module__": __name__})
    try:
        loaded: Settings = combined(**dict(flags or {}))
    except ValidationError as error:
        raise ConfigError(_first_sentence(error, str(path) if path else "settings")) from None
    return loaded


def _check_environment() -> None:
    """An unknown SEEDFLOOD__ variable is an error, like an unknown key of the file; a whole section is JSON."""
    for variable, value in os.environ.items():
        if not variable.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        section, *keys = variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")
        if section not in Settings.model_fields:
            raise ConfigError(f"environment variable {variable}: no section [{section}]; {_nearest(section, Settings)}")
        model = SECTIONS.get(section)
        if model is not None and keys and keys[0] not in model.model_fields:
            raise ConfigError(f'environment variable {variable}: no key "{keys[0]}"; {_nearest(keys[0], model)}')
        if not keys and not _is_json(value):
            raise ConfigError(
                f"environment variable {variable} stands for all of [{section}] and must be JSON, for example "
                f'SEEDFLOOD__PEERS=[{{"address": "10.0.0.2:7070"}}].'
            )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _first_sentence(error: ValidationError, source: str) -> str:
    """The first fault in words: where it is, what is wrong, what would be right."""
    fault = error.errors(include_url=False)[0]
    place = [str(part) for part in fault["loc"]]
    section = place[0] if place else ""
    model = SECTIONS.get(section)
    where = f"[{section}]" + (f' "{place[-1]}"' if len(place) > 1 else "") if place else "settings"
    if fault["type"] == "extra_forbidden":
        if len(place) == 1:
            return f'{source}: there is no section or key "{section}"; {_nearest(section, Settings)}'
        return f'{source}: [{section}] has no key "{place[-1]}"; {_nearest(place[-1], model or Settings)}'
    if fault["type"] == "missing":
        return f'{source}: [{section}] needs the key "{place[-1]}".'
    message = fault["msg"].removeprefix("Value error, ")
    shown = fault.get("input")
    given = f" (it is {shown!r})" if isinstance(shown, str | int | float | bool) and str(shown) not in message else ""
    return f"{source}: {where if place else ''}{': ' if place else ''}{message}{given}."


def _nearest(key: str, model: type[BaseModel]) -> str:
    near = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else f"known are {', '.join(model.model_fields)}."


def check_folders(settings: Settings) -> None:
    """Raises ConfigError if a folder that the settings name is not there: seconds before torch would tell."""
    named = {"[run] model": settings.run.model, "[node] data": settings.node.data}
    if settings.node.model_path is not None:
        named = {"[node] model_path": str(settings.node.model_path), "[node] data": settings.node.data}
    for key, value in named.items():
        if value and value.startswith(("/", "./", "../", "~")) and not Path(value).is_dir():
            raise ConfigError(f"the folder {value} does not exist; correct {key}.")
