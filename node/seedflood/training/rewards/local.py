"""A score that is a function in a file of the operator, in a process of its own.

Such a file is code, so a host runs it only if its operator allows it, and only the file whose SHA-256 stands in
`[run]`: nothing of it ever comes over the network. The process lives as long as the score and takes one text after the
other. It has limits of CPU, memory and time for each; it may not change files, start programs or open sockets
(`inside`). This guards against mistakes of the author, not against malice: the file can read what the node can.

One text that loops or crashes ends the process, and the next one gets another. Hashes of Python are not random there,
so equal texts get equal scores on all hosts, as long as the function itself does not draw.
"""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from seedflood.errors import ConfigError
from seedflood.training.rewards import inside
from seedflood.training.rewards.scorer import ScoreError

LOADING_SECONDS_MAX = 60.0
ANSWER_BYTES_MAX = 4096
"""A number, or a fault with a detail (`inside`)."""


class Limits(NamedTuple):
    """Of one text: seconds on a CPU, and on the clock, which a host under load needs more of. memory_bytes: address
    space of the process."""

    cpu_seconds: int = 5
    seconds: float = 60.0
    memory_bytes: int = 1 << 30


LIMITS = Limits()


def read_source(path: Path, sha256: str | None) -> bytes:
    """The file of a score. Raises ConfigError if it is not there, or is another one than the run names."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {path} ({error.strerror}): correct score in [run.objective].") from error
    found = hashlib.sha256(source).hexdigest()
    if found != sha256:
        named = "has none" if sha256 is None else f"names {sha256[:12]}..."
        raise ConfigError(
            f'{path} has the SHA-256 {found}, and [run.objective] {named}: write score_sha256 = "{found}" if this is '
            "the file that all hosts shall use."
        )
    return source


class LocalScore:
    """The function of this name in a source, as a score. Raises ConfigError if it cannot be loaded."""

    def __init__(self, path: Path, source: bytes, function: str, limits: Limits | None = None) -> None:
        self._limits = limits or LIMITS
        self._first = {"source": source.decode(errors="replace"), "path": str(path), "function": function}
        try:
            self._start()
        except ScoreError as fault:
            raise ConfigError(f"{path} gives no score {function} ({fault}): correct the file.") from fault

    def __call__(self, prompt: str, completion: str, row: Mapping[str, object]) -> float:
        """Raises ScoreError."""
        if self._process.poll() is not None:
            self._start()
        return float(self._ask({"prompt": prompt, "completion": completion, "row": row}, self._limits.seconds))

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(inside.__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                "PYTHONHASHSEED": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
                "MPLCONFIGDIR": tempfile.gettempdir(),  # reasoning-gym imports matplotlib, which asks for a folder
            },
            cwd="/",
            start_new_session=True,
        )
        self.close = weakref.finalize(self, _end, self._process)
        limits = self._limits._asdict()
        self._ask({**self._first, "limits": limits}, LOADING_SECONDS_MAX)

    def _ask(self, question: Mapping[str, Any], seconds: float) -> float:
        """The answer of the process. One that gives none is ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "a pipe"
        assert stdout is not None, "a pipe"
        reply, deadline = b"", time.monotonic() + seconds
        try:
            stdin.write(json.dumps(question, default=str).encode() + b"\n")
            stdin.flush()
            while not reply.endswith(b"\n"):
                if not _is_readable(stdout, max(0.0, deadline - time.monotonic())):
                    raise ScoreError("took too long", f"more than {seconds:g} s", is_lost=True)
                if not (piece := os.read(stdout.fileno(), ANSWER_BYTES_MAX)):
                    raise self._ended(self._process.wait())
                reply += piece
                if len(reply) > ANSWER_BYTES_MAX:
                    raise ScoreError("wrote where only answers belong")
            answer = json.loads(reply)
        except ValueError:
            self.close()
            raise ScoreError("wrote where only answers belong") from None
        except (ScoreError, OSError):
            self.close()
            raise
        if "kind" in answer:
            raise ScoreError(answer["kind"], answer["detail"])
        return float(answer["score"])

    def _ended(self, status: int) -> ScoreError:
        if status == -signal.SIGXCPU:
            return ScoreError("took too long", f"more than {self._limits.cpu_seconds} s of a CPU", is_lost=True)
        return ScoreError("ended its process", f"exit status {status}", is_lost=True)


def _is_readable(stream: IO[bytes], seconds: float) -> bool:
    """Within so many seconds? `select` knows no descriptors above 1023, and a node with many connections has some."""
    waiting = select.poll()
    waiting.register(stream, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # with what it has started
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
