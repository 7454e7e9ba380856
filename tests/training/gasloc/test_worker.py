import math

import pytest
import torch
from packed import packed_task, worker_of
from reference import FAMILIES, tiny_model
from torch.nn import functional

from seedflood.training.gasloc import worker as worker_module
from seedflood.training.gasloc.schedule import Schedule
from seedflood.training.gasloc.worker import Worker, WorkerSettings
from seedflood.training.models import distinct_parameters

EPSILON = 1e-3
"""The bias of a key has no gradient but rounding, which Adam would make as large as all others."""


def plain_training(module, task, origin, steps, settings):
    """A usual loop over the parameters, whole batches, logits of the model itself."""
    named = distinct_parameters(module.requires_grad_(True))
    groups = [
        {"params": [one for _, one in named if one.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [one for _, one in named if one.dim() <= 1], "weight_decay": 0.0},
    ]
    optimiser = getattr(torch.optim, settings.optimiser)(groups, lr=settings.learning_rate, **settings.options)
    losses = []
    for step in range(steps):
        tokens_BT = task.batch(origin, step).tokens_BT
        logits = module(input_ids=tokens_BT, use_cache=False).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens_BT[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([one for _, one in named], worker_module.GRADIENT_NORM_MAX)
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * settings.schedule.factor(step)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_local_steps_are_those_of_a_plain_loop(family, seed):
    task, schedule = packed_task(seed=seed), Schedule(2, 8)
    settings = WorkerSettings(learning_rate=1e-2, weight_decay=0.2, schedule=schedule, options={"eps": EPSILON})
    module = tiny_model(family, seed=seed)
    losses = plain_training(module, task, 4, 8, settings)
    worker = Worker(tiny_model(family, seed=seed), task, 4, settings)
    done = worker.take_steps(8)
    assert done.loss == pytest.approx(sum(losses) / 8, rel=1e-5)
    assert (done.steps, done.skipped, worker.step) == (8, 0, 8)
    assert done.tokens == 8 * task.tokens_per_batch
    weights = worker.flat.weights()
    for name, parameter in distinct_parameters(module):
        torch.testing.assert_close(weights[name], parameter.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_flat_tensors_and_single_parameters_are_trained_alike(name):
    options = {"momentum": 0.9} if name == "SGD" else {"eps": EPSILON}
    task, module = packed_task(), tiny_model("opt")
    settings = WorkerSettings(name, 1e-3, options=options)
    plain_training(module, task, 1, 4, settings)
    worker = Worker(tiny_model("opt"), task, 1, settings)
    worker.take_steps(4)
    weights = worker.flat.weights()
    for key, parameter in distinct_parameters(module):
        torch.testing.assert_close(weights[key], parameter.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("micro_batch", [1, 4, 6, 100])
def test_gradients_of_parts_add_up_to_that_of_the_batch(micro_batch):
    batch = packed_task().batch(1, 0)
    whole, parts = worker_of(), worker_of(micro_batch=micro_batch)
    assert float(parts.gradient(batch)) == pytest.approx(float(whole.gradient(batch)), rel=1e-6)
    torch.testing.assert_close(parts.flat.gradients_F, whole.flat.gradients_F, rtol=1e-4, atol=1e-6)


def test_checkpointed_layers_are_computed_again_to_the_same_gradient():
    batch = packed_task().batch(1, 0)
    plain, frugal = worker_of(), worker_of(is_checkpointed=True)
    calls = []
    layer = frugal.flat.module.model.decoder.layers[0]
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    fc1 = layer.fc1.register_forward_pre_hook(lambda *_: calls.append(2))
    plain.gradient(batch)
    frugal.gradient(batch)
    fc1.remove()
    assert calls.count(2) == 2
    assert torch.equal(frugal.flat.gradients_F, plain.flat.gradients_F)


def test_products_in_bfloat16_leave_weights_and_gradients_in_float32():
    batch = packed_task().batch(1, 0)
    exact, rough = worker_of(), worker_of(is_bfloat16=True)
    exact_loss, rough_loss = float(exact.gradient(batch)), float(rough.gradient(batch))
    assert rough.flat.values_F.dtype == rough.flat.gradients_F.dtype == torch.float32
    assert rough_loss != exact_loss
    assert rough_loss == pytest.approx(exact_loss, rel=0.05)
    cosine = functional.cosine_similarity(rough.flat.gradients_F, exact.flat.gradients_F, dim=0)
    assert cosine > 0.99
    assert rough.take_steps(20).loss < rough_loss


def test_a_gradient_that_is_not_finite_changes_nothing():
    worker = worker_of()
    worker.take_steps(1)
    before_F, state = worker.flat.values_F.clone(), worker.optimiser.state_dict()["state"][0]["exp_avg"].clone()
    hook = worker.flat.module.get_output_embeddings().register_forward_hook(lambda *arguments: arguments[2] * math.inf)
    done = worker.take_steps(1)
    hook.remove()
    assert (done.skipped, worker.step) == (1, 2)
    assert torch.equal(worker.flat.values_F, before_F)
    assert torch.equal(worker.optimiser.state_dict()["state"][0]["exp_avg"], state)
    assert worker.take_steps(1).skipped == 0


def test_the_whole_gradient_is_clipped(monkeypatch):
    """By SGD a step is the gradient: its length is the bound times the rate."""
    monkeypatch.setattr(worker_module, "GRADIENT_NORM_MAX", 0.01)
    one = worker_of(optimiser="SGD", learning_rate=1.0, weight_decay=0.0)
    before_F = one.flat.values_F.clone()
    one.take_steps(1)
    assert torch.linalg.vector_norm(one.flat.values_F - before_F) == pytest.approx(0.01, rel=1e-3)


def test_decay_is_of_matrices_alone(monkeypatch):
    monkeypatch.setattr(worker_module, "GRADIENT_NORM_MAX", 1e-20)
    one = worker_of(optimiser="SGD", learning_rate=1.0, weight_decay=0.25)
    before_F, cut = one.flat.values_F.clone(), one.flat.layout.decaying
    one.take_steps(1)
    torch.testing.assert_close(one.flat.values_F[:cut], 0.75 * before_F[:cut])
    assert torch.equal(one.flat.values_F[cut:], before_F[cut:])


def test_it_learns():
    worker = worker_of()
    first = worker.take_steps(5).loss
    worker.take_steps(60)
    assert worker.take_steps(5).loss < 0.8 * first
