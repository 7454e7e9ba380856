"""`[run.gasloc]`: how hosts train by GASLoC. Like all of `[run]` it is equal on all hosts."""

from typing import Any, Literal

from pydantic import Field

from seedflood.config.tables import AlgorithmSettings

TASKS = ("lm", "completion", "chat")
"""What it learns: tasks without labels."""


class GaslocSettings(AlgorithmSettings):
    """`[run.gasloc]`: rounds of local steps, each with an exchange of parameters at its end."""

    local_steps: int = Field(20, ge=1, le=2**20, description="Steps that every host takes between two exchanges.")
    matching: Literal["one", "two", "full"] = Field(
        "one", description="With whom a round is exchanged: one random neighbour, two, or all of them (full)."
    )
    encoding: Literal["float32", "bfloat16", "uint8"] = Field(
        "bfloat16", description="How parameters travel; what an encoding leaves out is sent with the next round."
    )
    gamma: float = Field(0.0, ge=0, lt=1, description="Momentum of the exchange; 0 is plain gossip.")
    eta: float = Field(1.0, gt=0, le=2, description="How much of what the local steps have changed counts.")
    delay_steps: int = Field(
        0, ge=0, description="Steps of the next round that are taken while this one is exchanged; local_steps at most."
    )
    initial: Literal["pretrained", "random"] = Field(
        "pretrained", description="What the run begins with: the model as it is, or weights drawn from the run's seed."
    )
    learning_rate: float = Field(
        1e-3,
        gt=0,
        allow_inf_nan=False,
        description="Of the local steps, by AdamW: down to a tenth at the end, as a cosine; up to it in the first "
        "tenth of a run from random weights.",
    )

    def check_steps(self, steps: int) -> None:
        if steps % self.local_steps:
            raise ValueError(
                f"steps ({steps}) must be a multiple of the local_steps ({self.local_steps}) of [run.gasloc]"
            )
        if self.delay_steps > self.local_steps:
            raise ValueError(
                f"delay_steps ({self.delay_steps}) of [run.gasloc] must be at most its local_steps ({self.local_steps})"
            )

    def check_task(self, task: str) -> None:
        if task == "own":
            raise ValueError('task = "own" is for scripts, which train by mode = "seedflood": set one of the two')
        if task not in TASKS:
            raise ValueError(
                f'mode = "gasloc" learns texts, but the task is "{task}": set task = "lm", "completion" or "chat" in '
                "[run.objective]"
            )

    def shown(self) -> dict[str, Any]:
        return {"local_steps": self.local_steps, "matching": self.matching, "encoding": self.encoding}
