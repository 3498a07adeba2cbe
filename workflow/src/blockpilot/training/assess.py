"""Measures a trained pocket pair on held-out prompts: text quality, tau, ties."""

from __future__ import annotations

import pandas as pd

from blockpilot.candidates import candidate_set
from blockpilot.labels import make_pairs
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.pocket.quality import text_quality
from blockpilot.prompts import hash_prompt, render
from blockpilot.sampling import Sampling
from blockpilot.sweep import Decoder, DecodeVariant, join_requests, sweep_live
from blockpilot.trajectories import decode_trajectories

RADIUS, BATCH_SIZE = 2, 32


def held_out_prompts(tokenizer, seed: int, conversations_per_domain: int) -> pd.DataFrame:
    """Return one row per turn of fresh conversations, with the reference answer."""
    rows = {}
    for domain in GENERATORS:
        for index in range(conversations_per_domain):
            messages: list[dict] = []
            for user, assistant in draw_conversation(domain, seed, index):
                messages.append({"role": "user", "content": user})
                _, ids = render(tokenizer, messages, {})
                rows[hash_prompt(ids)] = {
                    "dataset": "assess",
                    "split": "validation",
                    "domain": domain,
                    "input_ids": ids,
                    "reference": assistant,
                }
                messages.append({"role": "assistant", "content": assistant})
    return pd.DataFrame([{"prompt_id": name, **row} for name, row in rows.items()])


def measure_pair(pair, tokenizer, prompts: pd.DataFrame, max_new_tokens: int) -> dict:
    """Return the numbers that `pocket.cards.GOALS` asks for.

    Args:
        pair: A loaded `Pair`.
        tokenizer: The target's.
        prompts: Rows of `held_out_prompts`.
        max_new_tokens: Most tokens per response.
    """
    size = pair.draft.block_size
    window = candidate_set(size, RADIUS)
    greedy, decoder = _decode(pair, prompts, 0.0, max_new_tokens)
    rows = sweep_live(decoder, join_requests(greedy, prompts), window)
    sweeps = {b: pd.DataFrame(own) for b, own in zip(window, rows, strict=True)}
    sampled, decoder = _decode(pair, prompts, 1.0, max_new_tokens)
    [rows] = sweep_live(decoder, join_requests(sampled, prompts), [size])
    at_one = pd.DataFrame(rows)
    texts = greedy.merge(prompts, on="prompt_id")
    texts["response"] = [tokenizer.decode(i, skip_special_tokens=True) for i in texts["output_ids"]]
    pairs = make_pairs(greedy, list(sweeps.values()), prompts, window)
    return {
        "text": text_quality(texts.to_dict("records")),
        "tau_T0": float(sweeps[size]["tau"].mean()),
        "tau_T1": float(at_one["tau"].mean()),
        "tie_share": float(pairs["is_tie"].mean()),
        "tau_T0_by_block_size": {str(b): float(rows["tau"].mean()) for b, rows in sweeps.items()},
    }


def _decode(
    pair, prompts: pd.DataFrame, temperature: float, max_new_tokens: int
) -> tuple[pd.DataFrame, Decoder]:
    """Return the trajectories at one temperature and a decoder for it."""
    sampling = Sampling(temperature=temperature)
    rows = decode_trajectories(
        pair.target,
        prompts,
        seeds=[0],
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        stop_ids=pair.stop_ids,
        batch_size=BATCH_SIZE,
    )
    variant = DecodeVariant(sampling=sampling, max_new_tokens=max_new_tokens)
    return pd.DataFrame(rows), Decoder(pair.target, pair.draft, variant, pair.stop_ids)
