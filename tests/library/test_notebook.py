"""The notebook of examples/, run by a real kernel: an event loop runs in it already."""

import sys
from pathlib import Path

import nbformat
import pytest
from forks import programs
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # of Jupyter's own modules
]


def test_the_notebook_runs_from_its_first_cell_to_its_last(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))  # of which Jupyter makes its kernel
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    *_, learning, ended = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "step 40: loss of both hosts" in printed(learning)
    here, there = [line.split()[-1] for line in printed(ended).splitlines()]
    assert here == there


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell wrote to stdout, which comes in pieces."""
    return "".join(one["text"] for one in cell.outputs if one.get("name") == "stdout")
