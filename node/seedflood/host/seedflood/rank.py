"""The processes of a host over several (`training/ranks`): rank 0 is the daemon. The others have neither journal, links
nor page, and do what it orders.

They end with 0 when rank 0 ends in peace, and with 75 when it ends by a fault, or another rank is gone. A signal to
leave is for rank 0, which takes the others along.
"""

import signal
from typing import NoReturn

from seedflood.config import RankPlace, Settings, find_rank
from seedflood.errors import ExitCode, RankError, SeedfloodError
from seedflood.host.leaving import leave
from seedflood.log import log
from seedflood.training.ranks import Ranks, join_ranks
from seedflood.training.seedflood.trainer import Trainer


def load_first(settings: Settings) -> Trainer:
    """The trainer of rank 0, or of the one process that is the host. Until the daemon is there, rank 0 ends like any
    other. Raises SeedfloodError."""
    ranks = join_ranks(find_rank(), settings.node, _end_if_lost)
    try:
        return Trainer(settings.run, settings.node, ranks)
    except SeedfloodError:
        ranks.when_over(lambda _fault: None)  # the others meet the same fault, and may end first
        raise


def run_rank(settings: Settings, place: RankPlace) -> NoReturn:
    """Any other rank. It ends the process, or raises what ends it: then the others miss it at once."""
    ranks = join_ranks(place, settings.node, _end)
    assert isinstance(ranks, Ranks), "one process is the daemon"
    trainer = Trainer(settings.run, settings.node, ranks)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        trainer.follow(ranks)
    except RankError as error:
        ranks.wait_until_over()  # rank 0 may have ended in peace
        log.error("a transfer between the processes of this host failed", error=str(error.__cause__))
        raise


def _end(fault: RankError | None) -> None:
    """On the thread of the ranks' watch: what computes may be within a transfer that never ends."""
    _end_if_lost(fault)
    leave(ExitCode.OK)


def _end_if_lost(fault: RankError | None) -> None:
    if fault is not None:
        log.error(str(fault))
        leave(fault.exit_code)
