"""Weights of a folder that its model does not take.

transformers leaves them out without a word, and computes something else than what was trained: a model without its
biases, or with quantised numbers that nothing scales. So a folder with such weights is refused, unless they are known
to be of no use to a language model.
"""

import logging
import re
from collections.abc import Collection
from pathlib import Path

from safetensors import safe_open

from seedflood.errors import ModelError

CONSTANTS = re.compile(
    r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$|(^|\.)(attn|attention)\.(masked_)?bias$|"
    r"(^|\.)(position_ids|causal_mask|_float_tensor|decoder\.version)$"
)
"""Buffers that older versions of transformers have saved, too: every model computes them."""

OTHER_PARTS = {
    re.compile(r"(^|\.)(vision_\w+|visual|audio_\w+|(multi_modal|mm)_projector|embed_(vision|audio))(\.|$)"): (
        "what sees and hears"
    ),
    re.compile(r"(^|\.)mtp(\.|$)"): "what predicts later tokens",
    re.compile(r"(^|\.)(v_head|value_head)\."): "a value head",
}
"""What else may lie beside a language model that is whole without it."""

SCALES = re.compile(r"_scale(_inv|_2)?$|\.scales$|absmax|SCB$|quant_|qweight|qzeros|zero_point|g_idx")
"""Of quantised weights, in the formats that are in use."""

WEIGHTS_FILES = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
"""That transformers reads; others may lie beside them."""

WHOLE_TYPES = ("F64", "F32", "F16", "BF16")
"""Of numbers that stand for themselves, as safetensors names them."""

_log = logging.getLogger(__name__)


def check_leftovers(names: Collection[str], location: str, kind: str) -> None:
    """Names what was left out and is known to be harmless. Raises ModelError for anything else. kind: the class of the
    model."""
    left = [name for name in sorted(names) if not CONSTANTS.search(name)]
    for pattern, what in OTHER_PARTS.items():
        others = [name for name in left if pattern.search(name)]
        if others:
            _log.warning("left out of %s: %s (%s, %d in all)", location, what, others[0], len(others))
        left = [name for name in left if name not in others]
    if not left:
        return
    which = f"{left[0]}, {len(left)} in all"
    if any(SCALES.search(name) for name in left):
        raise ModelError(
            f"The weights of {location} are quantised, and {kind} does not take their scales ({which}): name the model "
            "that they were made of."
        )
    raise ModelError(
        f"{location} holds weights that {kind} with this config.json does not take ({which}), so it would be another "
        "model without them: correct config.json, or name a folder whose weights belong to it."
    )


def check_stored(folder: Path) -> None:
    """Raises ModelError if weights are kept in so few bits that they must be scaled by something, and no configuration
    says by what."""
    for path in sorted(one for one in folder.iterdir() if WEIGHTS_FILES.fullmatch(one.name)):
        with safe_open(path, framework="pt") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # it is no dict
        for name, kind in types.items():
            if name.endswith(".weight") and kind not in WHOLE_TYPES:
                raise ModelError(
                    f"The weights of {folder} are quantised ({name} is of type {kind}), and its config.json does not "
                    "say how: name the model that they were made of."
                )
