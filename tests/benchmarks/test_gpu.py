"""What `make gpu` measures on a GPU is measured here on a processor, with small shapes."""

import pytest
from transformers import Gemma3TextConfig, OPTConfig

from benchmarks.gpu import DTYPES, SHAPES, measure
from benchmarks.kernels import NARROW

SMALL = {
    "opt_125m": NARROW,
    "gemma_270m": Gemma3TextConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=50_000,
    ),
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
def test_a_step_is_measured_beside_lora_in_both_types():
    assert SMALL.keys() == SHAPES.keys()
    assert isinstance(SHAPES["opt_125m"], OPTConfig)
    for config in SMALL.values():
        metrics = measure(config, "cpu", 1)
        assert {name for name, metric in metrics.items() if metric.target == 1} == {
            *(f"{dtype}.to_lora" for dtype in DTYPES),
            "bfloat16_to_float32",
        }
        assert all(metric.median > 0 for metric in metrics.values())
