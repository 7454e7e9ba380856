"""Makes a small model that can do some arithmetic, and rows to go on with by reward.

    OMP_NUM_THREADS=1 python tools/pretrain_arithmetic.py addition FOLDER
    OMP_NUM_THREADS=1 python tools/pretrain_arithmetic.py countdown FOLDER
    OMP_NUM_THREADS=1 python tools/pretrain_arithmetic.py sorting FOLDER

A Llama of half a million parameters, one token per character, pre-trained on `12+34=46`, on `3,7,5>26=3*7+5`, or on
`830271=012378`. It stops as soon as texts sampled for held-out prompts are right as often as wanted: reward teaches
nothing to a model that is never right, and little to one that always is. FOLDER/model is the model in Hugging Face
format, FOLDER/rows has train.jsonl and validation.jsonl. No validation row occurs in pre-training.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from seedflood.training.objectives.batches import pad
from seedflood.training.rewards.answers import exact
from seedflood.training.rewards.countdown import countdown
from seedflood.training.rewards.scorer import Scorer

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
CHARACTERS = "0123456789+-*/()=,>"
POSITIONS = 32
SEED = 1
BATCH_SIZE = 16
"""Few, so that a model comes out that bears noise, as the gradients of rewards are: of the same model and rate, stopped
at a third right, 100 steps of AdamW by reward gained 12 points after batches of 128, and 27 after those of 16
(benchmarks/notes)."""
LEARNING_RATE = 1e-3
WARM_UP_STEPS = 100
STEPS_MAX = 20_000
STEPS_BETWEEN_LOOKS = 20
VALIDATION_ROWS = 500

Row = Mapping[str, object]


class Kind(NamedTuple):
    """rows: all that there are, or many, in a random order. score: what is right. wanted: how often a sampled text is
    right where pre-training stops."""

    rows: list[Row]
    score: Scorer
    wanted: float


def addition() -> Kind:
    """All sums of two numbers of two digits."""
    rows: list[Row] = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10, 100) for b in range(10, 100)]
    random.Random(SEED).shuffle(rows)
    return Kind(rows, exact, 0.30)


def numbers() -> Kind:
    """Three numbers, each used once, and what is to come out; the answer is one of perhaps several."""
    dice = random.Random(SEED)
    rows: dict[str, Row] = {}
    while len(rows) < 20_000:
        three = [dice.randint(1, 20) for _ in range(3)]
        order = dice.sample(three, 3)
        answer = f"{order[0]}{dice.choice('+-*')}{order[1]}{dice.choice('+-*')}{order[2]}"
        target = eval(answer)
        prompt = f"{','.join(map(str, three))}>{target}="
        if 0 < target < 100:
            rows[prompt] = {"prompt": prompt, "answer": answer, "numbers": three, "target": target}
    return Kind(list(rows.values()), countdown, 0.33)


def sorting() -> Kind:
    """Six digits, to be put in order."""
    dice = random.Random(SEED)
    texts = dict.fromkeys("".join(dice.choices("0123456789", k=6)) for _ in range(20_000))
    return Kind([{"prompt": f"{text}=", "answer": "".join(sorted(text))} for text in texts], exact, 0.30)


KINDS = {"addition": addition, "countdown": numbers, "sorting": sorting}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; texts begin with the end token, as those of the embedded model do."""
    vocabulary = {word: index for index, word in enumerate([PAD, END, UNKNOWN, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, vocabulary[END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=POSITIONS,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def batches(rows: list[Row], tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """tokens_BT and, of the tokens to predict, whether they are of an answer; without end."""
    dice = random.Random(SEED)
    while True:
        chosen = dice.sample(rows, BATCH_SIZE)
        prompts = tokenizer([str(row["prompt"]) for row in chosen])["input_ids"]
        answers = tokenizer([str(row["answer"]) for row in chosen])["input_ids"]
        texts = [
            [*prompt, *answer[1:], tokenizer.eos_token_id] for prompt, answer in zip(prompts, answers, strict=True)
        ]
        tokens_BT, lengths_B = pad(texts, tokenizer.pad_token_id)
        begins_B = torch.tensor([len(prompt) for prompt in prompts])
        place_T = torch.arange(1, tokens_BT.shape[1])
        yield tokens_BT, (place_T >= begins_B[:, None]) & (place_T < lengths_B[:, None])


@torch.inference_mode()
def share_right(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rows: list[Row], score: Scorer) -> float:
    """How often a text that is sampled for a row is right."""
    model.eval()
    prompts = [str(row["prompt"]) for row in rows]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    written_BT = model.generate(**inputs, max_new_tokens=12, do_sample=True, top_k=0, top_p=1.0)
    texts = tokenizer.batch_decode(written_BT[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    model.train()
    return sum(score(*one) for one in zip(prompts, texts, rows, strict=True)) / len(rows)


def pretrain(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, kind: Kind) -> None:
    train, held_out = kind.rows[VALIDATION_ROWS:], kind.rows[:VALIDATION_ROWS]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    began, source = time.monotonic(), batches(train, tokenizer)
    for step in range(1, STEPS_MAX + 1):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1.0, step / WARM_UP_STEPS)
        tokens_BT, is_answer_BT = next(source)
        logits_BTV = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits_BTV[is_answer_BT], tokens_BT[:, 1:][is_answer_BT])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % STEPS_BETWEEN_LOOKS == 0:
            right = share_right(model, tokenizer, held_out, kind.score)
            seconds = time.monotonic() - began
            print(f"step {step} loss {loss.item():.4f} right {right:.3f} after {seconds:.0f} s", flush=True)
            if right >= kind.wanted:
                return


def write_rows(folder: Path, kind: Kind) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("validation", kind.rows[:VALIDATION_ROWS]), ("train", kind.rows[VALIDATION_ROWS:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a small model that can do some arithmetic, and rows.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path, help="where to write model and rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    kind = KINDS[arguments.kind]()
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    print(f"{model.num_parameters()} parameters, {len(kind.rows)} rows")
    write_rows(arguments.folder / "rows", kind)
    pretrain(model, tokenizer, kind)
    model.save_pretrained(arguments.folder / "model")
    tokenizer.save_pretrained(arguments.folder / "model")


if __name__ == "__main__":
    main()
