"""Two daemons learn dialogues by heart, by real templates; the answers come back, also in peft."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from seedflood.offline.exporting import export_adapter
from seedflood.offline.learned import load
from seedflood.training.generation import Wish, write_on
from seedflood.training.models import BaseModel
from tests.training.marked_texts import tokenizer_of

TEMPLATES = Path(__file__).parents[1] / "training" / "chat_templates"
FAMILIES = {
    "llama3": (LlamaConfig, LlamaForCausalLM, "<|eot_id|>", {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, "<|im_end|>", {"head_dim": 16}),
}
ANSWERS = ["red", "blue", "green", "black", "cat", "dog", "cow", "hen"]
QUESTIONS = [f"{8 * letter}?" for letter in "abcdefgh"]
RUN = {
    "steps": 200,
    "task": "chat",
    "estimate": "gradient",
    "rank": 48,
    "refresh_period": 50,
    "batch_size": 4,
    "train_examples": len(ANSWERS),
    "learning_rate": 0.006,
    "clients": 2,
}


def write_model(folder, family):
    """A small random model whose texts end where an answer does."""
    config, kind, end, more = FAMILIES[family]
    tokenizer = tokenizer_of((TEMPLATES / f"{family}.jinja").read_text())
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.convert_tokens_to_ids(end)}
    shape |= {"num_key_value_heads": 2, "vocab_size": len(tokenizer), "initializer_range": 0.1} | ids | more
    kind(config(max_position_embeddings=256, tie_word_embeddings=True, **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_rows(folder):
    folder.mkdir()
    for split in ("train", "validation"):
        with (folder / f"{split}.jsonl").open("w") as file:
            for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
                said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
                file.write(json.dumps({"messages": said}) + "\n")


def answers_of(base):
    tokens = [write_on(base, question, Wish(40, is_chat=True), lambda _: None) for question in QUESTIONS]
    texts = [base.tokenizer.decode(one, skip_special_tokens=True) for one in tokens]
    return [text.rpartition("</think>")[2].strip() for text in texts]


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:Model has `tie_word_embeddings=True`", "ignore:`is_gradient_checkpointing` is deprecated"
)
@pytest.mark.parametrize("family", ["qwen3", "llama3"])
async def test_dialogues_are_learned_by_heart_and_come_back_from_node_and_adapter(cluster, family, tmp_path):
    write_model(tmp_path / "model", family)
    write_rows(tmp_path / "rows")
    run = {**RUN, "model": str(tmp_path / "model")}
    node = {"data": str(tmp_path / "rows"), "evaluate_examples": len(ANSWERS), "evaluate_every": 0}
    first = await cluster.start("a", [], run, node)
    await cluster.start("b", ["a"], run, node)
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    assert max(result["loss_after"] for result in results) < 0.1
    await cluster.close()
    cluster.daemons.clear()
    assert answers_of(load(first.settings, has_state=True)[0]) == ANSWERS
    peft = pytest.importorskip("peft")
    export_adapter(first.settings, tmp_path / "adapter")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokenizer = tokenizer_of((TEMPLATES / f"{family}.jinja").read_text())
    adapted = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    cpu = torch.device("cpu")
    assert answers_of(BaseModel(adapted, tokenizer, bytes(32), cpu, cpu, torch.float32, None)) == ANSWERS
