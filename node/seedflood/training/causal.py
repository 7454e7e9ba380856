"""A causal language model as objectives see it: hidden states first, then logits where they are needed.

Rows are padded on the right, and no attention mask is passed. Attention is causal, so what follows the end of a row
cannot reach it, and the plain causal kernel is the fastest.

Shapes: B rows, T tokens, D width, V vocabulary, L some tokens of it.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache


class CausalModel:
    """A transformers model with a linear head. An algorithm whose modules can do more derives its own class from this
    one.

    module: the model itself, with its own parameters, device and dtype.
    """

    is_stopped = False
    """Set by another thread when nobody wants what is computed any more."""

    def __init__(self, module: Any) -> None:
        self.module = module

    @property
    def device(self) -> torch.device:
        device: torch.device = self.module.get_input_embeddings().weight.device  # others may have no parameters left
        return device

    @property
    def vocabulary_size(self) -> int:
        """V: how many logits a position has."""
        return int(self.module.get_output_embeddings().weight.shape[0])

    def check_going(self) -> None:
        """Raises RuntimeError if the model is stopped."""
        if self.is_stopped:
            raise RuntimeError("the node is going")

    def hidden_states(self, tokens_BT: Tensor, cache: Cache | None = None) -> Tensor:
        """The input of the head, (B, T, D), of tokens_BT, int64. cache: of the tokens before them; these are added.
        Raises RuntimeError if the model is stopped."""
        self.check_going()
        backbone = getattr(self.module, self.module.base_model_prefix)
        past = {"use_cache": False} if cache is None else {"use_cache": True, "past_key_values": cache}
        hidden_BTD: Tensor = backbone(input_ids=tokens_BT, **past).last_hidden_state
        return hidden_BTD

    @property
    def ends(self) -> set[int]:
        """Tokens that end a text, as the folder of the model has them. Some files have what is no number of a token."""
        end = self.module.generation_config.eos_token_id
        ends = end if isinstance(end, list) else [end]
        return {end for end in ends if type(end) is int and end >= 0}

    def new_cache(self) -> Cache:
        """Keys and values of no tokens yet."""
        return DynamicCache(config=self.module.config)

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of the whole vocabulary: (..., D) to (..., V), in the dtype of the model."""
        logits: Tensor = self.module.get_output_embeddings()(hidden)
        return self._finished(logits)

    def word_logits(self, hidden_BD: Tensor, word_L: Tensor) -> Tensor:
        """The logits of some tokens alone, (B, L). word_L: the tokens, int64."""
        return self.logits(hidden_BD)[:, word_L]

    def _finished(self, logits: Tensor) -> Tensor:
        """Granite divides its logits, Cohere multiplies them, Gemma keeps them below a limit by a tangent."""
        config = self.module.config.get_text_config()
        scale = (getattr(config, "logit_scale", None) or 1.0) / getattr(config, "logits_scaling", 1.0)
        limit = getattr(config, "final_logit_softcapping", None)
        logits = logits if scale == 1.0 else logits * scale
        return logits if limit is None else limit * torch.tanh(logits / limit)
