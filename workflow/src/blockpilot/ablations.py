"""The ablations of the selector: one knob at a time, every setting on the same held-out prompts.

A setting's rounds come from the labels (a replayed or decoded tau for every size), its time from
the timed `fixed:b` rows of the evaluation plus the selector's own measured time.
"""

# Shapes: n = prompts, r = resamples.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from blockpilot.errors import bad_input
from blockpilot.groups import (
    REQUEST,
    columns_of,
    locate,
    prompt_weights,
    ratio_by_prompt,
    spent_s,
    split_groups,
)
from blockpilot.knobs import KNOBS, Setting, distinct_settings, setting_of
from blockpilot.statistics import Resampled

# Columns that people see, and their headings.
TABLE_COLUMNS = {
    "decode": "decode",
    "group": "group",
    "ablation": "ablation",
    "value": "value",
    "is_default": "default",
    "n": "n",
    "tau_mean": "tau_mean",
    "tau_gain_over_best_fixed": "tau gain over best fixed",
    "tau_gain_over_default": "tau gain over default",
    "speedup": "speedup over ar",
    "train_accuracy": "accuracy, train",
    "test_accuracy": "accuracy, test",
    "select_ms": "select (ms)",
    "num_parameters": "parameters",
}


def ablation_table(
    runs: pd.DataFrame,
    listed: Sequence[tuple[str, Setting]],
    base: Setting,
    scores: pd.DataFrame,
    overhead: pd.DataFrame,
    prompts: pd.DataFrame,
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row per group, knob and value, with 95 % paired intervals over prompts.

    Args:
        runs: ABLATIONS rows: what every setting chose, for every training seed.
        listed: As from `list_settings`; the order of the rows.
        base: The default setting, to which gains are also given.
        scores: As from `score_sizes`.
        overhead: OVERHEAD rows with the measured time of every setting's choice.
        prompts: At least prompt_id, conversation_id, dataset, domain and split.
        out_of_domain: Names of data sets that have rows of their own.
        resamples: Bootstrap resamples, drawn with `seed`.

    Returns:
        decode-free columns: group, ablation, value, is_default, n, n_timed, num_training_seeds,
        tau_mean, tau_gain_over_best_fixed, tau_gain_over_default (each with its interval),
        tau_gain_seeds_low and _high (smallest and largest gain over best_fixed of a training
        seed), train_accuracy, test_accuracy, speedup (with interval), speedup_best_fixed,
        select_ms, num_parameters.

    Raises:
        BlockPilotError: If a setting was not trained, not measured, or chose an unscored size.
    """
    costs = _costs(overhead)
    rows = locate(_score(runs, scores, costs), prompts, out_of_domain)
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        test = members[members["split"] == "test"]
        if test.empty:
            continue
        everyone, weights = prompt_weights(test, resamples, seed)
        by_setting = {s: _select(members, s) for s in distinct_settings(listed)}
        default = _tau(_test(by_setting[base]), everyone, weights)
        for knob, setting in listed:
            row = {"group": group, "ablation": knob, "value": str(getattr(setting, knob))}
            row |= {"is_default": setting == base}
            row |= _summarise(by_setting[setting], default, everyone, weights)
            table.append(row | costs[setting])
    return pd.DataFrame(table)


def score_sizes(pairs: pd.DataFrame, evaluation: pd.DataFrame, best_fixed: int) -> pd.DataFrame:
    """Return what choosing a size gives, one row per request and swept size.

    Args:
        pairs: PAIRS rows.
        evaluation: EVALUATION rows; those of `ar`, `best_fixed` and `fixed:b` are read.
        best_fixed: The best fixed block size.

    Returns:
        prompt_id, seed, block_size, tau, tau_best_fixed, and for timed requests (else NaN)
        decode_s and num_tokens of that size, ar_s, ar_tokens, best_fixed_s, best_fixed_tokens.
    """
    rows = [
        (row.prompt_id, row.seed, int(size), float(tau), float(taus[best_fixed]))
        for row in pairs.itertuples()
        for taus in [dict(zip(row.block_sizes, row.tau_by_block_size, strict=True))]
        for size, tau in taus.items()
    ]
    names = [*REQUEST, "block_size", "tau", "tau_best_fixed"]
    timed = evaluation[evaluation["decode_s"].notna()]
    timed = timed.assign(spent_s=spent_s(timed))
    scores = pd.DataFrame(rows, columns=names)
    fixed = timed[timed["policy"].str.startswith("fixed:")]
    fixed = fixed[[*REQUEST, "block_size", "decode_s", "num_tokens"]]
    scores = scores.merge(
        fixed.astype({"block_size": int}), on=[*REQUEST, "block_size"], how="left"
    )
    for policy in ("ar", "best_fixed"):
        own = timed.loc[timed["policy"] == policy, [*REQUEST, "spent_s", "num_tokens"]]
        own = own.set_axis([*REQUEST, f"{policy}_s", f"{policy}_tokens"], axis=1)
        scores = scores.merge(own, on=REQUEST, how="left")
    return scores


def _costs(overhead: pd.DataFrame) -> dict[Setting, dict]:
    rows = overhead[overhead["part"] == "selector"]
    return {
        setting_of(row): {
            "select_ms": 1000 * float(row.median_s),
            "num_parameters": int(row.num_parameters),
        }
        for row in rows.itertuples()
    }


def _score(runs: pd.DataFrame, scores: pd.DataFrame, costs: Mapping[Setting, dict]) -> pd.DataFrame:
    """Return the runs with what their choices give; a choice's own time is paid by timed rows."""
    rows = runs.rename(columns={"predicted_block_size": "block_size"})
    rows = rows.astype({"block_size": int}).merge(scores, on=[*REQUEST, "block_size"], how="left")
    lost = rows[rows["tau"].isna()]
    if len(lost):
        where = f"block size chosen for prompt {lost['prompt_id'].iloc[0]!r}"
        remedy = "Add it to sweep.extra_block_sizes."
        raise bad_input(where, int(lost["block_size"].iloc[0]), "a swept size", remedy)
    select_s = {setting: cost["select_ms"] / 1000 for setting, cost in costs.items()}
    paid_s = [select_s.get(setting_of(row), np.nan) for row in rows[list(KNOBS)].itertuples()]
    if np.isnan(paid_s).any():
        row = rows[np.isnan(paid_s)].iloc[0]
        where = f"the time of {setting_of(row)}"
        raise bad_input(where, "missing", "a row of the overhead table", "Measure it again.")
    return rows.assign(
        timed_s=rows["decode_s"].astype(float) + paid_s,
        is_right=(rows["block_size"] == rows["best_block_size"]).astype(int),
        one=1,
    )


def _select(rows: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    own = rows
    for knob, value in asdict(setting).items():
        own = own[own[knob] == value]
    if own.empty:
        raise bad_input("setting", setting, "a trained setting", "Run train_ablations again.")
    return own


def _test(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["split"] == "test"]


def _tau(
    rows: pd.DataFrame, everyone: pd.Index, weights: np.ndarray, name: str = "tau"
) -> Resampled:
    return ratio_by_prompt(rows, name, "one", everyone, weights)


def _summarise(
    rows: pd.DataFrame, default: Resampled, everyone: pd.Index, weights: np.ndarray
) -> dict:
    """Return a setting's figures; averaged over training seeds inside each prompt."""
    test = _test(rows)
    tau, fixed = (_tau(test, everyone, weights, name) for name in ("tau", "tau_best_fixed"))
    timed = test[test["timed_s"].notna() & test["ar_s"].notna()]
    row: dict = {
        "n": len(test.drop_duplicates(REQUEST)),
        "n_timed": len(timed.drop_duplicates(REQUEST)),
        "num_training_seeds": rows["training_seed"].nunique(),
    }
    row |= columns_of("tau_mean", tau)
    row |= columns_of("tau_gain_over_best_fixed", tau - fixed)
    row |= columns_of("tau_gain_over_default", tau - default)
    gains = (test["tau"] - test["tau_best_fixed"]).groupby(test["training_seed"]).mean()
    row |= {"tau_gain_seeds_low": gains.min(), "tau_gain_seeds_high": gains.max()}
    for split in ("train", "test"):
        row[f"{split}_accuracy"] = rows.loc[rows["split"] == split, "is_right"].mean()
    row |= columns_of("speedup", _speedup(timed, "timed_s", "num_tokens", everyone, weights))
    best = _speedup(timed, "best_fixed_s", "best_fixed_tokens", everyone, weights)
    return row | {"speedup_best_fixed": np.nan if best is None else best.value}


def _speedup(
    timed: pd.DataFrame, seconds: str, tokens: str, everyone: pd.Index, weights: np.ndarray
) -> Resampled | None:
    """Return TPOT(ar) / TPOT of a pair of columns; None without timed rows."""
    if timed.empty:
        return None
    ar = ratio_by_prompt(timed, "ar_s", "ar_tokens", everyone, weights)
    return ar / ratio_by_prompt(timed, seconds, tokens, everyone, weights)
