"""How torch's threads wait, as a process of its own sees it."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "then"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_threads_that_wait_leave_their_core_to_others_unless_told_otherwise(given: dict[str, str], then: str) -> None:
    said = "import os, sys, seedflood.training; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", said], env=others | given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [then, "False"]  # before torch is imported, for it is read then
