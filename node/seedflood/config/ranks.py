"""One host over several processes: which of them this one is, as `torchrun` says it in the environment, and what such
a host cannot do."""

import os
from typing import NamedTuple

from seedflood.config.settings import Settings
from seedflood.errors import ConfigError


class RankPlace(NamedTuple):
    """This process is number `rank` (from 0) of the `world_size` that are one host. Rank 0 is the daemon."""

    rank: int
    world_size: int


MARK = "TORCHELASTIC_RUN_ID"
"""In the environment of what `torchrun` starts. RANK and WORLD_SIZE alone say nothing: clusters give them to pods that
are hosts of their own."""


def find_rank() -> RankPlace:
    """Without `torchrun` a host is one process."""
    if MARK not in os.environ:
        return RankPlace(0, 1)
    return RankPlace(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def check_ranks(settings: Settings, place: RankPlace) -> None:
    """Raises ConfigError if a host over several processes cannot do what the settings ask for."""
    if place.world_size == 1:
        return
    node, run = settings.node, settings.run
    refused = {
        f'mode = "{run.mode}"': run.mode != "seedflood",
        'role = "relay"': node.role == "relay",
        f'task = "{run.objective.task}"': run.objective.task == "own",
        f"kl = {run.objective.kl:g}": run.objective.kl > 0,
        f'device = "{node.device}"': node.device not in ("auto", "cpu"),
    }
    if asked := next((setting for setting, is_asked in refused.items() if is_asked), None):
        raise ConfigError(
            f"a host over several processes ({place.world_size} by torchrun) cannot do {asked}: start it as one "
            "process, or choose another setting."
        )
