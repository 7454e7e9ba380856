"""Runs all cells of a study that have no result yet, in as many processes as there are cores.

First the tries, which say with which options every method goes on; then the rest, in the order of the plan. Each
process has one thread, so seconds of a cell are those of one core.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedflood.errors import ExitCode, SeedfloodError
from study.cell import Cell, Result
from study.measure import measure
from study.methods.clients import use_one_thread
from study.plan import Study
from study.results import Results
from study.rows import Split
from study.summary import all_tries, chosen, left

Report = Callable[[str, Cell | None, int, int], None]
"""Called with what is being done, the cell that has just ended, work done and all work."""


def run(study: Study, rows: Split, results: Results, jobs: int, report: Report) -> None:
    """Fills the results. Raises what a cell raises; the results of the others are kept."""
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork
    with ProcessPoolExecutor(jobs, context, initializer=_begin) as pool, _ended_with_us():

        def begin(cell: Cell) -> Future[Result]:
            return pool.submit(measure, cell, rows)

        while left(tries := all_tries(study, results), results):
            _run_all("choosing options", tries, begin, results, report)
        _run_all("measuring", study.cells(chosen(study, results)), begin, results, report)


def _run_all(
    doing: str, cells: Sequence[Cell], begin: Callable[[Cell], Future[Result]], results: Results, report: Report
) -> None:
    """Begins all cells that have no result, in this order, and keeps each result as it comes."""
    waiting = left(cells, results)
    total = sum(cell.work for cell in cells)
    done = total - sum(cell.work for cell in waiting)
    report(doing, None, done, total)
    for future in as_completed([begin(cell) for cell in waiting]):
        result = future.result()
        results.add(result)
        done += result.cell.work
        report(doing, result.cell, done, total)


@contextmanager
def _ended_with_us() -> Iterator[None]:
    """If the block fails, ends the processes that it has begun, without waiting for their cells."""
    try:
        yield
    except BaseException as error:
        for child in multiprocessing.active_children():
            child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise SeedfloodError(
                "A process of the study was killed, perhaps for its memory: start again with fewer --jobs; what has "
                "been measured is kept."
            ) from error
        raise


def _begin() -> None:
    """Of a process of the pool: it leaves Ctrl-C to the first one, and ends when that does, however that comes to its
    end."""
    use_one_thread()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a child"
    parent.join()
    os._exit(ExitCode.TRY_AGAIN)


def cores() -> int:
    return len(os.sched_getaffinity(0))


class Display:
    """Progress on stderr; a context manager."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task("reading rows", total=None)
        self._doing = ""

    def __enter__(self) -> Report:
        self._bar.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _show(self, doing: str, ended: Cell | None, done: int, total: int) -> None:
        if doing != self._doing:
            self._doing = doing
            self._bar.reset(self._task, total=total, description=doing)
        what = f"{doing}: {ended.method}, {ended.clients} clients, seed {ended.seed}" if ended else doing
        self._bar.update(self._task, description=what, completed=done)
