"""The Slurm job, with stand-ins for Slurm's own commands: real daemons train on two loopback addresses."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from forks import programs

from seedflood.errors import ExitCode

pytestmark = [pytest.mark.system]

JOB = Path(__file__).parents[2] / "deploy" / "slurm" / "seedflood.sbatch"

SCONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then tr , '\\n' <<<"$3"; else echo "$*" >>"$ASKED"; fi
"""

SRUN = """#!/usr/bin/env bash
shift
code=0 tasks=()
for ((k = 0; k < TASKS; k++)); do SLURM_PROCID=$k "$@" >"$OUTPUT/$k" & tasks+=($!); done
for task in "${tasks[@]}"; do wait "$task" || { one=$?; ((one > code)) && code=$one; }; done
exit "$code"
"""


class Cluster:
    """Two nodes, which are loopback addresses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        tools = folder / "bin"
        tools.mkdir()
        for name in ("seedflood", "seedflood-node"):
            (tools / name).symlink_to(programs() / name)
        for name, text in {"scontrol": SCONTROL, "srun": SRUN}.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.environment = os.environ | {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "RUN": str(self.run),
            "PORT": str(port),
            "OPTIONS": "--steps 40",
            "SLURM_JOB_ID": "7",
            "ASKED": str(folder / "asked"),
            "OUTPUT": str(folder),
            "TASKS": "2",
        }

    def submit(self, nodes: str) -> "subprocess.CompletedProcess[str]":
        environment = self.environment | {"SLURM_JOB_NODELIST": nodes}
        return subprocess.run(
            ["bash", str(JOB)],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def results(self) -> list[dict[str, object]]:
        return [json.loads((self.folder / str(k)).read_text()) for k in range(2)]


def test_a_job_trains_on_all_its_nodes_and_goes_on_with_other_ones(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    ended = cluster.submit("127.0.0.1,127.0.0.2")
    assert ended.returncode == 0, ended.stderr
    first = cluster.results()
    assert first[0]["digest"] == first[1]["digest"]
    assert {one["name"] for one in first} == {"host0", "host1"}

    ended = cluster.submit("127.0.0.2,127.0.0.3")  # as if it had been queued again
    assert ended.returncode == 0, ended.stderr
    assert f'"127.0.0.2:{cluster.environment["PORT"]}"' in (cluster.run / "host1" / "peers.toml").read_text()
    assert [one["digest"] for one in cluster.results()] == [one["digest"] for one in first]

    ended = cluster.submit("127.0.0.1")
    assert (ended.returncode, "this job has 1 nodes" in ended.stderr) == (ExitCode.CONFIG, True)


def test_a_job_whose_time_is_over_is_queued_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    (tmp_path / "bin" / "srun").write_text(f"#!/usr/bin/env bash\nexit {ExitCode.TRY_AGAIN}\n")
    ended = cluster.submit("127.0.0.1,127.0.0.2")
    assert (ended.returncode, (tmp_path / "asked").read_text()) == (ExitCode.TRY_AGAIN, "requeue 7\n")
