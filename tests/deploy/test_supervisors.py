"""What supervisors are told agrees with the node: how long leaving takes, and which exit codes need an operator."""

import re
from pathlib import Path

import pytest
import recipe
import yaml

from seedflood.errors import ExitCode
from seedflood.host import daemon
from seedflood.operations import eventlog
from seedflood.operations import server as http_server
from seedflood.transport import link, links, server

REPOSITORY = Path(__file__).parents[2]
UNIT = (REPOSITORY / "deploy" / "systemd" / "seedflood-node.service").read_text()

LEAVING_SECONDS_MAX = sum(
    (
        daemon.DRAIN_SECONDS,
        daemon.COMPUTE_SECONDS,
        link.FAREWELL_SECONDS,
        links.STOP_SECONDS,
        server.CLOSE_SECONDS,
        http_server.CLOSE_SECONDS,
        eventlog.CLOSE_SECONDS,
    )
)
MARGIN_SECONDS = 10


def of_unit(key: str) -> str:
    (value,) = re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)
    return value


def grace_of_compose() -> str:
    return yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())["x-node"]["stop_grace_period"]


def grace_of_kubernetes() -> str:
    manifest = yaml.safe_load((REPOSITORY / "deploy" / "kubernetes" / "base" / "stateful-set.yaml").read_text())
    return str(manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def grace_of_recipe() -> str:
    (command,) = [line for line in recipe.script("As a container") if "docker run" in line]
    return re.findall(r"--stop-timeout (\d+)", command)[0]


@pytest.mark.parametrize(
    "grace", [of_unit("TimeoutStopSec"), grace_of_compose(), grace_of_kubernetes(), grace_of_recipe()]
)
def test_a_node_is_given_the_time_that_leaving_takes_at_worst(grace: str):
    assert int(grace.removesuffix("s")) >= LEAVING_SECONDS_MAX + MARGIN_SECONDS


def test_what_is_said_of_leaving_is_not_less_than_it_takes():
    said = {int(seconds) for seconds in re.findall(r"(\d+) s at worst", UNIT)}
    assert said
    assert min(said) >= LEAVING_SECONDS_MAX


def test_systemd_does_not_start_again_what_an_operator_must_repair_first():
    repairable = {ExitCode.USAGE, ExitCode.RUN_MISMATCH, ExitCode.REFUSED, ExitCode.CONFIG}
    in_use_elsewhere = ExitCode.TRY_AGAIN  # the key or the journal: two that restart would take turns
    assert {int(code) for code in of_unit("RestartPreventExitStatus").split()} == {*repairable, in_use_elsewhere}
