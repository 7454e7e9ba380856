"""The Slurm job, with stand-ins for Slurm's own commands: real daemons train on two loopback addresses."""

import json
import subprocess
from pathlib import Path

import pytest
from loopback import REPOSITORY, Loopback

from seedflood.errors import ExitCode

pytestmark = [pytest.mark.system]

JOB = REPOSITORY / "deploy" / "slurm" / "seedflood.sbatch"

SCONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then tr , '\\n' <<<"$3"; else echo "$*" >>"$ASKED"; fi
"""

SRUN = """#!/usr/bin/env bash
shift
code=0 tasks=()
for ((k = 0; k < TASKS; k++)); do SLURM_PROCID=$k "$@" >"$OUTPUT/$k" 2>"$OUTPUT/$k.log" & tasks+=($!); done
if [[ -v TIME_IS_OVER ]]; then
  until grep -q '"progress"' "$OUTPUT/0.log"; do sleep 0.1; done
  kill -TERM "${tasks[@]}"
fi
for task in "${tasks[@]}"; do wait "$task" || { one=$?; ((one > code)) && code=$one; }; done
exit "$code"
"""


class Cluster:
    """Two nodes, which are loopback addresses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.loopback = Loopback(folder)
        self.loopback.put(scontrol=SCONTROL, srun=SRUN)
        self.loopback.environment |= {
            "RUN": str(self.run),
            "PORT": str(self.loopback.port),
            "OPTIONS": "--steps 40",
            "SLURM_JOB_ID": "7",
            "ASKED": str(folder / "asked"),
            "OUTPUT": str(folder),
            "TASKS": "2",
        }

    def submit(self, nodes: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return self.loopback.run("bash", str(JOB), SLURM_JOB_NODELIST=nodes, **environment)

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
    assert f'"127.0.0.2:{cluster.loopback.port}"' in (cluster.run / "host1" / "peers.toml").read_text()
    assert [one["digest"] for one in cluster.results()] == [one["digest"] for one in first]

    ended = cluster.submit("127.0.0.1")
    assert (ended.returncode, "this job has 1 nodes" in ended.stderr) == (ExitCode.CONFIG, True)


def test_a_job_whose_time_is_over_is_queued_again_and_goes_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    ended = cluster.submit("127.0.0.1,127.0.0.2", OPTIONS="--steps 400", TIME_IS_OVER="")
    assert (ended.returncode, (tmp_path / "asked").read_text()) == (ExitCode.TRY_AGAIN, "requeue 7\n")
    ended = cluster.submit("127.0.0.1,127.0.0.2")
    assert ended.returncode == 0, ended.stderr
    first, second = cluster.results()
    assert first["digest"] == second["digest"]


def test_a_job_with_a_host_that_wants_another_try_is_queued_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.loopback.put(srun=f"#!/usr/bin/env bash\nexit {ExitCode.TRY_AGAIN}\n")
    ended = cluster.submit("127.0.0.1,127.0.0.2")
    assert (ended.returncode, (tmp_path / "asked").read_text()) == (ExitCode.TRY_AGAIN, "requeue 7\n")
