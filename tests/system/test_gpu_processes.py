"""Hosts with a GPU beside hosts without one: what they tell, what they end with, and what audits say of them."""

from typing import Any

import pytest
import torch
from processes import Host, Hosts
from safetensors.torch import load_file

from seedflood.errors import ExitCode

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.gpu,
]

GRADIENT = {"estimate": "gradient", "steps": 60, "refresh_period": 20, "batch_size": 8}
TWO_SIDED = {"estimate": "two-sided", "steps": 120, "refresh_period": 40, "batch_size": 8}


def set_node(host: Host, **settings: Any) -> None:
    path = host.folder / "peers.toml"
    lines = "".join(f'{key} = "{value}"\n' for key, value in settings.items())
    path.write_text(path.read_text().replace("[node]\n", f"[node]\n{lines}", 1))


def ended(hosts: list[Host]) -> list[dict[str, Any]]:
    assert [host.end() for host in hosts] == [ExitCode.OK] * len(hosts)
    return [host.result() for host in hosts]


@pytest.mark.parametrize("run", [GRADIENT, TWO_SIDED], ids=["gradient", "two-sided"])
@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_a_gpu_and_a_processor_end_with_one_model_and_audits_find_nothing(hosts: Hosts, run, dtype):
    node = {"evaluate_examples": 64, "evaluate_every": 0, "audit": 0.5}
    on_gpu, on_processor = made = hosts.make(2, [(0, 1)], run, node)
    set_node(on_gpu, device="cuda", dtype=dtype, export=on_gpu.folder / "model")
    set_node(on_processor, device="cpu", export=on_processor.folder / "model")
    for host in made:
        host.start()
    results = ended(made)
    assert results[0]["digest"] == results[1]["digest"]
    assert not any(host.has_said("audit finding") for host in made)
    weights, others = (load_file(host.folder / "model" / "model.safetensors") for host in made)
    for name, weight in weights.items():
        assert torch.dist(weight, others[name]) <= 1e-6 * torch.linalg.vector_norm(weight), name
    for result in results:
        assert result["loss_after"] < result["loss_before"]


def test_a_gpu_and_a_processor_pre_train_together(hosts: Hosts):
    run = {
        "mode": "gasloc",
        "task": "lm",
        "max_length": 32,
        "initial": "random",
        "steps": 200,
        "local_steps": 10,
    }
    made = hosts.make(2, [(0, 1)], run, {"data": "embedded", "evaluate_examples": 40})
    for host, device in zip(made, ("cuda", "cpu"), strict=True):
        set_node(host, device=device)
        host.start()
    results = ended(made)
    assert results[0]["digest"] == results[1]["digest"]
    for result in results:
        assert result["perplexity_after"] < result["perplexity_before"] / 5


def test_a_host_with_a_gpu_that_was_killed_goes_on_where_it_was(hosts: Hosts):
    made = hosts.make(2, [(0, 1)], GRADIENT | {"steps": 100})
    for host in made:
        set_node(host, device="cuda")
        host.start()
    made[0].wait_for("progress", step=30)
    made[0].kill()
    made[0].start()
    results = ended(made)
    assert results[0]["digest"] == results[1]["digest"]


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_a_quantised_model_on_a_gpu_learns_beside_one_in_float32(hosts: Hosts, kind: str):
    if kind == "nf4":
        pytest.importorskip("bitsandbytes")
    made = hosts.make(2, [(0, 1)], GRADIENT, {"evaluate_examples": 64, "evaluate_every": 0})
    set_node(made[0], device="cuda", dtype=kind)
    set_node(made[1], device="cpu")
    for host in made:
        host.start()
    results = ended(made)
    assert results[0]["digest"] == results[1]["digest"]
    assert all(result["loss_after"] < result["loss_before"] for result in results)
