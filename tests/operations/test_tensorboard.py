"""Curves are written as TensorBoard reads them; what is missing or broken is told."""

import sys

import pytest

from seedflood.errors import ConfigError
from seedflood.operations.tensorboard import TensorBoard

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder, curve):
    accumulator = accumulators.EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, round(float(event.tensor_proto.float_val[0]), 3)) for event in accumulator.Tensors(curve)]


def test_points_are_read_by_tensorboard_itself(tmp_path):
    board = TensorBoard(tmp_path / "curves")
    board(0, {"loss/train": 0.5, "seconds/step": 0.25})
    board(1, {"loss/train": None, "seconds/step": 0.5})
    board.close()
    assert read(tmp_path / "curves", "loss/train") == [(0, 0.5)]
    assert read(tmp_path / "curves", "seconds/step") == [(0, 0.25), (1, 0.5)]


async def test_a_node_writes_its_curves(cluster, tmp_path):
    folder = tmp_path / "curves"
    a = await cluster.start("a", [], {"clients": 1, "steps": 4}, {"tensorboard": folder, "evaluate": True})
    await cluster.finish()
    await a.close()
    cluster.daemons.clear()
    assert [step for step, _ in read(folder, "loss/train")] == [0, 1, 2, 3]
    assert [step for step, _ in read(folder, "accuracy/validation")] == [0, 4]
    assert len(read(folder, "seconds/window")) == 4


def test_a_missing_package_is_told_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ConfigError, match=r"pip install 'seedflood\[tensorboard\]'"):
        TensorBoard(tmp_path)


def test_a_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"\[node\] tensorboard"):
        TensorBoard(tmp_path / "file" / "curves")
