"""Which device a host takes, and what is said of one that is not there. No accelerator is needed here."""

import re

import pytest
import torch

from seedflood.errors import ModelError
from seedflood.training import devices
from seedflood.training.devices import (
    describe,
    device_names,
    exact_device,
    find_device,
    same_draws,
    to_float64,
    usual_device,
    usual_dtype,
)

KINDS = ("cuda", "mps", "xpu", "hpu")


@pytest.fixture
def found(monkeypatch):
    """Makes torch find accelerators."""

    def find(kind, count=1):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)

    return find


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_takes_the_accelerator_that_is_there(found, kind):
    found(kind)
    assert usual_device(0) == kind
    assert find_device(kind) == torch.device(kind, 0), "some calls of torch want an index"
    assert find_device(f"{kind}:0") == torch.device(kind, 0)


def test_a_host_without_an_accelerator_takes_its_processor(found):
    found("cuda", 0)  # a build with CUDA on a machine without it
    assert (usual_device(0), usual_device(3), device_names()) == ("cpu", "cpu", ["cpu"])
    assert find_device("cpu") == torch.device("cpu")


def test_processes_of_one_command_take_the_accelerators_in_turn(found):
    found("xpu", 2)
    assert [usual_device(rank) for rank in range(4)] == ["xpu", "xpu:1", "xpu", "xpu:1"]


@pytest.mark.parametrize(
    ("kind", "count", "wanted", "there"),
    [
        ("cuda", 0, "cuda", '"cpu"'),
        ("cuda", 2, "cuda:2", '"cpu", "cuda:0", "cuda:1"'),
        ("cuda", 1, "mps", '"cpu", "cuda:0"'),
        ("mps", 1, "cuda", '"cpu", "mps:0"'),
        ("mps", 1, "mps:1", '"cpu", "mps:0"'),
        ("xpu", 1, "npu", '"cpu", "xpu:0"'),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_the_names_of_those_that_are(found, kind, count, wanted, there):
    found(kind, count)
    with pytest.raises(ModelError, match=re.escape(f'finds no device "{wanted}" on this machine, but {there}: name')):
        find_device(wanted)


@pytest.mark.parametrize(
    ("kind", "has_bfloat16", "dtype"),
    [
        ("cpu", True, torch.float32),
        ("cuda", True, torch.bfloat16),
        ("cuda", False, torch.float16),
        ("xpu", True, torch.bfloat16),
        ("xpu", False, torch.float32),
        ("mps", True, torch.float32),
    ],
)
def test_weights_have_half_precision_where_that_saves_memory(monkeypatch, kind, has_bfloat16, dtype):
    for module in (torch.cuda, torch.xpu):
        monkeypatch.setattr(module, "is_bf16_supported", lambda: has_bfloat16)
    assert usual_dtype(torch.device(kind)) is dtype


def test_float64_stays_on_a_device_that_has_it(monkeypatch):
    assert [exact_device(kind).type for kind in ("cpu", "cuda:1", *KINDS[1:])] == ["cpu", "cuda", "cpu", "cpu", "cpu"]
    assert exact_device("cuda:1").index == 1
    a = torch.ones(3, requires_grad=True)
    to_float64(a).sum().backward()
    assert to_float64(a).dtype is torch.float64
    assert a.grad is not None
    assert a.grad.dtype is torch.float32


def test_what_is_drawn_with_the_same_draws_is_drawn_again(monkeypatch):
    """Of the CPU's generator, and of the device's own."""
    states = []

    class Module:
        @staticmethod
        def get_rng_state(device):
            states.append(("got", device))
            return "state"

        @staticmethod
        def set_rng_state(state, device):
            states.append((state, device))

    monkeypatch.setattr(torch, "get_device_module", lambda kind: Module)
    for device, expected in (("cpu", []), ("mps", [("got", "mps"), ("state", "mps")])):
        states.clear()
        with same_draws(torch.device(device)):
            first = torch.rand(3)
        assert torch.equal(torch.rand(3), first)
        assert states == [(what, torch.device(name)) for what, name in expected]
    states.clear()
    with same_draws(torch.device("mps"), enabled=False):
        first = torch.rand(3)
    assert not torch.equal(torch.rand(3), first)
    assert states == []


def test_a_device_is_described_with_what_is_known_of_it(monkeypatch):
    threads = torch.get_num_threads()
    assert describe(torch.device("cpu"), "float32") == f"cpu, {threads} thread{'s' * (threads > 1)}, float32"
    monkeypatch.setattr(devices, "memory_taken", lambda device: (2_000_000_000, 80_000_000_000))
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda device: "Arc")
    said = describe(torch.device("xpu:1"), "bfloat16")
    assert said == "xpu:1 (Arc), bfloat16; a step takes 2.0 GB of its 80.0 GB"
    monkeypatch.setattr(devices, "memory_taken", lambda device: None)
    assert describe(torch.device("mps"), "float32") == "mps, float32"


def test_memory_that_torch_does_not_tell_is_left_out():
    assert devices.memory_taken(torch.device("hpu")) is None
