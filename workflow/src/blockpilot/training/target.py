"""Trains a small causal language model on conversations: the pocket target.

Shapes: n = rows of a batch, S = tokens of its longest row, V = vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from blockpilot.pocket.tokenizer import END
from blockpilot.training.examples import Example, collate, plan_batches
from blockpilot.training.loop import LoopSettings, LoopState, run_loop

Turn = tuple[str, str]


def encode_conversation(
    tokenizer: PreTrainedTokenizerBase, turns: list[Turn], domain: str
) -> Example:
    """Tokenize turns exactly as prompts will be rendered when the model is used."""
    ids: list[int] = []
    is_response: list[bool] = []
    messages: list[dict] = []
    for user, assistant in turns:
        messages.append({"role": "user", "content": user})
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer.encode(text, add_special_tokens=False)
        answer = tokenizer.encode(assistant + END, add_special_tokens=False)
        is_response += [False] * (len(prompt) - len(ids)) + [True] * len(answer)
        ids = prompt + answer
        messages.append({"role": "assistant", "content": assistant})
    return Example(ids, is_response, domain)


def language_model_loss(
    logits: Tensor,  # [n, S, V]
    ids: Tensor,  # [n, S]
    is_response: Tensor,  # [n, S] bool
    prompt_weight: float,
) -> Tensor:
    """Return the mean cross-entropy of the next token in nats; prompt tokens weigh less.

    Padding is neither response nor prompt: it follows the last response token and weighs 0.
    """
    losses = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    in_text = is_response.flip(1).cumsum(1).flip(1) > 0
    weights = torch.where(is_response, 1.0, prompt_weight * in_text)[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def train_target(
    train: list[Example],
    validation: list[Example],
    model_config: dict,
    settings: LoopSettings,
    batch_tokens: int,
    prompt_weight: float,
    seed: int,
    checkpoint: Path,
) -> tuple[Qwen3ForCausalLM, LoopState]:
    """Train a Qwen3 model from scratch; resumes from `checkpoint`.

    Raises:
        ValueError: If the examples do not fill the requested number of steps.
    """
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(Qwen3Config(**model_config))
    batches = plan_batches(train, batch_tokens, seed)
    if len(batches) < settings.steps:
        raise ValueError(
            f"the corpus holds {len(batches)} batches of {batch_tokens} tokens but "
            f"{settings.steps} steps were asked for; raise train.corpus.conversations_per_domain"
        )

    def compute_loss(step: int) -> Tensor:
        ids, is_response = collate([train[i] for i in batches[step]])
        logits = model(input_ids=ids, use_cache=False).logits
        return language_model_loss(logits, ids, is_response, prompt_weight)

    def evaluate() -> dict:
        return validation_losses(model, validation)

    return model, run_loop(model, compute_loss, settings, checkpoint, evaluate, "train target")


@torch.no_grad()
def validation_losses(model: Qwen3ForCausalLM, examples: list[Example]) -> dict[str, float]:
    """Return the mean response loss per domain, in nats per token."""
    losses = {}
    for domain in sorted({e.domain for e in examples}):
        ids, is_response = collate([e for e in examples if e.domain == domain])
        logits = model(input_ids=ids, use_cache=False).logits
        losses[f"loss_{domain}"] = float(language_model_loss(logits, ids, is_response, 0.0))
    return losses
