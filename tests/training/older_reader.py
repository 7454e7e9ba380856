"""Runs in an environment with an older transformers and without seedflood: writes models, and says how it reads them.

python older_reader.py write FOLDER < {name: [type, configuration]}: a random model of each type that it knows.
python older_reader.py read FOLDER: how it reads each model in there, as JSON.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

TOKENS_BT = torch.arange(1, 25).unsqueeze(0)
WORDS = ("[pad]", "[unk]", "a", "b", "c", "d", "e", "good", "bad", "film", "was", "it", ".", "[bos]")
TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}[bos]{% endfor %}"
LENGTH_MAX = 131072
PLAIN_ATTENTION = {"attn_implementation": "eager"}
"""The other kinds leave out the caps of Gemma 2 in some versions."""


def write(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[unk]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {"pad_token": "[pad]", "unk_token": "[unk]", "bos_token": "[bos]", "eos_token": "[bos]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks, model_max_length=LENGTH_MAX)
    fast.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    fast.chat_template = TEMPLATE
    for name, (kind, changes) in json.load(sys.stdin).items():
        torch.manual_seed(0)
        try:
            config = CONFIG_MAPPING[kind](**changes)
        except (KeyError, ValueError):  # a family, or a kind of positions, that came later
            continue
        model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder / name, safe_serialization=True)
        fast.save_pretrained(folder / name)


@torch.inference_mode()
def read(folder: Path) -> None:
    said = {}
    for path in sorted(folder.iterdir()):
        kind = json.loads((path / "config.json").read_text())["model_type"]
        if kind not in CONFIG_MAPPING:
            continue
        options = PLAIN_ATTENTION if kind == "gemma2" else {}
        model, found = AutoModelForCausalLM.from_pretrained(
            path, torch_dtype="auto", output_loading_info=True, **options
        )
        tokenizer = AutoTokenizer.from_pretrained(path)
        said[path.name] = {
            "logits": model.eval()(TOKENS_BT, use_cache=False).logits.float().tolist(),
            "dtype": str(model.dtype),
            "missing": [name for name in found["missing_keys"] if not name.endswith("inv_freq")],
            "config": AutoConfig.from_pretrained(path).to_dict(),
            "eos": GenerationConfig.from_pretrained(path).eos_token_id,
            "class": type(tokenizer).__name__,
            "model_max_length": tokenizer.model_max_length,
            "tokens": tokenizer("a good film <|turn|> it was").input_ids,
            "special": tokenizer.all_special_tokens,
            "chat": chat_of(tokenizer),
        }
    json.dump(said, sys.stdout)


def chat_of(tokenizer):
    """Before 4.34 there were no templates."""
    messages = [{"role": "user", "content": "a"}]
    has_templates = hasattr(tokenizer, "apply_chat_template")
    return tokenizer.apply_chat_template(messages, tokenize=False) if has_templates else None


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]))
