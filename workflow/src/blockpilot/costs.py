"""What the selector costs: beside prefill and decoding, and until its labels are earned back."""

# Shapes: n = prompts, r = resamples.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from blockpilot.groups import AVERAGE, columns, locate, prompt_weights, spent_s, split_groups
from blockpilot.knobs import Setting, setting_of
from blockpilot.statistics import mean

MS_PER_S = 1000
# Part and component of a measurement, and what the table calls them, in drawing order.
NAMES = {
    ("target", "prefill"): ("target", "prefill"),
    ("draft", "round"): ("draft", "one round, b = {size}"),
    ("draft", "fixed"): ("draft", "request, b = {size}"),
    ("target", "ar"): ("target", "request, ar"),
}
TIMES = ("median", "p10", "p90")
BASELINES = ("best_fixed", "ar")
SELECTOR = "blockpilot"
# Columns that people see, and their headings.
TABLE_COLUMNS = {
    "component": "component",
    "n": "n",
    "median_ms": "median (ms)",
    "p10_ms": "p10 (ms)",
    "p90_ms": "p90 (ms)",
    "num_parameters": "parameters",
    "parameters_mb": "parameters (MB)",
    "activations_mb": "activations (MB)",
}


def overhead_table(
    overhead: pd.DataFrame, settings: Sequence[Setting], base: Setting
) -> pd.DataFrame:
    """Return the table of overheads for people, in milliseconds and megabytes.

    Args:
        overhead: OVERHEAD rows.
        settings: The measured selectors, in drawing order.
        base: The default one, which comes first; the others are named by what they change.

    Returns:
        component (text, in drawing order), part, n, median_ms, p10_ms, p90_ms, num_parameters,
        parameters_mb, activations_mb.
    """
    rows = overhead[overhead["part"] == "selector"].itertuples()
    measured = {setting_of(row): row for row in rows}
    order = dict.fromkeys([base, *settings])
    chosen = [(_selector_name(own, base), "selector", measured[own]) for own in order]
    others = []
    for (part, component), (name, text) in NAMES.items():
        own = overhead[(overhead["part"] == part) & (overhead["component"] == component)]
        others += [(_name_request(text, row), name, row) for row in own.itertuples()]
    return pd.DataFrame([_row(*found) for found in [*chosen, *others]])


def _name_request(text: str, row) -> str:
    return text.format(size=int(row.block_size)) if "{" in text else text


def _selector_name(own: Setting, base: Setting) -> str:
    values = asdict(own).items()
    changed = [f"{knob} = {value}" for knob, value in values if value != getattr(base, knob)]
    return f"select, {', '.join(changed) or 'default'}"


def _row(component: str, part: str, row) -> dict:
    found = {"component": component, "part": part, "n": int(row.n)}
    found |= {f"{name}_ms": getattr(row, f"{name}_s") * MS_PER_S for name in TIMES}
    names = ("num_parameters", "parameters_mb", "activations_mb")
    return found | {name: getattr(row, name) for name in names}


def policy_cost_table(
    evaluation: pd.DataFrame,
    pairs: pd.DataFrame,
    seconds: Mapping[str, float],
    prompts: pd.DataFrame,
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return what the selector costs before it serves, and when that is earned back.

    Args:
        evaluation: EVALUATION rows; the timed test prompts of `blockpilot` and its baselines.
        pairs: PAIRS rows: what was labelled.
        seconds: label_s of all labels (trajectories, sweeps, merging) and train_s, in job seconds.
        prompts: At least prompt_id, conversation_id, dataset, domain and split.

    Returns:
        Per baseline: baseline, n_labelled (training and validation labels), label_s (their share
        of the labels' seconds), train_s, n_timed, saved_s per request with its interval (positive:
        the selector is faster), and speedup_pays_after_requests, empty unless the whole interval
        is positive: what may be nothing is never earned back.
    """
    learned = pairs["split"].isin(["train", "validation"])
    spent = {
        "n_labelled": int(learned.sum()),
        "label_s": seconds["label_s"] * float(learned.mean()),
        "train_s": seconds["train_s"],
    }
    rows = locate(_timed(evaluation), prompts, out_of_domain)
    rows = split_groups(rows, out_of_domain).get(AVERAGE, rows)
    everyone, weights = prompt_weights(rows, resamples, seed)
    per_prompt = rows.groupby(["policy", "prompt_id"])["spent_s"].mean()
    table = []
    for baseline in BASELINES:
        saved = per_prompt.loc[baseline] - per_prompt.loc[SELECTOR]
        estimate = mean(saved.reindex(everyone).to_numpy(), weights).estimate()
        row = {"baseline": baseline, **spent, "n_timed": len(everyone)}
        row |= columns("saved_s", estimate)
        total_s = spent["label_s"] + spent["train_s"]
        earns = estimate.low > 0
        row["speedup_pays_after_requests"] = total_s / estimate.value if earns else np.nan
        table.append(row)
    return pd.DataFrame(table)


def _timed(evaluation: pd.DataFrame) -> pd.DataFrame:
    rows = evaluation[(evaluation["split"] == "test") & evaluation["decode_s"].notna()]
    rows = rows[rows["policy"].isin([SELECTOR, *BASELINES])]
    return rows.assign(spent_s=spent_s(rows))
