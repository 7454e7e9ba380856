"""Each baseline against its formula, computed another way."""

from dataclasses import replace

import pytest
import torch

from seedflood.cluster.topology import make_topology
from seedflood.training.loading import load_base
from study.methods import clients
from study.methods.central import AdamW, Lora, Mezo
from study.methods.choco import ChocoSgd, ChocoSgdLora
from study.methods.dsgd import Dsgd, DsgdLora
from study.methods.dzsgd import Dzsgd, DzsgdLora
from study.methods.method import Graph
from study.methods.mixing import mixing_matrix


def gradient_of(method, client):
    """By the backward pass of a fresh model, with the whole batch at once."""
    problem = method.problem
    base = load_base(problem.run, problem.node)
    base.model.requires_grad_(True)
    task = method.tasks[client]
    score = task.objective.measure(base.causal, task.batch(client + 1, 0))
    (score.minimised_sums.sum() / score.count_P[0]).backward()
    named = dict(base.model.named_parameters(remove_duplicate=False))
    distinct = {id(named[name]): named[name] for name in sorted(named)}
    return torch.cat([parameter.grad.flatten() for parameter in distinct.values()])


@pytest.mark.parametrize("topology", ["ring", "grid", "complete", "tree", "random-regular"])
@pytest.mark.parametrize("clients", [2, 9])
def test_mixing_keeps_the_mean_and_ends_in_consensus(topology, clients):
    weights_NN = mixing_matrix(Graph(clients, tuple(make_topology(topology, clients)))).double()
    assert torch.equal(weights_NN, weights_NN.T)
    assert torch.allclose(weights_NN.sum(dim=1), torch.ones(clients, dtype=torch.float64), atol=1e-6)
    assert weights_NN.min() >= -1e-6
    many_NN = torch.linalg.matrix_power(weights_NN, 400)
    assert torch.allclose(many_NN, torch.full_like(many_NN, 1 / clients), atol=1e-3)


def test_a_round_of_dsgd_is_a_gradient_step_and_the_mean_with_the_neighbours(problem):
    method = Dsgd(problem(rate=0.1))
    start_F = method.numbers_NF[0].clone()
    stepped = [start_F - 0.1 * gradient_of(method, client) for client in range(4)]
    cost = method.advance()
    for client in range(4):
        others = [stepped[(client + 1) % 4], stepped[(client - 1) % 4]]
        expected_F = (stepped[client] + others[0] + others[1]) / 3
        assert torch.allclose(method.numbers_NF[client], expected_F, atol=1e-5)
    assert cost.edge_bytes == 4 * len(start_F)
    assert (cost.steps, cost.hops, cost.forwards, cost.backwards) == (1, 1, 1, 1)


def test_consensus_error_is_the_distance_from_the_mean_relative_to_the_way(problem):
    method = Dsgd(problem(clients=2, rate=0.1))
    start_F = method.numbers_NF[0].clone()
    assert method.consensus_error() == 0
    method.numbers_NF[0] += 3.0
    method.numbers_NF[1] += 1.0
    assert method.consensus_error() == pytest.approx(1 / 2, rel=1e-4)
    method.average()
    mean_F = torch.nn.utils.parameters_to_vector(method._parameters)
    assert torch.allclose(mean_F, start_F + 2.0)


def test_choco_that_sends_everything_is_dsgd(problem):
    choco = ChocoSgd(problem(rate=0.1, step_size=1.0, fraction=1.0))
    dsgd = Dsgd(problem(rate=0.1))
    for _ in range(2):
        choco.advance()
        dsgd.advance()
    assert torch.allclose(choco.numbers_NF, dsgd.numbers_NF, atol=1e-5)


def test_choco_tells_later_what_it_left_out(problem):
    choco = ChocoSgd(problem(clients=2, rate=0.1, step_size=1e-9, fraction=0.25))
    numbers = choco.numbers_NF.shape[1]
    cost = choco.advance()
    assert cost.edge_bytes == 4 + 8 * round(numbers / 4)
    worker, values_F = choco.workers[0], choco.numbers_NF[0]
    left_out = float((values_F - worker.public_F).norm())
    assert left_out > 0
    for _ in range(4):  # nothing new is learned, so four rounds of a quarter tell the rest
        choco._exchange()
    assert float((values_F - worker.public_F).norm()) < 1e-4 * left_out


def test_lora_trains_and_sends_its_factors_alone(problem):
    method = DsgdLora(problem(rate=0.5, rank=2))
    model = method.average().module
    width, layers = model.config.hidden_size, model.config.num_hidden_layers
    before = {name: one.clone() for name, one in model.named_parameters() if "lora_" not in name}
    cost = method.advance()
    assert cost.edge_bytes == 4 * layers * 2 * (2 * 2 * width)  # queries and values, two factors each
    after = dict(method.average().module.named_parameters())
    assert all(torch.equal(after[name], one) for name, one in before.items())
    assert not torch.equal(method.numbers_NF, method._start_F.expand_as(method.numbers_NF))


def test_a_two_sided_estimate_is_the_slope_along_its_direction(problem, monkeypatch):
    monkeypatch.setattr(clients, "EPSILON", 1e-4)  # so small that the loss is straight between both sides
    method = Dzsgd(problem(clients=2, rate=0.1))
    values_F = method.numbers_NF[0]
    told_F = method.two_sided(values_F, [0], key=0)
    direction_F = told_F / told_F.norm() * len(told_F) ** 0.5  # normal numbers: this long, but for 0.2 %
    slope = float(told_F.norm()) / len(told_F) ** 0.5
    assert abs(slope) == pytest.approx(abs(float(direction_F @ method.gradient(values_F, 0))), rel=0.05)
    assert not torch.equal(told_F, method.two_sided(values_F, [0], key=1))


def test_dzsgd_and_mezo_agree_where_there_is_one_client(problem):
    alone = {"clients": 1, "rate": 0.01, "topology": "complete"}
    dense, central = Dzsgd(problem(**alone)), Mezo(problem(**alone))
    dense._take_step(0)
    central.advance()
    assert torch.equal(dense.numbers_NF, central.numbers_NF)


def test_the_central_yardstick_is_adamw_on_the_rows_of_all(problem):
    method = AdamW(problem(clients=2, rate=0.01))
    parameter = torch.nn.Parameter(method.numbers_NF[0].clone())
    parameter.grad = (gradient_of(method, 0) + gradient_of(method, 1)) / 2
    torch.optim.AdamW([parameter], lr=0.01, weight_decay=0.01).step()
    cost = method.advance()
    assert float((method.numbers_NF[0] - parameter.detach()).abs().median()) < 1e-5
    assert cost.edge_bytes == 0


def test_choco_that_sends_all_factors_is_dsgd_on_factors(problem):
    choco = ChocoSgdLora(problem(rate=0.5, step_size=1.0, fraction=1.0, rank=2))
    dsgd = DsgdLora(problem(rate=0.5, rank=2))
    for _ in range(2):
        choco.advance()
        dsgd.advance()
    assert torch.allclose(choco.numbers_NF, dsgd.numbers_NF, atol=1e-5)


def test_a_step_of_dzsgd_on_factors_goes_along_their_slope(problem, monkeypatch):
    monkeypatch.setattr(clients, "EPSILON", 1e-4)
    method = DzsgdLora(problem(clients=2, rate=0.1, rank=2))
    start_F = method.numbers_NF[0].clone()
    slope_F = method.gradient(start_F, 0)
    method._take_step(0)
    moved_F = method.numbers_NF[0] - start_F
    way = float(moved_F.norm())
    expected = 0.1 * abs(float(slope_F @ moved_F)) / way * len(moved_F)  # of a direction of normal numbers
    assert way == pytest.approx(expected, rel=0.15)
    assert float(slope_F @ moved_F) < 0
    assert torch.equal(method.numbers_NF[1], start_F)


def test_the_central_yardstick_of_lora_trains_factors_alone(problem):
    method = Lora(problem(rate=0.01, rank=2))
    start_F = method.numbers_NF[0].clone()
    method.advance()
    assert method.numbers_NF.shape == DsgdLora(problem(rate=0.01, rank=2)).numbers_NF[:1].shape
    assert not torch.equal(method.numbers_NF[0], start_F)


def test_a_model_from_scratch_is_the_same_for_all_methods_and_not_the_trained_one(problem):
    scratch = replace(problem(rate=0.1), initial="random")
    random_F = Dsgd(scratch).numbers_NF[0]
    assert not torch.equal(random_F, Dsgd(problem(rate=0.1)).numbers_NF[0])
    assert torch.equal(random_F, AdamW(scratch).numbers_NF[0])


@pytest.mark.parametrize(("options", "quarter"), [({}, 0.75), ({"schedule": "cosine"}, (1 + 0.5**0.5) / 2)])
def test_the_learning_rate_goes_down_in_a_line_or_as_a_cosine(problem, options, quarter):
    method = AdamW(problem(rate=2.0, **options))
    assert method.rate == 2.0
    method.step = method.problem.run.steps // 4
    assert method.rate == pytest.approx(2.0 * quarter)
