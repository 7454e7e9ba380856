"""Whole steps on accelerators that are not there: nothing is asked of them that they lack, hosts wait for them only in
the places below, and end with the digest of a host that has none."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import torchgen
import yaml
from elsewhere import WITHOUT_DROPOUT, RefusedError, elsewhere
from packed import packed_task
from reference import (
    LABELS,
    TEXTS,
    VOCABULARY,
    make_task,
    some_updates,
    tiny_batch,
    tiny_model,
    tiny_settings,
    tiny_tokenizer,
)

from seedflood.protocol.seedflood.bundles import Update
from seedflood.training import devices
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import CompletionFormat
from seedflood.training.gasloc.exchange import Arrival, Difference
from seedflood.training.gasloc.outer import OuterSettings, Term
from seedflood.training.gasloc.trainer import Trainer
from seedflood.training.gasloc.worker import WorkerSettings
from seedflood.training.generation import Wish, write_on, write_samples
from seedflood.training.models import prepare_model
from seedflood.training.objectives.batches import MarkedBatch
from seedflood.training.objectives.example import Example, Rendered
from seedflood.training.objectives.reward import EarlyBatch, Reward, Writer
from seedflood.training.seedflood import replica as replica_module
from seedflood.training.seedflood.compression import compress
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.rewarded import measure_rewarded, write_texts

pytestmark = pytest.mark.usefixtures("drawn_once")

DEVICES = ("cuda:0", "cuda:1", "mps:0", "xpu:1")
TWO = ("cuda:1", "mps:0")
"""With float64, and without."""

WITHOUT_FLOAT64 = ("mps:0", "xpu:1")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Of two machines: a CPU takes a batch in other pieces than an accelerator."""

TRANSFORMERS = "causal.hidden_states"
"""Where transformers looks whether rows are packed, to make masks."""

MASK = "language_modelling.measure_tokens"
"""How many tokens are learned of marked rows has to be known before their logits are made."""


def base_of(device, family="llama", dtype="float32"):
    return prepare_model(tiny_model(family), tiny_tokenizer(), device=device, dtype=dtype)


def replica_of(device, family="llama", dtype="float32", *, quantize=None, reference=False, **changes):
    other = base_of(device, family, dtype).causal if reference else None
    settings = tiny_settings(refresh_period=2, **changes)
    return Replica(base_of(device, family, dtype), settings, quantize=quantize, reference=other)


def marked_batch():
    batch = tiny_batch(labelled=False)
    places_T = torch.arange(batch.tokens_BT.shape[1])
    return MarkedBatch(batch.tokens_BT, batch.lengths_B, (places_T > 1) & (places_T < batch.lengths_B.unsqueeze(1)))


@cache
def learned(device, family, dtype="float32", quantize=None):
    """Two epochs of gradients of two hosts: what was measured, digest, and weights."""
    replica = replica_of(device, family, dtype, quantize=quantize, estimate="gradient")
    slopes = []
    for step in range(3):
        updates = []
        for origin in range(2):
            found = replica.measure_gradient(step, LABELS, tiny_batch(seed=10 * step + origin))
            slopes.append(found)
            updates.append(Update(origin, step, compress(replica.compression, found).value))
        replica.apply(updates)
    replica.apply([Update(update.origin + 2, 0, update.value) for update in updates])  # late, for the epoch before
    replica.open_latest()
    return slopes, updates, replica.digest(), replica.weights() if quantize is None else {}


@pytest.mark.parametrize("device", TWO)
def test_gradients_are_measured_applied_and_folded(device):
    slopes, _, _, _ = learned("cpu", "llama")
    with elsewhere():
        found, _, _, weights = learned(device, "llama")
    for ours, theirs in zip(found, slopes, strict=True):
        torch.testing.assert_close(ours.slope_F, theirs.slope_F, rtol=0.05, atol=0.02)
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-2)
    assert all(type(one) is torch.Tensor for one in weights.values()), "they are in host memory"


@pytest.mark.parametrize("device", TWO)
@pytest.mark.parametrize("family", ["opt", "gpt2", "gemma3"])
def test_a_gradient_is_that_of_a_host_without_an_accelerator(device, family):
    expected = replica_of("cpu", family, estimate="gradient").measure_gradient(0, LABELS, tiny_batch())
    with elsewhere():
        found = replica_of(device, family, estimate="gradient").measure_gradient(0, LABELS, tiny_batch())
    torch.testing.assert_close(found.slope_F, expected.slope_F, **CLOSE)
    assert found.loss == pytest.approx(expected.loss, abs=1e-5)


@pytest.mark.parametrize("device", TWO)
@pytest.mark.parametrize("estimate", ["two-sided", "gradient"])
def test_hosts_with_the_same_updates_have_one_digest_and_close_weights(device, estimate):
    if estimate == "gradient":
        _, updates, _, _ = learned("cpu", "llama")
        updates = [Update(origin, step, value) for step in range(3) for origin, _, value in updates]
    else:
        updates = some_updates(8, steps=4)
    expected, weights = digest_of("cpu", estimate, updates)
    with elsewhere():
        digest, found = digest_of(device, estimate, updates)
    assert digest == expected
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight, **CLOSE)


def digest_of(device, estimate, updates):
    replica = replica_of(device, "opt" if estimate == "two-sided" else "llama", estimate=estimate)
    replica.apply(updates)
    replica.open_latest()
    return replica.digest(), replica.weights()


SUMS = {"estimate.measure": 1}
"""Of both variants, where these are on the device."""

STEPS = {
    "gradient": (
        lambda replica: replica.measure_gradient(0, LABELS, tiny_batch()),
        {"gradient.measure": 2, TRANSFORMERS: 1},
        {"gradient.measure": 1, "devices.to_float64": 1, TRANSFORMERS: 1},
    ),
    "gradient of marked texts, by rows": (
        lambda replica: replica.measure_gradient(0, TEXTS, marked_batch(), micro_batch=3, is_checkpointed=True),
        {"gradient.measure": 4, TRANSFORMERS: 2, MASK: 4, "batches.answer_positions": 2},
        {"gradient.measure": 2, "devices.to_float64": 2, TRANSFORMERS: 2, MASK: 4, "batches.answer_positions": 2},
    ),
    "two-sided": (
        lambda replica: replica.measure(0, 5, LABELS, tiny_batch()),
        {**SUMS, TRANSFORMERS: 1},
        {"devices.to_float64": 1, TRANSFORMERS: 1},
    ),
    "two-sided of texts": (
        lambda replica: replica.measure(0, 5, TEXTS, tiny_batch(labelled=False)),
        {**SUMS, TRANSFORMERS: 1, MASK: 2},
        {"devices.to_float64": 1, TRANSFORMERS: 1, MASK: 2},
    ),
    "apply": (lambda replica: replica.apply(some_updates(4, steps=2)), {}, {}),
    "a new epoch": (lambda replica: replica.open_epoch(replica.epoch + 1), {}, {}),
}


@pytest.mark.parametrize("device", DEVICES)
def test_within_a_step_the_host_waits_for_the_device_only_here(device):
    with elsewhere() as watch:
        replicas = {estimate: replica_of(device, estimate=estimate) for estimate in ("gradient", "two-sided")}
        for name, (step, waits, waits_without_float64) in STEPS.items():
            watch.waits.clear()
            step(replicas["two-sided" if name == "apply" else "gradient"])
            assert watch.waits == Counter(waits_without_float64 if device in WITHOUT_FLOAT64 else waits), name


@pytest.mark.parametrize("device", TWO)
def test_a_script_measures_both_sides(device):
    def slope_of(device):
        replica, batch = replica_of(device), tiny_batch(labelled=False)
        replica.open_epoch(1)

        def loss_of():
            tokens_BT = batch.tokens_BT.to(device)
            return float(replica.model(input_ids=tokens_BT, labels=tokens_BT, use_cache=False).loss)

        with torch.no_grad():
            return replica.measure_by(loss_of, 5).value

    loss, scalar = slope_of("cpu")
    with pytest.MonkeyPatch.context() as patch, elsewhere():
        # What a generator of a device does is no concern of ours (test_devices.py).
        patch.setattr(replica_module, "same_draws", lambda device, enabled: nullcontext())
        assert slope_of(device) == (loss, pytest.approx(scalar, rel=0.05))


@pytest.mark.parametrize("device", TWO)
def test_half_precision_and_few_bits_are_measured_and_folded(device):
    for how in ({"dtype": "bfloat16"}, {"quantize": "int8"}):
        slopes, _, _, _ = learned("cpu", "llama", **how)
        with elsewhere():
            found, _, _, _ = learned(device, "llama", **how)
        cosine = torch.nn.functional.cosine_similarity(found[0].slope_F, slopes[0].slope_F, dim=0)
        assert float(cosine) > 0.98, how


@pytest.mark.parametrize("device", TWO)
@pytest.mark.parametrize("batch", [tiny_batch(), marked_batch()], ids=["labels", "texts"])
def test_an_evaluation_is_that_of_a_host_without_an_accelerator(device, batch):
    class Rows:
        objective = TEXTS if isinstance(batch, MarkedBatch) else LABELS

        def validation(self, tokens_max):
            return iter([batch, batch])

    expected = evaluate(replica_of("cpu").causal, Rows()).figures
    with elsewhere():
        found = evaluate(replica_of(device).causal, Rows()).figures
    assert found == pytest.approx(expected, abs=1e-5)


EXAMPLES = [Example(tuple(range(2, 4 + k)), source=Rendered(f"prompt {k}", (), columns={})) for k in range(3)]


def objective_of(kl=0.0):
    writer = Writer(lambda tokens: " ".join(map(str, tokens)), (), 0, 4, 3, 1.0)
    return Reward(lambda prompt, text, columns: float(int(text.split()[0]) < VOCABULARY // 2), writer, kl)


@cache
def rewarded(device, kl, rounds):
    """Texts, the slopes of what they teach, and the figures of an evaluation."""
    objective = objective_of(kl)
    replica, prompts = replica_of(device, estimate="gradient", reference=kl > 0), objective.collate(EXAMPLES, 0)
    texts = write_texts(replica, objective, prompts, (1, 0), rounds)
    assert isinstance(texts.written.batch, EarlyBatch) == (rounds > 0)
    slopes = measure_rewarded(
        replica, objective, prompts, (1, 0), lambda batch: replica.measure_gradient(0, objective, batch), texts
    )
    figures = objective.figures(objective.measure(replica.causal, prompts.to(replica.base.device)))
    return texts.written, slopes, figures


@pytest.mark.parametrize("device", TWO)
@pytest.mark.parametrize(("kl", "rounds"), [(0.0, 0), (0.1, 1)])
def test_texts_are_written_rewarded_and_learned_from(device, kl, rounds):
    written, slopes, figures = rewarded("cpu", kl, rounds)
    with elsewhere():
        ours, found, ours_figures = rewarded(device, kl, rounds)
    assert torch.equal(ours.batch.tokens_BT, written.batch.tokens_BT), "the texts are the same"
    assert ours.entropy == pytest.approx(written.entropy, abs=1e-4)
    torch.testing.assert_close(found.slope_F, slopes.slope_F, **CLOSE)
    assert found.loss == slopes.loss
    assert ours_figures == pytest.approx(figures, abs=1e-4)


@pytest.mark.parametrize("device", ["cuda:1", "xpu:1"])  # on mps transformers waits by an event, which nothing here has
def test_texts_are_shown(device):
    rows = [{"prompt": "a film was", "completion": "good ."}]
    task = make_task(tiny_settings(task="completion"), tiny_tokenizer(), CompletionFormat(), rows, rows)

    def shown(device):
        base = replica_of(device).base
        return write_samples(base, task), write_on(base, "a film was", Wish(5), lambda _: None)

    expected = shown("cpu")
    with elsewhere():
        assert shown(device) == expected


@cache
def pre_trained(device, encoding):
    """A round of GASLoC of two hosts with equal devices: the parameters of the first, and what it reports."""
    trainers = []
    for origin in (1, 2):
        worker = WorkerSettings(learning_rate=1e-2, options={"eps": 1e-3}, micro_batch=4)
        outer = OuterSettings(encoding=encoding, is_bounded=True)
        trainers.append(Trainer(base_of(device, "opt"), packed_task(), origin, worker, outer))
    one = trainers[0]
    done, _ = (trainer.worker.take_steps(2) for trainer in trainers)
    offers = [trainer.outer.propose() for trainer in trainers]
    payload = torch.frombuffer(bytearray(offers[1].read(0, offers[1].size)), dtype=torch.uint8).numpy()
    arrival = Arrival(offers[1].numbers, encoding, payload, offers[1].digest, device=one.base.device)
    arrival.check()
    mixed = one.outer.mix([Term(0.5, Difference(offers[0], arrival))], width=1e6)
    assert one.is_sane
    arrays, facts = one.snapshot()
    one.restore(arrays, facts)
    return one.worker.flat.weights(), done.loss, mixed.distance, one.evaluate().figures


@pytest.mark.parametrize("device", TWO)
@pytest.mark.parametrize("encoding", ["float32", "bfloat16", "uint8"])
def test_a_round_of_pre_training_is_that_of_hosts_without_accelerators(device, encoding):
    weights, loss, distance, figures = pre_trained("cpu", encoding)
    with elsewhere():
        found, ours, apart, ours_figures = pre_trained(device, encoding)
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight, **CLOSE)
    assert (ours, apart) == (pytest.approx(loss, rel=1e-6), pytest.approx(distance, rel=1e-5))
    assert ours_figures == pytest.approx(figures, rel=1e-5)


# What these tests would find


def test_float64_on_a_device_without_it_would_be_found(monkeypatch):
    monkeypatch.setattr(devices, "EXACT", ("cpu", "cuda", "mps"))
    with elsewhere(), pytest.raises(RefusedError, match="float64"):
        replica_of("mps:0").measure(0, 5, LABELS, tiny_batch())


def test_a_tensor_on_another_device_would_be_found():
    with elsewhere():
        replica = replica_of("cuda:1")
        for other in ("cpu", "cuda:0", "mps:0"):
            replica.live.a_PF = replica._a_F.unsqueeze(0).to(other)
            with pytest.raises(RefusedError, match="of tensors on"):
                evaluate(replica.causal, type("", (), {"objective": LABELS, "validation": lambda *_: [tiny_batch()]})())


def test_a_further_copy_to_the_host_would_be_found(monkeypatch):
    usual = LABELS.measure

    def measure(model, batch, variants=1):
        score = usual(model, batch, variants)
        assert score.count_P.tolist()
        return replace(score, sums={name: one * float(one[0]) for name, one in score.sums.items()})

    with elsewhere() as watch:
        replica = replica_of("cuda:1")
        watch.waits.clear()
        monkeypatch.setattr(LABELS, "measure", measure)
        replica.measure(0, 5, LABELS, tiny_batch())
        assert watch.waits != Counter(STEPS["two-sided"][1])


def test_numbers_that_are_drawn_on_the_device_would_be_found():
    with elsewhere(), pytest.raises(RefusedError, match="draws"):
        torch.rand(3, device="mps:0")


# Kernels of Metal

TABLE = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
ANYWHERE = {"CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd"}


@cache
def kernels():
    """Of each operator of this PyTorch, for which devices it has one."""
    table = {
        one["func"].partition("(")[0]: one
        for one in yaml.load(TABLE.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    }

    def keys_of(one):
        found = {key.strip() for keys in one.get("dispatch", {}) for key in keys.split(",")}
        delegate = one.get("structured_delegate")
        return found | (keys_of(table[delegate]) if delegate else set()) or {"CompositeImplicitAutograd"}

    found = {name: keys_of(one) for name, one in table.items()}
    for name, one in table.items():
        for made in one.get("autogen", "").split(","):
            found.setdefault(made.strip(), found[name])
    return found


def test_metal_has_a_kernel_for_all_that_is_computed_so_nothing_falls_back_to_the_processor():
    with elsewhere() as watch:
        replicas = {estimate: replica_of("mps:0", estimate=estimate) for estimate in ("gradient", "two-sided")}
        for name, (step, *_) in STEPS.items():
            step(replicas["two-sided" if name == "apply" else "gradient"])
        for family in ("opt", "gpt2", "gemma3"):
            replica_of("mps:0", family, estimate="gradient").measure_gradient(0, LABELS, tiny_batch())
        for cached in (learned, rewarded, pre_trained):
            cached.cache_clear()
        learned("mps:0", "llama", quantize="int8")
        rewarded("mps:0", 0.1, 1)
        for encoding in ("float32", "bfloat16", "uint8"):
            pre_trained("mps:0", encoding)
    missing = {
        name
        for name in (str(one).removeprefix("aten.").removesuffix(".default") for one in watch.operators)
        if not {"MPS", *ANYWHERE} & kernels().get(name, set())
    }
    assert missing == set()
    assert not watch.operators & set(WITHOUT_DROPOUT)
    assert "MPS" in kernels()["_scaled_dot_product_attention_math_for_mps"]
    assert not {"MPS", *ANYWHERE} & kernels()["linalg_eig"], "the table tells what is missing"
