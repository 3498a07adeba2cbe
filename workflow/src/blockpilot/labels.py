"""Labels: from swept acceptance to pairs (p(x), B*)."""

from __future__ import annotations

import pandas as pd

from blockpilot.candidates import best_block_size
from blockpilot.errors import BlockPilotError


def make_pairs(
    trajectories: pd.DataFrame,
    sweeps: list[pd.DataFrame],
    prompts: pd.DataFrame,
    candidates: list[int],
) -> pd.DataFrame:
    """Merge one sweep table per block size into a `pairs` frame.

    Args:
        trajectories: Rows of a `trajectories` artifact, one per prompt and seed.
        sweeps: `sweep` frames, one per block size, over the same prompts and seeds.
        prompts: Rows of the `prompts` artifacts (split and domain).
        candidates: The sizes that B* is chosen from.

    Returns:
        One row per prompt and seed, maybe none; requests without a round (a stop token right
        after prefill) have no label and are left out.

    Raises:
        BlockPilotError: If a prompt lacks a block size or a candidate was not swept.
    """
    taus = pd.concat(sweeps).pivot(index=["prompt_id", "seed"], columns="block_size", values="tau")
    swept = [int(size) for size in taus.columns]
    _check_swept(swept, candidates)
    _check_complete(pd.concat(sweeps), trajectories, swept)
    labels = pd.DataFrame([_label(row, swept, candidates) for row in taus.dropna().itertuples()])
    if labels.empty:
        return labels
    where = prompts[["prompt_id", "split", "domain"]].drop_duplicates("prompt_id")
    states = trajectories[["prompt_id", "seed", "prefill_logits", "prefill_hidden"]]
    return labels.merge(where, on="prompt_id").merge(states, on=["prompt_id", "seed"])


def relabel(pairs: pd.DataFrame, candidates: list[int]) -> pd.DataFrame:
    """Return the pairs with other candidates: another radius needs no new decoding.

    Raises:
        BlockPilotError: If a candidate was not swept.
    """
    _check_swept([int(b) for b in pairs["block_sizes"].iloc[0]], candidates)
    labels = [
        _choose(dict(zip(row.block_sizes, row.tau_by_block_size, strict=True)), candidates)
        for row in pairs[["block_sizes", "tau_by_block_size"]].itertuples()
    ]
    return pairs.assign(**pd.DataFrame(labels, index=pairs.index))


def check_labelled(num_pairs: int, num_requests: int) -> None:
    """Raise BlockPilotError if no request at all has a label."""
    if not num_pairs:
        raise BlockPilotError(
            f"none of {num_requests} requests has a round: every answer is a single token. "
            "Raise decode.max_new_tokens or check the target's stop tokens."
        )


def best_fixed_block_size(pairs: pd.DataFrame) -> int:
    """Return the candidate with the largest tau_mean over training pairs, smallest on ties."""
    train = pairs[pairs["split"] == "train"]
    if train.empty:
        raise BlockPilotError("no pair has split 'train': best_fixed is chosen on training prompts")
    table = pd.DataFrame(
        [dict(zip(r.block_sizes, r.tau_by_block_size, strict=True)) for r in train.itertuples()]
    )
    return int(table[list(train["candidates"].iloc[0])].mean().idxmax())


def _label(row, swept: list[int], candidates: list[int]) -> dict:
    (prompt_id, seed), *taus = row
    best_swept, _ = best_block_size(taus, swept)
    return {
        "prompt_id": prompt_id,
        "seed": seed,
        "block_sizes": swept,
        "tau_by_block_size": taus,
        "best_block_size_swept": best_swept,
        **_choose(dict(zip(swept, taus, strict=True)), candidates),
    }


def _choose(by_size: dict[int, float], candidates: list[int]) -> dict:
    best, is_tie = best_block_size([by_size[b] for b in candidates], candidates)
    return {
        "candidates": candidates,
        "best_block_size": best,
        "class_index": candidates.index(best),
        "is_tie": is_tie,
    }


def _check_swept(swept: list[int], candidates: list[int]) -> None:
    missing = sorted(set(candidates) - set(swept))
    if missing:
        raise BlockPilotError(
            f"candidates {missing} were not swept (swept: {swept}). "
            "Add them to sweep.extra_block_sizes or lower sweep.radius."
        )


def _check_complete(rows: pd.DataFrame, trajectories: pd.DataFrame, swept: list[int]) -> None:
    counts = rows.groupby(["prompt_id", "seed"]).size()
    expected = set(map(tuple, trajectories[["prompt_id", "seed"]].to_numpy()))
    incomplete = expected - set(counts[counts == len(swept)].index)
    if incomplete:
        raise BlockPilotError(
            f"{len(incomplete)} of {len(expected)} prompts were not swept at every block size, "
            f"e.g. {sorted(incomplete)[0]}. Delete the sweep files and run snakemake again."
        )
