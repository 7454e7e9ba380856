"""A tiny random model of every family in the table of docs/reference/models.md."""

import torch
from reference import VOCABULARY
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

SHAPE = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 13,
    "eos_token_id": 13,
    "initializer_range": 0.3,
}
PLAIN = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**PLAIN, "num_key_value_heads": 2}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4}
MIXED = {**GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 8}

FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("llama", GROUPED),
    "Mistral": ("mistral", {**GROUPED, "sliding_window": 4}),
    "Qwen2": ("qwen2", GROUPED),
    "Qwen3": ("qwen3", {**GROUPED, "head_dim": 8}),
    "Gemma": ("gemma", {**GROUPED, "head_dim": 8}),
    "Gemma 2": ("gemma2", {**GROUPED, "head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 2.0}),
    "Gemma 3": ("gemma3_text", {**GROUPED, "head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 5.0}),
    "Phi": ("phi", PLAIN),
    "Phi-3": ("phi3", GROUPED),
    "SmolLM3": ("smollm3", GROUPED),
    "OLMo": ("olmo", GROUPED),
    "OLMo 2": ("olmo2", GROUPED),
    "Granite": ("granite", {**GROUPED, "logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}),
    "Cohere": ("cohere", {**GROUPED, "logit_scale": 0.25}),
    "GLM": ("glm", {**GROUPED, "head_dim": 8}),
    "EXAONE 4": ("exaone4", {**GROUPED, "sliding_window": 4}),
    "Nemotron": ("nemotron", GROUPED),
    "StableLM": ("stablelm", GROUPED),
    "StarCoder2": ("starcoder2", {**GROUPED, "sliding_window": 4}),
    "Falcon": ("falcon", {**PLAIN, "alibi": False}),
    "GPT-NeoX": ("gpt_neox", PLAIN),
    "GPT-2": ("gpt2", GPT2),
    "GPT-J": ("gptj", {**GPT2, "rotary_dim": 2}),
    "GPT-BigCode": ("gpt_bigcode", GPT2),
    "OPT": ("opt", {**PLAIN, "ffn_dim": 24, "word_embed_proj_dim": 12, "init_std": 0.3}),
    "BLOOM": ("bloom", {"hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "MPT": ("mpt", {"d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 32}),
    "Mixtral": ("mixtral", {**MIXED, "num_local_experts": 4}),
    "Qwen2-MoE": ("qwen2_moe", {**MIXED, "num_experts": 4, "shared_expert_intermediate_size": 8}),
    "Qwen3-MoE": ("qwen3_moe", {**MIXED, "num_experts": 4, "head_dim": 8}),
    "OLMoE": ("olmoe", {**MIXED, "num_experts": 4}),
    "GraniteMoE": ("granitemoe", {**MIXED, "num_local_experts": 4}),
    "PhiMoE": ("phimoe", {**MIXED, "num_local_experts": 4}),
    "GPT-OSS": ("gpt_oss", {**MIXED, "num_local_experts": 4, "head_dim": 8, "sliding_window": 4}),
}
"""By name: the type in transformers, and what is small or unusual in its configuration."""

MIXTURES = ("Mixtral", "Qwen2-MoE", "Qwen3-MoE", "OLMoE", "GraniteMoE", "PhiMoE", "GPT-OSS")
"""Their experts and routers stay as they are."""


def family_model(name: str) -> nn.Module:
    """Random, of a few thousand parameters, in float32; biases of 0 and scales of 1 would hide mistakes."""
    kind, changes = FAMILIES[name]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**SHAPE, **changes}), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()
