"""The processes of nodes on this machine, which share one import of PyTorch (`cli/forks`).

It takes seconds of a core, so four nodes on two cores would spend more time on it than on a short run.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LINE_BYTES_MAX = 1 << 20
STDOUT_FILE = "out.jsonl"

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # looking for a GPU does not touch it
}


@dataclass(slots=True)
class NodeProcess:
    """parent: forks it. log: its stderr. ended: its exit code; negative if a signal ended it. pid: None until it is
    forked."""

    parent: asyncio.subprocess.Process
    log: asyncio.StreamReader
    ended: asyncio.Future[int]
    pid: int | None = None

    def send(self, number: signal.Signals) -> None:
        """Nothing if it has ended. Before it is forked the parent gets the signal, which ends all."""
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.parent.pid if self.pid is None else self.pid, number)


async def start_nodes(folders: Sequence[Path]) -> tuple[list[NodeProcess], asyncio.Task[None]]:
    """Starts a node for the peers.toml of each folder; what it says on stdout is kept there. Returns them, and a task
    that is done when all have ended."""
    pipes = [os.pipe() for _ in folders]
    nodes = [
        {"words": ["--peers", str(folder / "peers.toml")], "stdout": str(folder / STDOUT_FILE), "stderr": end}
        for folder, (_, end) in zip(folders, pipes, strict=True)
    ]
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "seedflood.cli.forks", json.dumps(nodes)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=[end for _, end in pipes],
        env={**os.environ, **ENVIRONMENT},
    )
    started = []
    for begin, end in pipes:
        os.close(end)
        started.append(NodeProcess(parent, await _reader(begin), asyncio.get_running_loop().create_future()))
    return started, asyncio.create_task(_follow(parent, started))


async def _reader(pipe: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(LINE_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(pipe, "rb"))
    return reader


async def _follow(parent: asyncio.subprocess.Process, nodes: list[NodeProcess]) -> None:
    """Notes what the parent reports, until all nodes have ended. If it ends before them, they are ended, too."""
    assert parent.stdout is not None
    code = 0
    try:
        async for line in parent.stdout:
            number, what, value = json.loads(line)
            if what == "pid":
                nodes[number].pid = value
            else:
                nodes[number].ended.set_result(value)
        code = await parent.wait()
    finally:
        for node in nodes:
            if not node.ended.done():
                node.send(signal.SIGKILL)
                node.ended.set_result(code if code < 0 else -signal.SIGKILL)
