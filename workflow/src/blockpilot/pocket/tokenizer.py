"""Byte-level BPE with a chat template, trained on the pocket corpus."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|end|>"
PAD = "<|pad|>"
MASK = "<|mask|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
SPECIAL = (PAD, END, MASK, USER, ASSISTANT)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, output: str | Path) -> None:
    """Train the tokenizer on `texts` and save it in the Hugging Face layout under `output`."""
    tokenizer = Tokenizer(models.BPE())
    # Single digits keep arithmetic learnable: a number is always spelled the same way.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() > vocab_size:
        raise ValueError(f"the corpus gave {tokenizer.get_vocab_size()} tokens, over {vocab_size}")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, mask_token=MASK
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(str(output))
