"""Texts that a model writes after prompts, several after each, with a cache of keys and values.

**Noise.** A token is drawn by one uniform number: the first at which the sum of the probabilities so far exceeds it. So
a text is a function of model, prompt and its own numbers, whatever else is written with it; only where the number falls
within rounding of a border may two machines differ. Adding noise to every logit would need a number for each token of
the vocabulary.

**Prompts of unlike length** need no mask. All texts written together stand at one position: where a prompt goes on, its
next token takes the place of a drawn one. What all prompts are long is computed once per prompt. Texts that have ended
are dropped from the batch.

Shapes: B texts, T tokens, V vocabulary, N new tokens at most.
"""

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seedflood.training.causal import CausalModel
from seedflood.training.devices import exact_device, to_float64

CLOSE = 2.0**-9
"""By so much a probability near 1 is rounded in bfloat16."""

LOGIT_ELEMENTS_MAX = 1 << 24
"""Logits of texts that are written together: 128 MiB in float64."""


class Text(NamedTuple):
    """tokens: with the one that ended it, if it did not reach the limit. losses: of each token, minus the log of the
    probability with which it was drawn; 0 of the most likely ones. is_close: might one of the tokens be another in half
    precision?"""

    tokens: list[int]
    losses: list[float]
    is_close: bool = False


@torch.inference_mode()
def write(
    model: CausalModel,
    prompts: Sequence[Sequence[int]],
    noise_BN: Tensor | None,
    ends: Container[int],
    *,
    tokens_max: int,
    temperature: float = 1.0,
) -> list[Text]:
    """As many texts for each prompt, one prompt's after the other's; each ends with one of `ends`, or at tokens_max.

    noise_BN: float64, a row per text; None: one text each, of the most likely tokens. prompts: none is empty.
    """
    group = 1 if noise_BN is None else len(noise_BN) // len(prompts)
    texts = [Text([], [])] * (len(prompts) * group)
    for places in _together(prompts, tokens_max, max(1, LOGIT_ELEMENTS_MAX // (group * model.vocabulary_size))):
        rows = [place * group + k for place in places for k in range(group)]
        noise = None if noise_BN is None else noise_BN[rows].to(exact_device(model.device))
        written = _write([prompts[place] for place in places], group, model, noise, ends, tokens_max, temperature)
        for row, text in zip(rows, written, strict=True):
            texts[row] = text
    return texts


def _together(prompts: Sequence[Sequence[int]], slack: int, prompts_max: int) -> Iterator[list[int]]:
    """Which prompts are written on together: of similar length, for the shorter ones end while the others go on."""
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    while order:
        limit = len(prompts[order[0]]) + slack
        count = sum(len(prompts[place]) <= limit for place in order[:prompts_max])
        yield order[:count]
        order = order[count:]


def _write(
    prompts: Sequence[Sequence[int]],
    group: int,
    model: CausalModel,
    noise_BN: Tensor | None,
    ends: Container[int],
    tokens_max: int,
    temperature: float,
) -> list[Text]:
    position = min(map(len, prompts))
    texts = [list(prompt) for prompt in prompts for _ in range(group)]
    begins = [len(text) for text in texts]
    losses: list[list[float]] = [[] for _ in texts]
    close = [False] * len(texts)
    cache = model.new_cache()
    shared_BT = torch.tensor([prompt[:position] for prompt in prompts], device=model.device)
    hidden_BD = model.hidden_states(shared_BT, cache)[:, -1].repeat_interleave(group, dim=0)
    if group > 1:
        cache.batch_repeat_interleave(group)
    going = list(range(len(texts)))
    while True:
        index_B = torch.tensor([max(0, position - begins[row]) for row in going])
        noise_B = None if noise_BN is None else noise_BN[going, index_B]
        drawn_B, loss_B, is_close_B = _draw(model.logits(hidden_BD), noise_B, temperature)
        drawn = zip(going, drawn_B.tolist(), loss_B.tolist(), is_close_B.tolist(), strict=True)
        kept = []
        for place, (row, token, loss, is_close) in enumerate(drawn):
            text = texts[row]
            if len(text) == position:
                text.append(token)
                losses[row].append(loss)
                close[row] |= is_close
            is_over = len(text) > begins[row] and (text[-1] in ends or len(text) == begins[row] + tokens_max)
            if not is_over:
                kept.append(place)
        if not kept:
            parts = zip(texts, begins, losses, close, strict=True)
            return [Text(text[begin:], lost, is_close) for text, begin, lost, is_close in parts]
        if len(kept) < len(going):
            cache.batch_select_indices(torch.tensor(kept, device=model.device))
            going = [going[place] for place in kept]
        next_B1 = torch.tensor([[texts[row][position]] for row in going], device=model.device)
        hidden_BD = model.hidden_states(next_B1, cache)[:, -1]
        position += 1


def _draw(logits_BV: Tensor, noise_B: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """A token of each row, (B,) int64, its loss, (B,) float64, and whether a number closer than CLOSE gives another
    token, (B,) bool. noise_B: None: the most likely ones."""
    if noise_B is None:
        return logits_BV.argmax(dim=-1), (none_B := torch.zeros(len(logits_BV), dtype=torch.float64)), none_B.bool()
    share_BV = torch.softmax(to_float64(logits_BV) / temperature, dim=-1)
    sum_BV = share_BV.cumsum(dim=-1)
    wanted_B1 = (noise_B * sum_BV[:, -1]).unsqueeze(1)
    least_B1, drawn_B1, most_B1 = (
        torch.searchsorted(sum_BV, one, right=True).clamp_(max=sum_BV.shape[1] - 1)
        for one in (wanted_B1 - CLOSE, wanted_B1, wanted_B1 + CLOSE)
    )
    loss_B1 = -share_BV.gather(1, drawn_B1).log()
    return drawn_B1.squeeze(1), loss_B1.squeeze(1), (least_B1 != most_B1).squeeze(1)
