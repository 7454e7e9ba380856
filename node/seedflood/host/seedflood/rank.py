"""A process of a host over several, other than the first: it has neither journal, links nor page, and does what the
first one orders (`training/ranks`).

It ends with 0 when rank 0 ends in peace, and with 75 when another rank is gone. A signal to leave is for rank 0, which
takes this one along.
"""

import signal
from typing import NoReturn

from seedflood.config import RankPlace, Settings
from seedflood.errors import ExitCode, RankError
from seedflood.host.process import leave
from seedflood.log import log
from seedflood.training.ranks import Ranks, join_ranks
from seedflood.training.seedflood.trainer import Trainer


def run_rank(settings: Settings, place: RankPlace) -> NoReturn:
    """Raises SeedfloodError."""
    ranks = join_ranks(place, settings.node, _end)
    assert isinstance(ranks, Ranks), "one process is the daemon"
    trainer = Trainer(settings.run, settings.node, ranks)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        trainer.follow(ranks)
    except RankError:
        ranks.wait_until_over()
        raise  # that of the watch comes first


def _end(fault: RankError | None) -> None:
    """On the thread of the watch: the one that computes may be within a transfer that never ends."""
    if fault is not None:
        log.error(str(fault))
    leave(ExitCode.OK if fault is None else fault.exit_code)
