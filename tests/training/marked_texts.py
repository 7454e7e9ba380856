"""Texts with marks around what is learned, and a tokenizer of single bytes, which merges what it is told to."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seedflood.training.encoding import MARKS

SPECIAL = (
    "<s> </s> <|im_start|> <|im_end|> <|start_header_id|> <|end_header_id|> <|eot_id|> <start_of_turn> <end_of_turn>"
)
SPECIAL += " <|user|> <|assistant|> <|system|> <|end|> [INST] [/INST] [TOOL_CALLS] <|start|> <|message|> <|channel|>"
SPECIAL += " <|return|> <|call|> <|User|> <|Assistant|> <|calls|> <|sep|> <|outputs|> <|outputs_end|> [gMASK] <sop>"


def tokenizer_of(template, merges=()):
    """template: of its chats, or None. merges: pairs of characters that are one token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = [
        "".join(one for one, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(pair))
        for pair in merges
    ]
    vocabulary = {one: number for number, one in enumerate([*letters, *spelled])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(pair) for pair in spelled]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in SPECIAL.split()])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def marked_text(marked):
    """The text with MARKS around its spans."""
    text, spans = marked.text, marked.spans
    for start, end in reversed(spans):
        text = text[:start] + text[start:end].join(MARKS) + text[end:]
    return text
