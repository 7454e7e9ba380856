"""How many kernels a step dispatches, beside a plain model and LoRA: on a GPU a small model waits for Python, and this
is how much of it there is. Counting needs no GPU, and gives the same number every time.

Twelve layers of OPT, of little width: the number does not depend on it. The batch is one call. What launches nothing is
left out: views, and memory that is not filled.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import OPTConfig

from benchmarks.measure import Metric, make_metric
from benchmarks.model import OBJECTIVE, make_even_batch, plain_inputs, randomly_initialized
from seedflood.config import EstimateName, RunSettings
from seedflood.training.models import DtypeName, prepare_model
from seedflood.training.seedflood.replica import Replica

DTYPES: tuple[DtypeName, ...] = ("float32", "bfloat16")
NARROW = OPTConfig(hidden_size=32, ffn_dim=64, num_attention_heads=2, word_embed_proj_dim=32)
TARGETS = {"gradient": 1200, "two_sided": 700}
LORA_RANK = 16
LAUNCHES_NOTHING = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for dtype in DTYPES:
        counts = count_kernels(dtype)
        metrics |= {
            f"kernels.{dtype}.{name}": make_metric([float(count)], TARGETS.get(name)) for name, count in counts.items()
        }
    return metrics


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts, by the name of the operator, what is dispatched within."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, operator: OpOverload, types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            parts = operator.decompose(*args, **kwargs)
        if parts is not NotImplemented:  # in inference mode what is made of others comes whole
            return parts
        name = operator.overloadpacket.__name__
        if not operator.is_view and name not in LAUNCHES_NOTHING:
            self.counts[name] += 1
        return operator(*args, **kwargs)


def count_kernels(dtype: DtypeName) -> dict[str, int]:
    """Of one step, by the name of the subject."""
    return {
        "forward": count(_forward(dtype)).total(),
        "forward_backward": count(_forward_backward(dtype)).total(),
        "lora": count(_lora(dtype)).total(),
        **{name: ours.total() for name, ours in count_ours(dtype).items()},
    }


def count_ours(dtype: DtypeName) -> dict[str, Counter[str]]:
    """Of our steps, by the name of the operator."""
    batch = make_even_batch()
    slopes, losses = _replica(dtype, "gradient"), _replica(dtype, "two-sided")
    return {
        "gradient": count(lambda: slopes.measure_gradient(0, OBJECTIVE, batch)),
        "two_sided": count(lambda: losses.measure(0, 1, OBJECTIVE, batch)),
    }


def count(step: Callable[[], object]) -> Counter[str]:
    """Of a step that is not the first."""
    step()
    kernels = Kernels()
    with kernels:
        step()
    return kernels.counts


def _plain(dtype: DtypeName) -> Any:
    model: Any = randomly_initialized(NARROW)
    return model.to(getattr(torch, dtype))


def _replica(dtype: DtypeName, estimate: EstimateName) -> Replica:
    base = prepare_model(randomly_initialized(NARROW), None, device="cpu", dtype=dtype)
    return Replica(base, RunSettings.of(clients=16, estimate=estimate))


def _forward(dtype: DtypeName) -> Callable[[], object]:
    model, inputs = _plain(dtype), plain_inputs(make_even_batch())
    return torch.inference_mode()(lambda: model(**inputs, use_cache=False).loss)


def _forward_backward(dtype: DtypeName) -> Callable[[], object]:
    """Of all weights."""
    return _training(_plain(dtype).requires_grad_(True))


def _lora(dtype: DtypeName) -> Callable[[], object]:
    """On all linear layers, by PEFT."""
    import peft  # takes a second to import

    settings = peft.LoraConfig(
        r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return _training(peft.get_peft_model(_plain(dtype), settings))


def _training(model: Any) -> Callable[[], object]:
    inputs = plain_inputs(make_even_batch())

    def step() -> None:
        model.zero_grad()
        model(**inputs, use_cache=False).loss.backward()

    return step
