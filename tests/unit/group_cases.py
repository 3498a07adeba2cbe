"""Made-up requests in groups, and their statistics computed the slow way."""

from __future__ import annotations

import numpy as np
import pandas as pd

from blockpilot.statistics import bootstrap_weights

NAN = float("nan")
RESAMPLES = 300


def make_prompts(count, dataset="sums", domain="arithmetic", split="test", turns=1):
    """Return prompts, `turns` of them per conversation."""
    return pd.DataFrame(
        {
            "prompt_id": [f"{dataset}-{i:02}" for i in range(count)],
            "conversation_id": [f"{dataset}-c{i // turns}" for i in range(count)],
            "dataset": dataset,
            "domain": domain,
            "split": split,
        }
    )


PROMPTS = make_prompts(3)


def rounds_of(tau, rounds=10):
    """Return that many rounds that commit `tau` tokens on average; tau times rounds is whole."""
    tokens = round(tau * rounds)
    return [tokens // rounds + (i < tokens % rounds) for i in range(rounds)]


def make_row(prompt_id, tau, seed=0, **columns):
    committed = [] if np.isnan(tau) else rounds_of(tau)
    row = {"prompt_id": prompt_id, "seed": seed, "num_committed": committed}
    return row | {"num_rounds": len(committed), "tau": tau} | columns


def grid_sizes(trained):
    double = range(1, 2 * trained + 1)
    pairs = {(b, b) for b in double} | {(2 * trained, v) for v in double}
    return sorted(pairs | {(trained, v) for v in range(1, trained + 1)})


def make_grid(taus, prompts=PROMPTS, seeds=(0,)):
    """Return GRID rows; `taus` maps (draft, verified) to a tau per request, prompt by prompt."""
    requests = [(p, s) for p in prompts["prompt_id"] for s in seeds]
    return pd.DataFrame(
        [
            make_row(prompt, tau, seed, draft_size=draft, block_size=verified)
            for (draft, verified), values in taus.items()
            for (prompt, seed), tau in zip(requests, values, strict=True)
        ]
    )


def random_taus(generator, count, trained):
    """Return taus of tenths; one request in eight has no round."""
    finished = generator.random(count) < 1 / 8
    return {
        sizes: np.where(finished, NAN, generator.integers(10, 60, count) / 10)
        for sizes in grid_sizes(trained)
    }


def mixed_prompts():
    parts = [
        make_prompts(9, turns=2),
        make_prompts(6, "loops", "code", turns=3),
        make_prompts(7, "poems", "verse"),
        make_prompts(5, "old", "code", split="train"),
    ]
    return pd.concat(parts, ignore_index=True)


def naive_groups(prompts, splits=("test",)):
    """Return {group: prompts} with the data set "poems" out of domain, written out."""
    rows = [row for row in prompts.to_dict("records") if row["split"] in splits]
    inside = [row for row in rows if row["dataset"] != "poems"]
    groups = {"average": inside}
    for domain in ("arithmetic", "code"):
        groups[domain] = [row for row in inside if row["domain"] == domain]
    return groups | {"poems": [row for row in rows if row["dataset"] == "poems"]}


def naive_ratios(members, seed, numerators, denominators):
    """Return the ratio of sums on the data and on every resample, prompt by prompt.

    Numerators and denominators: {prompt_id: numbers of its requests}.
    """
    members = sorted(members, key=lambda row: row["prompt_id"])
    weights = bootstrap_weights([row["conversation_id"] for row in members], RESAMPLES, seed)
    tops = np.array([sum(numerators[row["prompt_id"]]) for row in members], dtype=float)
    bottoms = np.array([sum(denominators[row["prompt_id"]]) for row in members], dtype=float)
    # A resample may have no such request at all; a single prompt has no interval.
    with np.errstate(invalid="ignore"):
        samples = (weights * tops).sum(axis=1) / (weights * bottoms).sum(axis=1)
    return tops.sum() / bottoms.sum(), samples if (bottoms > 0).sum() > 1 else samples * NAN


def naive_tau(members, seed, taus):
    known = {p: [t for t in own if not np.isnan(t)] for p, own in taus.items()}
    return naive_ratios(members, seed, known, {p: [1] * len(own) for p, own in known.items()})


def assert_interval(row, name, value, samples):
    ends = np.nanquantile(samples, [0.025, 0.975]) if np.isfinite(samples).any() else [NAN, NAN]
    expected = [value, *ends]
    found = row[[name, f"{name}_low", f"{name}_high"]].astype(float)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def by_prompt(values, prompts, num_seeds):
    return {p: values[i * num_seeds :][:num_seeds] for i, p in enumerate(prompts["prompt_id"])}
