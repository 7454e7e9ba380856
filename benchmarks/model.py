"""What the benchmarks measure on: OPT-125M's shapes with random weights, and batches as long as those of SST-2."""

from collections.abc import Sequence

import torch
from transformers import OPTConfig, OPTForCausalLM

from seedflood.config import RunSettings
from seedflood.training.models import DtypeName, prepare_model
from seedflood.training.objectives.batches import LabelledBatch, pad
from seedflood.training.objectives.classification import Classification
from seedflood.training.seedflood.replica import Replica

SST2_LENGTHS = (
    6, 6, 7, 7, 7, 7, 8, 8, 8, 9, 9, 10, 10, 11, 11, 12, 13, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 26, 28, 31, 35, 43,
)  # fmt: skip
"""Tokens of an SST-2 training sentence with its prompt under OPT's tokenizer: 32 quantiles, mean 15.4."""

ROWS = 16

OBJECTIVE = Classification((372, 6587))


def make_model() -> OPTForCausalLM:
    return randomly_initialized(OPTConfig())


def randomly_initialized(config: OPTConfig) -> OPTForCausalLM:
    torch.manual_seed(0)
    model = OPTForCausalLM(config)
    model.train(False)
    model.requires_grad_(False)
    return model


def make_replica(dtype: DtypeName = "float32") -> Replica:
    return Replica(prepare_model(make_model(), None, dtype=dtype), RunSettings(clients=16))


def make_batch(seed: int) -> LabelledBatch:
    """Sixteen rows whose lengths are drawn from SST2_LENGTHS."""
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, len(SST2_LENGTHS), (ROWS,), generator=generator).tolist()
    return _make_batch([SST2_LENGTHS[pick] for pick in picks], generator)


def make_wide_batch() -> LabelledBatch:
    """Sixteen rows of which one is as long as any."""
    return _make_batch(SST2_LENGTHS[1::2], torch.Generator().manual_seed(0))


def make_even_batch() -> LabelledBatch:
    """Sixteen rows of one length, which are one call on a CPU, too."""
    return _make_batch([ROWS] * ROWS, torch.Generator().manual_seed(0))


def _make_batch(lengths: Sequence[int], generator: torch.Generator) -> LabelledBatch:
    rows = [torch.randint(4, 50_000, (length,), generator=generator).tolist() for length in lengths]
    tokens_BT, lengths_B = pad(rows, 1)
    label_B = torch.randint(0, 2, (len(rows),), generator=generator)
    return LabelledBatch(tokens_BT, lengths_B, label_B)


def plain_inputs(batch: LabelledBatch) -> dict[str, torch.Tensor]:
    """The same rows as a user of transformers gives them: padded, with mask, labels on the answer's token alone."""
    rows, length = batch.tokens_BT.shape
    tokens_BT = torch.cat((batch.tokens_BT, torch.ones(rows, 1, dtype=torch.int64)), dim=1)
    labels_BT = torch.full((rows, length + 1), -100)
    answer_B = torch.tensor(OBJECTIVE.words)[batch.label_B]
    row_B = torch.arange(rows)
    tokens_BT[row_B, batch.lengths_B] = answer_B
    labels_BT[row_B, batch.lengths_B] = answer_B
    mask_BT = (torch.arange(length + 1) <= batch.lengths_B.unsqueeze(1)).to(torch.int64)
    return {"input_ids": tokens_BT, "attention_mask": mask_BT, "labels": labels_BT}
