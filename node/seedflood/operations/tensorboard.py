"""Curves for TensorBoard, an optional extra. Its own writer is used, which needs neither torch nor TensorFlow.

A separate thread writes the points, because the writer blocks if the disk is slow and raises if it is full. Then the
curves end, not the node.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue

import structlog

from seedflood.errors import ConfigError

Points = Mapping[str, float | None]

CLOSE_SECONDS = 5.0

_log = structlog.stdlib.get_logger("seedflood")


class TensorBoard:
    """Call it with the points of one step; `close` writes what waits."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError if the extra is not installed or the folder cannot be written."""
        try:
            from tensorboard.summary import Writer
        except ImportError:
            raise ConfigError(
                "[node] tensorboard asks for a package that is not installed; pip install 'seedflood[tensorboard]'."
            ) from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = Writer(str(folder))
        except OSError as error:
            raise ConfigError(f"[node] tensorboard: {folder} cannot be written: {error.strerror}.") from None
        self._queue: SimpleQueue[tuple[int, Points, float] | None] = SimpleQueue()
        self._is_ended = False
        self._thread = threading.Thread(target=self._write, name="tensorboard", daemon=True)
        self._thread.start()

    def __call__(self, step: int, points: Points) -> None:
        if not self._is_ended:
            self._queue.put((step, points, time.time()))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        try:
            while (taken := self._queue.get()) is not None:
                step, points, at = taken
                for curve, value in points.items():
                    if value is not None:
                        self._writer.add_scalar(curve, value, step, wall_time=at)
            self._writer.close()
        except (OSError, ValueError) as error:
            self._is_ended = True
            _log.warning("TensorBoard's curves have ended; the node goes on", reason=str(error))
