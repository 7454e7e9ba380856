"""A causal language model as objectives see it: hidden states first, then logits where they are wanted.

Rows are padded on the right and no attention mask is passed: attention is causal, so what follows the end of a row
cannot reach it, and the plain causal kernel is the fastest.

Shapes: B rows, T tokens, D width, V vocabulary, L some tokens of it.
"""

from typing import Any

import torch
from torch import Tensor


class CausalModel:
    """A transformers model with a linear head. An algorithm whose modules can do more inherits and says how.

    module: the model itself; its parameters, device and dtype are whatever they are.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.module.parameters()).device
        return device

    @property
    def vocabulary_size(self) -> int:
        """How many logits a position has."""
        return int(self.module.get_output_embeddings().weight.shape[0])

    def hidden_states(self, tokens_BT: Tensor) -> Tensor:
        """What the head reads, (B, T, D)."""
        backbone = getattr(self.module, self.module.base_model_prefix)
        hidden_BTD: Tensor = backbone(input_ids=tokens_BT, use_cache=False).last_hidden_state
        return hidden_BTD

    def logits(self, hidden: Tensor) -> Tensor:
        """Of all tokens of the vocabulary: (..., D) to (..., V), in the dtype of the model."""
        logits: Tensor = self.module.get_output_embeddings()(hidden)
        return logits

    def word_logits(self, hidden_BD: Tensor, word_L: Tensor) -> Tensor:
        """Of these tokens alone, (B, L)."""
        return self.logits(hidden_BD)[:, word_L]
