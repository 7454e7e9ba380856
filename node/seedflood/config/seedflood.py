"""`[run.seedflood]`: how hosts train by SeedFlood. Like all of `[run]` it is equal on all hosts.

Epochs of gradients are short, 100 steps, because a host that joins late pulls the bundles of the open one (OPT-125M:
2.9 kB per origin and step) and 98 kB for each closed one: 2.1 MB at most for four origins. With the 1000 steps of
directions, whose bundles are small, it would be 24 MB.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from seedflood.config.tables import AlgorithmSettings

EstimateName = Literal["two-sided", "gradient"]


class SeedfloodSettings(AlgorithmSettings):
    """`[run.seedflood]`. Some defaults follow from keys that stand above them here."""

    window: Literal["strict", "bounded"] = Field(
        "bounded",
        description="bounded: a step waits for those that keep pace; strict: for everyone, and for ever.",
    )
    delay: int = Field(
        0,
        ge=0,
        le=64,
        description="Rounds that may be on their way while the next one is measured; 1 hides hops of up to a round.",
    )
    participants: int | None = Field(
        None,
        ge=1,
        description="About how many of the clients measure a round, each as often as any other; the others only apply "
        "it (default: all).",
    )
    local_steps: int = Field(1, ge=1, le=64, description="Consecutive steps that share one message and signature.")
    estimate: EstimateName = Field(
        "two-sided",
        description="What a step measures. two-sided: two forwards; gradient: a forward and a backward.",
    )
    rank: int = Field(
        default_factory=lambda known: _default_rank(known),
        ge=1,
        le=1024,
        description="Columns of each basis. Default: 32; for gradients 16.",
    )
    refresh_period: int = Field(
        default_factory=lambda known: _whole_rounds(100, known) if _has_gradient(known) else 1000,
        ge=1,
        description="Steps per epoch, which share one subspace. Default: 1000; 100 for gradients, in whole rounds.",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Default: by estimate, rank, shapes and weights of the model. Of gradients, how far a step moves a "
        "weight matrix along each coordinate that is sent (Frobenius norm).",
    )
    stop_after: int | None = Field(
        None,
        ge=1,
        description="End the run with its best state once no epoch in so many steps, in whole epochs, lost less than "
        "the best one before (default: never; needs strict windows).",
    )
    clip: Annotated[float, Field(ge=1e-4, le=2048)] | Literal["others", "none"] = Field(
        default_factory=lambda known: "others" if _has_gradient(known) else "none",
        description="What bounds an update. others, for gradients of three hosts or more: sizes by the median of a "
        "step; who contradicts the others does not count. none: nothing, for hosts with rows of "
        "unlike kinds, which contradict each other and are honest. A number: no slope, or coefficient, may be larger; "
        "others are refused. Default: others; of slopes none.",
    )

    @field_validator("clip", mode="before")
    @classmethod
    def _read_clip(cls, value: object) -> object:
        """Of two kinds of values pydantic would speak of one."""
        if isinstance(value, str) and value not in ("others", "none"):
            try:
                return float(value)
            except ValueError:
                raise ValueError('must be a number, "others" or "none"') from None
        return value

    @model_validator(mode="after")
    def _check_clip(self) -> Self:
        if self.clip == "others" and self.estimate != "gradient":
            raise ValueError(
                'clip = "others" compares gradients: set estimate = "gradient", or clip to a number or "none"'
            )
        return self

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.stop_after is not None and self.window != "strict":
            raise ValueError(
                'stop_after needs losses that all hosts hold alike: set window = "strict", or take stop_after out'
            )
        if self.participants is not None and self.window != "strict":
            raise ValueError(
                'participants is for windows that wait for all who measure: set window = "strict", or take it out'
            )
        if self.participants is not None and self.stop_after is not None:
            raise ValueError("with participants a run cannot stop before its end: take stop_after out, or participants")
        return self

    @property
    def stop_epochs(self) -> int | None:
        """`stop_after` in whole epochs."""
        return None if self.stop_after is None else -(-self.stop_after // self.refresh_period)

    def turn_rounds(self, clients: int) -> int:
        """Of so many rounds a host measures one: as many as leave no more than `participants` for a round in the mean,
        and fit into an epoch without a rest. Raises ValueError if none do."""
        epoch_rounds, least = self.refresh_period // self.local_steps, -(-clients // (self.participants or clients))
        found = next((one for one in range(least, epoch_rounds + 1) if not epoch_rounds % one), None)
        if found is None:
            raise ValueError(
                f"with participants = {self.participants} a host measures one of {least} rounds, and an epoch has "
                f"{epoch_rounds}: raise participants, or refresh_period to {least * self.local_steps} or more"
            )
        return found

    def check_steps(self, steps: int) -> None:
        if steps % self.local_steps or self.refresh_period % self.local_steps:
            raise ValueError(
                f"steps ({steps}), and refresh_period ({self.refresh_period}) of [run.seedflood], must be multiples of "
                f"its local_steps ({self.local_steps})"
            )
        if self.stop_epochs is not None and (self.stop_epochs + 1) * self.refresh_period >= steps:
            raise ValueError(
                f"stop_after ({self.stop_after}) of [run.seedflood] compares whole epochs of {self.refresh_period} "
                f"steps, so a run of {steps} cannot end sooner: lower it or refresh_period, or take it out"
            )

    def check_task(self, task: str) -> None:
        if task == "reward" and self.estimate != "gradient":
            raise ValueError('task = "reward" learns by gradients: set estimate = "gradient" in [run.seedflood]')

    def shown(self) -> dict[str, Any]:
        return {"window": self.window, "local_steps": self.local_steps, "refresh_period": self.refresh_period}

    def epoch_of(self, step: int) -> int | None:
        return step // self.refresh_period


def _has_gradient(known: Mapping[str, Any]) -> bool:
    """known: the settings that stand above the one whose default is asked for."""
    return known.get("estimate") == "gradient"


def _default_rank(known: Mapping[str, Any]) -> int:
    return 16 if _has_gradient(known) else 32


def _whole_rounds(steps: int, known: Mapping[str, Any]) -> int:
    local_steps = int(known.get("local_steps", 1))
    return -(-steps // local_steps) * local_steps
