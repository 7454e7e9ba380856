"""A small model that has learned a few short chats ends its answers by itself, and so does what is exported of it."""

import json

import pytest
import torch
from marked_texts import tokenizer_of
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from seedflood.config import NodeSettings, RunSettings
from seedflood.training.generation import Wish, write_on
from seedflood.training.models import load_model
from seedflood.training.seedflood.rehearsal import Rehearsal

CHATML = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = CHATML.replace(
    "{{ one.content }}",
    "{% if one.role == 'assistant' %}{% generation %}{{ one.content }}{% endgeneration %}"
    "{% else %}{{ one.content }}{% endif %}",
)
GLM = (
    "{% for one in messages %}<|{{ one.role }}|>\n{{ one.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
BY_EOS = "{% for one in messages %}{{ one.role }}: {{ one.content }}{{ eos_token }}\n{% endfor %}" + (
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TEMPLATES = {
    "chatml": (CHATML, "<|im_end|>"),
    "marks around the content": (MARKED, "<|im_end|>"),
    "glm": (GLM, "<|user|>"),
    "eos": (BY_EOS, "</s>"),
}
ANSWERS = {"hot?": "Yes.", "cold?": "No!"}


def write_base(folder, template):
    """A tokenizer that knows the ends of turns as plain tokens, and a random model."""
    tokenizer = tokenizer_of(template)
    tokenizer.save_pretrained(folder)
    plain = json.loads((folder / "tokenizer.json").read_text())
    for token in plain["added_tokens"]:
        token["special"] = token["content"] in ("<s>", "</s>")
    (folder / "tokenizer.json").write_text(json.dumps(plain))
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(**shape, **ids, vocab_size=len(tokenizer), max_position_embeddings=128)
    LlamaForCausalLM(config).save_pretrained(folder)


def write_rows(path):
    with path.open("w") as file:
        for number in range(64):
            turns = [one for pair in list(ANSWERS.items())[:: 1 - 2 * (number % 2)] for one in pair]
            turns = turns[: 2 + 2 * (number % 3 == 0)]
            roles = ("user", "assistant", "user", "assistant")
            messages = [{"role": role, "content": said} for role, said in zip(roles, turns, strict=False)]
            file.write(json.dumps({"messages": messages}) + "\n")


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_model_that_learned_chats_ends_its_answers(tmp_path, kind):
    template, end = TEMPLATES[kind]
    write_base(tmp_path / "base", template)
    write_rows(tmp_path / "train.jsonl")
    run = RunSettings.of(
        model=str(tmp_path / "base"), task="chat", estimate="gradient", rank=32, batch_size=8, steps=100
    )
    node = NodeSettings(data=f"{tmp_path}/train.jsonl#train,train", device="cpu", evaluate_examples=4)
    rehearsal = Rehearsal(run, [node])
    while rehearsal.step < run.steps:
        rehearsal.advance()
    trainer = rehearsal.trainers[0]
    trainer.replica.open_latest()
    end_token = trainer.replica.base.tokenizer.convert_tokens_to_ids(end)
    for question, answer in ANSWERS.items():
        pieces = []
        tokens = write_on(trainer.replica.base, question, Wish(24, is_chat=True), pieces.append)
        assert ("".join(pieces).strip(), tokens[-1]) == (answer, end_token)
    assert {sample.written.strip() for sample in trainer.samples()} <= set(ANSWERS.values())

    trainer.export(tmp_path / "export", "")
    ends = GenerationConfig.from_pretrained(tmp_path / "export").eos_token_id
    assert end_token in (ends if isinstance(ends, list) else [ends])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "export")
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hot?"}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    (written,) = model.generate(asked, max_new_tokens=24, do_sample=False)
    assert tokenizer.decode(written[asked.shape[1] :]).replace(end, "").strip() == "Yes."
    assert written[-1] == end_token

    pieces = []
    write_on(load_model(str(tmp_path / "export")), "cold?", Wish(24, is_chat=True), pieces.append)
    assert "".join(pieces).strip() == "No!"
