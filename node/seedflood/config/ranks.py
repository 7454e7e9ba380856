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


def find_rank() -> RankPlace:
    """By RANK and WORLD_SIZE in the environment; without them a host is one process. Raises ConfigError."""
    texts = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not all(text.isdecimal() for text in texts) or int(texts[0]) >= int(texts[1]):
        raise ConfigError(
            f"RANK={texts[0]} and WORLD_SIZE={texts[1]} in the environment are no number of a process and of how many "
            "there are: start a host over several processes by torchrun, or take both out."
        )
    place = RankPlace(int(texts[0]), int(texts[1]))
    if place.world_size > 1 and "RANK" not in os.environ:
        raise ConfigError("WORLD_SIZE is in the environment and RANK is not: start by torchrun, or take it out.")
    return place


def check_ranks(settings: Settings, place: RankPlace) -> None:
    """Raises ConfigError if a host over several processes cannot do what the settings ask for."""
    if place.world_size == 1:
        return
    node, run = settings.node, settings.run
    refused = {
        f'mode = "{run.mode}"': run.mode != "seedflood",
        'role = "relay"': node.role == "relay",
        f'task = "{run.objective.task}"': run.objective.task in ("reward", "own"),
        f'dtype = "{node.dtype}"': node.quantisation is not None,
        f"audit = {node.audit:g}": node.audit > 0,
        f'device = "{node.device}"': node.device not in ("auto", "cpu"),
    }
    if asked := next((setting for setting, is_asked in refused.items() if is_asked), None):
        raise ConfigError(
            f"a host over several processes ({place.world_size} by WORLD_SIZE) cannot do {asked}: start it as one "
            "process, or choose another setting."
        )
