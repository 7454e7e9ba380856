"""Timing in turn, and the one form in which every benchmark states its metrics."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """A ratio over repetitions. target: what it should not exceed (or reach, if `more_is_better`); None: none set."""

    median: float
    min: float
    max: float
    target: float | None = None
    met: bool | None = None
    more_is_better: bool = False


def make_metric(values: list[float], target: float | None = None, *, more_is_better: bool = False) -> Metric:
    middle = median(values)
    met = None if target is None else (middle >= target if more_is_better else middle <= target)
    return Metric(round(middle, 4), round(min(values), 4), round(max(values), 4), target, met, more_is_better)


def shared_folder() -> Path:
    """The development data and models beside the repository. Raises RuntimeError where they are not."""
    folder = Path(os.environ.get("SEEDFLOOD_SHARED", Path(__file__).parent.parent.parent / "shared")).resolve()
    if not (folder / "models" / "tiny-opt").is_dir():
        raise RuntimeError(f"{folder} with the development data and models is not here: set SEEDFLOOD_SHARED")
    return folder


def run_in_turn(jobs: Mapping[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of every job, one after the other, `repetitions` times, after a round that does not count.

    In turn, so that a machine that becomes slower meanwhile is slower for all.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repetitions):
        for name, job in jobs.items():
            begun = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def resident_kilobytes_max() -> int:
    """Of this program: getrusage would tell the peak of the process that started it, if that was higher."""
    return _read_memory("VmHWM:")


def resident_kilobytes() -> int:
    """Of this program, now."""
    return _read_memory("VmRSS:")


def _read_memory(name: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(name)[2].split()[0])


def ratios(over: list[float], under: list[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def report(name: str, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "benchmark": name,
        "machine": f"{platform.machine()}, {_processor()}",
        "commit": commit(),
        "metrics": {metric: asdict(value) for metric, value in metrics.items()},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "unknown"
