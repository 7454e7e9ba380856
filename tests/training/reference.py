"""A slow reference to compare with, and tiny models to compare on.

The reference writes every update densely into float64 weights, one after the other, with bases from the oracle's
definition of a coordinate. It shares the random numbers with the code under test (these have an oracle of their own in
test_randomness.py), and nothing of the arithmetic on them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from seedflood.config import RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.formats import Format
from seedflood.training.models import BaseModel, prepare_model
from seedflood.training.objectives.batches import Batch, LabelledBatch, TextBatch
from seedflood.training.objectives.classification import Classification
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.objectives.objective import Objective
from seedflood.training.rows import Splits, Table, rows_in_memory
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.subspace import SlotBasis, Subspace
from seedflood.training.shards import parse_shard
from seedflood.training.tasks import Task, make_encoder

FAMILIES = ("opt", "gpt2", "llama", "qwen2", "mistral", "gemma3")
WORDS = ("[pad]", "[unk]", "a", "b", "c", "d", "e", "good", "bad", "film", "was", "it", ".", "[bos]")
VOCABULARY = 48
LABEL_TOKENS = (7, 8)
LABELS, TEXTS = Classification(LABEL_TOKENS), LanguageModelling()


def tiny_model(family: str, *, tied: bool = True, seed: int = 0) -> nn.Module:
    """A random model of a few thousand parameters, in float32."""
    torch.manual_seed(seed)
    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "tie_word_embeddings": tied}
    ids = {"pad_token_id": 0, "bos_token_id": 13, "eos_token_id": 13}
    llama = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    if family == "opt":
        opt = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
        model = OPTForCausalLM(OPTConfig(**shape, **ids, **opt, word_embed_proj_dim=12, init_std=0.3))
    elif family == "gpt2":
        gpt2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
        model = GPT2LMHeadModel(GPT2Config(**shape, **ids, **gpt2))
    else:
        config, kind = {
            "llama": (LlamaConfig, LlamaForCausalLM),
            "qwen2": (Qwen2Config, Qwen2ForCausalLM),
            "mistral": (MistralConfig, MistralForCausalLM),
            "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
        }[family]
        if family == "gemma3":
            llama = {**llama, "head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 30.0}
        model = kind(config(**shape, **ids, **llama, num_key_value_heads=2, initializer_range=0.3))
    with torch.no_grad():
        for parameter in model.parameters():  # Biases of 0 and scales of 1 would hide mistakes.
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[unk]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[pad]", unk_token="[unk]")


def tiny_settings(**changes: object) -> RunSettings:
    return RunSettings.of(
        **{
            "rank": 4,
            "refresh_period": 10,
            "clients": 2,
            "learning_rate": 0.01,
            "seed": 7,
            **changes,
        }
    )


def tiny_base(family: str = "opt", *, tied: bool = True, seed: int = 0) -> BaseModel:
    return prepare_model(tiny_model(family, tied=tied, seed=seed), tiny_tokenizer())


def tiny_replica(family: str = "opt", *, tied: bool = True, **changes: object) -> Replica:
    return Replica(tiny_base(family, tied=tied), tiny_settings(**changes))


def tiny_batch(rows: int = 6, *, seed: int = 0, labelled: bool = True) -> Batch:
    """Rows of 3 to 9 tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths_B = torch.randint(3, 10, (rows,), generator=generator)
    tokens_BT = torch.randint(1, VOCABULARY, (rows, int(lengths_B.max())), generator=generator)
    if not labelled:
        return TextBatch(tokens_BT, lengths_B)
    label_B = torch.randint(0, 2, (rows,), generator=generator)
    return LabelledBatch(tokens_BT, lengths_B, label_B)


def objective_of(batch: Batch) -> Objective:
    """What is measured on a tiny batch."""
    return LABELS if isinstance(batch, LabelledBatch) else TEXTS


def make_task(
    settings: RunSettings,
    tokenizer: Any,
    form: Format,
    train: Iterable[Mapping[str, Any]],
    validation: Iterable[Mapping[str, Any]],
    *,
    shard: str | None = None,
) -> Task:
    """A task of rows in memory."""
    splits = Splits(Table(rows_in_memory(train, "training rows")), Table(rows_in_memory(validation, "validation rows")))
    return Task(make_encoder(settings.objective, tokenizer, form), splits, settings, parse_shard(shard))


def direction(subspace: Subspace, epoch: int, seed: int, index: int, basis: SlotBasis | None = None) -> Tensor:
    """z of one slot, dense, float64. basis: that of the slot, if the caller has it already."""
    i_KS, j_KS, sign_KS = subspace.coordinates(epoch, torch.tensor([seed]))
    basis = basis or subspace.basis(epoch, index)
    u_M = int(sign_KS[0, index]) * basis.u_MR[:, int(i_KS[0, index])].to(torch.float64)
    if basis.v_NR is None:
        return u_M
    return torch.outer(u_M, basis.v_NR[:, int(j_KS[0, index])].to(torch.float64))


def distinct_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters under the least of their names, in the order of the slots: by kind, embeddings of tokens last."""
    names: dict[int, str] = {}
    found = [
        (name, parameter)
        for name, parameter in sorted(model.named_parameters(remove_duplicate=False))
        if names.setdefault(id(parameter), name) == name
    ]
    words = model.get_input_embeddings().weight

    def place(one: tuple[str, nn.Parameter]) -> tuple[object, ...]:
        return one[1] is words, re.sub("[0-9]", "", one[0]), [*map(int, re.findall("[0-9]+", one[0]))]

    return sorted(found, key=place)


def root(step: int) -> float:
    """What is left of the learning rate at a step."""
    return (100 / (100 + step)) ** 0.5


def dense_weights(
    model: nn.Module, subspace: Subspace, updates: Iterable[Update], *, refresh_period: int, rate: float
) -> dict[str, Tensor]:
    """Weights after updates, float64: `theta - rate sum_updates root(step) alpha z`. rate: learning rate / clients."""
    updates = list(updates)
    weights: dict[str, Tensor] = {}
    for index, (name, parameter) in enumerate(distinct_parameters(model)):
        assert subspace.slots[index].name == name
        weight = parameter.detach().to(torch.float64).clone()
        epochs = {update.step // refresh_period for update in updates}
        bases = {epoch: subspace.basis(epoch, index) for epoch in epochs}
        for update in updates:
            epoch = update.step // refresh_period
            seed = probe_seed(subspace.run_seed, update.origin, update.step)
            z = direction(subspace, epoch, seed, index, bases[epoch])
            weight -= rate * root(update.step) * update.value[1] * 2.0**-20 * z
        weights[name] = weight
    return weights


@torch.no_grad()
def dense_losses(
    model: nn.Module,
    subspace: Subspace,
    epoch: int,
    seed: int,
    batch: Batch,
    epsilon: float,
    words: Sequence[int] = LABEL_TOKENS,
) -> tuple[float, float]:
    """Losses at +-epsilon z, written into a plain model's parameters in float64, with two forwards, row by row."""
    model = model.to(torch.float64)
    parameters = [parameter for _, parameter in distinct_parameters(model)]
    directions = [direction(subspace, epoch, seed, index) for index in range(len(parameters))]
    losses = []
    for step in (epsilon, -2 * epsilon):
        for parameter, z in zip(parameters, directions, strict=True):
            parameter.add_(z, alpha=step)
        losses.append(plain_loss(model, batch, words))
    for parameter, z in zip(parameters, directions, strict=True):
        parameter.add_(z, alpha=epsilon)
    return losses[0], losses[1]


@torch.no_grad()
def plain_loss(model: nn.Module, batch: Batch, words: Sequence[int] = LABEL_TOKENS) -> float:
    """Mean loss by whole-sequence logits of the unpadded rows, one by one. words: tokens of the labels."""
    losses = [loss for row in range(len(batch.lengths_B)) for loss in row_losses(model, batch, row, words)]
    return float(torch.stack(losses).mean())


def row_losses(model: nn.Module, batch: Batch, row: int, words: Sequence[int] = LABEL_TOKENS) -> list[Tensor]:
    """Of the label, or of each next token."""
    tokens_T = batch.tokens_BT[row, : int(batch.lengths_B[row])]
    logits_TV = model(input_ids=tokens_T.unsqueeze(0)).logits[0]
    logits_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    if isinstance(batch, TextBatch):
        return list(-logits_TV[:-1].log_softmax(-1).gather(1, tokens_T[1:, None])[:, 0])
    return [-logits_TV[-1, list(words)].log_softmax(-1)[batch.label_B[row]]]


def some_updates(count: int, *, steps: int = 10, seed: int = 0, scalar_max: int = 1 << 22) -> list[Update]:
    """Updates with equal losses; unique by (origin, step)."""
    generator = torch.Generator().manual_seed(seed)
    scalars = torch.randint(-scalar_max, scalar_max, (count,), generator=generator).tolist()
    return [Update(k // steps, k % steps, (1 << 11, scalars[k])) for k in range(count)]


def assert_weights_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    for name, weight in expected.items():
        torch.testing.assert_close(actual[name].to(torch.float64), weight.to(torch.float64), rtol=0, atol=tolerance)


def permuted(items: Sequence[Update], seed: int) -> list[Update]:
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed)).tolist()
    return [items[index] for index in order]


def rows_basis(basis: SlotBasis) -> Tensor:
    """U, float64; by rows, of ones and zeros."""
    return basis.u_MR.to(torch.float64) if basis.row_M is None else functional.one_hot(basis.row_M).to(torch.float64)


def dense_slopes(model: nn.Module, subspace: Subspace, epoch: int, batch: Batch) -> Tensor:
    """`U^T (dL/dW) V` of every slot, (F,) float64, by autograd through a plain model's weights, row by row."""
    model.requires_grad_(True)
    model.zero_grad()
    losses = [torch.stack(row_losses(model, batch, row)) for row in range(len(batch.lengths_B))]
    torch.cat(losses).mean().backward()
    slopes, parameters = [], dict(distinct_parameters(model))
    for index, slot in enumerate(subspace.slots):
        parameter = parameters[slot.name]
        basis = subspace.basis(epoch, index)
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        projected = rows_basis(basis).T @ gradient.to(torch.float64)
        if basis.v_NR is not None:
            projected = projected @ basis.v_NR.to(torch.float64)
        slopes.append(projected.flatten())
    model.requires_grad_(False)
    return torch.cat(slopes)
