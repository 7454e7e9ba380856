"""Settings: what `peers.toml` may say, how its layers combine, and one clear sentence for each fault.

`[run]` must be equal on all hosts, and its hash is the run id. Everything else belongs to one host.
"""

from seedflood.config.checks import (
    ADAPTER_FILE,
    CARD_FILE,
    EMBEDDED,
    MODEL_FILE,
    RUN_IN_CARD,
    check_code,
    check_export,
    check_folders,
    check_place,
    check_settings,
    check_target,
)
from seedflood.config.gasloc import GaslocSettings
from seedflood.config.load import combine, detach, load_settings, read_layer, read_objective
from seedflood.config.node import (
    NodeSettings,
    check_address,
    divide_data,
    is_loopback,
)
from seedflood.config.ranks import RankPlace, check_ranks, find_rank
from seedflood.config.run import READ_BY, WITHOUT_ROWS, ObjectiveSettings, RunSettings, TaskName
from seedflood.config.seedflood import EstimateName, SeedfloodSettings
from seedflood.config.settings import SECTIONS, Settings, add_algorithm, quantisation_fault
from seedflood.config.tables import AlgorithmSettings, merge, spell
