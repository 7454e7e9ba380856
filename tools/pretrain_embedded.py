"""Makes the embedded model: a tiny OPT, pre-trained from scratch on the generated language of `seedflood.embedded`.

    OMP_NUM_THREADS=1 python tools/pretrain_embedded.py [--folder FOLDER]

2 layers, width 64, 4 heads, a tokenizer with one token per word of the language, tied embeddings. AdamW with warm-up
and cosine decay over batches of generated texts, every one seen once, none with a sentence of the task's rows. The
text asks for verdicts in four phrasings, none of which is the task's prompt, and has the label words where they tell
nothing: the result knows sentiment, but not this prompt. Weights are stored in float16.

One thread and one seed: on one machine the files come out the same. Other machines and versions of torch may round
otherwise, and then the digest of the model, hence of runs with it, differs: the files in the repository are the model,
this script is how they came about.

Shapes: B texts, T tokens, V vocabulary.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.nn import functional
from transformers import OPTConfig, OPTForCausalLM

from seedflood import embedded
from seedflood.config import RunSettings
from seedflood.embedded import grammar
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import PromptFormat
from seedflood.training.models import load_model
from seedflood.training.objectives.batches import pad
from seedflood.training.rows import Splits, Table, rows_in_memory
from seedflood.training.shards import Shard
from seedflood.training.tasks import Task, make_encoder

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SEED = 2
STEPS = 2400
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
WARM_UP_STEPS = 200
INITIAL_DEVIATION = 0.1
"""With the usual 0.02 a model this narrow stays at the frequencies of words for thousands of steps."""
LAST_WORD_WEIGHT = 20.0
"""Of a text's last word, often the verdict, against 1 of the others: most words of a review are matters of chance."""


def make_tokenizer() -> Tokenizer:
    """One token per word; texts begin with the end token, as OPT's do."""
    vocabulary = {word: index for index, word in enumerate([PAD, END, UNKNOWN, *grammar.words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, vocabulary[END])]
    )
    tokenizer.add_special_tokens([PAD, END, UNKNOWN])
    return tokenizer


def make_model(tokenizer: Tokenizer) -> OPTForCausalLM:
    end = tokenizer.token_to_id(END)
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=64,
            word_embed_proj_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=256,
            max_position_embeddings=64,
            init_std=INITIAL_DEVIATION,
            dropout=0.0,
            attention_dropout=0.0,
            pad_token_id=tokenizer.token_to_id(PAD),
            bos_token_id=end,
            eos_token_id=end,
        )
    )


def batches(tokenizer: Tokenizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """tokens_BT of generated texts and weight_BT of the words to predict (0 for padding), without end."""
    held_out = {str(row["sentence"]) for split in embedded.SPLITS for row in embedded.rows(split)}
    texts = grammar.texts(SEED, held_out)
    end = tokenizer.token_to_id(END)
    while True:
        rows = [[*encoding.ids, end] for encoding in tokenizer.encode_batch(list(islice(texts, BATCH_SIZE)))]
        tokens_BT, lengths_B = pad(rows, tokenizer.token_to_id(PAD))
        position_T = torch.arange(tokens_BT.shape[1])
        weight_BT = (position_T < lengths_B.unsqueeze(1)).to(torch.float32)
        weight_BT[position_T == lengths_B.unsqueeze(1) - 2] = LAST_WORD_WEIGHT
        yield tokens_BT, weight_BT[:, 1:]


def pretrain(model: OPTForCausalLM, tokenizer: Tokenizer, steps: int) -> None:
    model.train()
    decayed = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP_STEPS, 0.5 + 0.5 * math.cos(math.pi * step / steps))
    )
    began = time.monotonic()
    for step, (tokens_BT, weight_BT) in enumerate(islice(batches(tokenizer), steps), start=1):
        logits_BTV = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits
        loss_BT = functional.cross_entropy(logits_BTV.transpose(1, 2), tokens_BT[:, 1:], reduction="none")
        loss = (loss_BT * weight_BT).sum() / weight_BT.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 200 == 0:
            print(f"step {step} loss {loss.item():.4f} after {time.monotonic() - began:.0f} s", flush=True)
    model.eval()


def write(model: OPTForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.float16).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "model_max_length": model.config.max_position_embeddings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)


def report(folder: Path) -> None:
    """Zero-shot figures over the validation rows: the task's prompt, then those the model was trained with."""
    base = load_model(str(folder))
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{base.parameters_count} parameters, {size} bytes, digest {base.digest.hex()}")
    settings = RunSettings.of(task="embedded")
    rows = Splits(*(Table(rows_in_memory(embedded.rows(split), split)) for split in embedded.SPLITS))
    for template, words in [
        (embedded.TEMPLATE, embedded.LABEL_WORDS),
        *((verdict.template, verdict.words) for verdict in grammar.VERDICTS),
    ]:
        encoder = make_encoder(settings.objective, base.tokenizer, PromptFormat(template, words))
        task = Task(encoder, rows, settings, Shard())
        result = evaluate(base.causal, task)
        print(f"{template!r} {'/'.join(words)}: accuracy {result.figures['accuracy']:.3f} loss {result.loss:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the embedded model.")
    parser.add_argument("--folder", type=Path, default=embedded.MODEL_FOLDER, help="where to write it")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    pretrain(model, tokenizer, arguments.steps)
    write(model, tokenizer, arguments.folder)
    report(arguments.folder)


if __name__ == "__main__":
    main()
