"""Tables that compare ways of drafting: what is drafted for what is verified, and how.

All are long: one row per group and x. Groups and pairing are those of `groups`; intervals are
95 % bootstrap intervals over conversations, in columns NAME_low and NAME_high.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from blockpilot.errors import bad_input
from blockpilot.groups import (
    AVERAGE,
    check_same_requests,
    columns_of,
    count_tokens,
    locate_splits,
    prompt_weights,
    ratio_by_prompt,
    split_groups,
    with_tau,
)
from blockpilot.statistics import Resampled

MATCH, COUPLED, REJECTION = "match", "coupled", "rejection"


def draft_verify_table(
    grid: pd.DataFrame,
    prompts: pd.DataFrame,
    trained_block_size: int,
    splits: Sequence[str] = ("test",),
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return tau_mean by verified tokens, for drafts as long, of size B and of size 2B.

    Args:
        grid: GRID rows of (b, b) for b in 1..2B, (B, v) for v <= B and (2B, v) for v <= 2B.
        prompts: At least prompt_id, conversation_id, dataset, domain and split.
        trained_block_size: B.
        splits: Splits to keep.
        out_of_domain: Names of data sets that get groups of their own.
        resamples: Bootstrap resamples, drawn with `seed`.
        seed: Of the resamples.

    Returns:
        Rows of group and block_size (verified); n counts requests with a round. tau_same drafts
        what it verifies, tau_trained drafts B (NaN above B), tau_double drafts 2B; gain_trained
        and gain_double are their differences from tau_same.

    Raises:
        BlockPilotError: If sizes are missing or were not evaluated on the same requests.
    """
    rows = with_tau(count_tokens(locate_splits(grid, prompts, splits, out_of_domain)))
    rows["sizes"] = list(zip(rows["draft_size"].tolist(), rows["block_size"].tolist(), strict=True))
    missing = sorted(_grid_sizes(trained_block_size) - set(rows["sizes"]))
    if missing:
        allowed = f"all sizes up to {2 * trained_block_size}, with drafts of B and 2B behind them"
        raise bad_input("missing (draft, verified) sizes", missing[0], allowed, "Replay them.")
    check_same_requests(rows, "sizes")
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        means, counts = _tau_means(members, "sizes", resamples, seed)
        for size in range(1, 2 * trained_block_size + 1):
            row = {"group": group, "block_size": size, "n": counts[size, size]}
            table.append(row | _draft_gains(means, size, trained_block_size))
    return pd.DataFrame(table)


def schemes_table(
    schemes: pd.DataFrame,
    prompts: pd.DataFrame,
    draft_temperature: float | Mapping[str, float],
    splits: Sequence[str] = ("test",),
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return tau_mean and its gain over `match` per group, scheme and block size.

    Args:
        schemes: SCHEMES rows.
        prompts: As for `draft_verify_table`, as are the arguments below.
        draft_temperature: Of the other schemes, all alike or by name; `match`, which has none,
            is always kept.

    Raises:
        BlockPilotError: If a scheme has no rows at this temperature, `match` lacks a block size,
            or requests differ.
    """
    rows = with_tau(count_tokens(locate_splits(schemes, prompts, splits, out_of_domain)))
    rows = _at_temperature(rows, draft_temperature)
    labels = zip(rows["scheme"].tolist(), rows["block_size"].tolist(), strict=True)
    rows["scheme and block size"] = list(labels)
    lacking = sorted(set(rows["block_size"]) - set(rows.loc[rows["scheme"] == MATCH, "block_size"]))
    if lacking:
        remedy = "Replay match for it, or there is nothing to compare with."
        raise bad_input("block size without match", int(lacking[0]), "sizes of match", remedy)
    check_same_requests(rows, "scheme and block size")
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        means, counts = _tau_means(members, "scheme and block size", resamples, seed)
        for (scheme, size), own in sorted(means.items(), key=lambda item: _scheme_order(*item[0])):
            gain = None if scheme == MATCH else own - means[MATCH, size]
            row = {"group": group, "scheme": scheme, "block_size": size, "n": counts[scheme, size]}
            row |= columns_of("tau_mean", own) | columns_of("gain_over_match", gain)
            table.append(row)
    return pd.DataFrame(table)


def draft_temperature_table(
    schemes: pd.DataFrame,
    prompts: pd.DataFrame,
    block_size: int,
    splits: Sequence[str] = ("validation",),
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return tau_mean per group, scheme with noise of its own (not `match`) and temperature.

    Args:
        schemes: SCHEMES rows.
        prompts: As for `draft_verify_table`, as are the arguments below.
        block_size: The one size at which temperatures are compared.

    Returns:
        `is_best` marks, in every group, the temperature with the scheme's largest tau_mean in
        the group "average", the lowest on ties.

    Raises:
        BlockPilotError: If the size has no rows or requests differ.
    """
    rows = with_tau(count_tokens(locate_splits(schemes, prompts, splits, out_of_domain)))
    rows = rows[(rows["scheme"] != MATCH) & (rows["block_size"] == block_size)]
    if rows.empty:
        remedy = "Decode other schemes than match at it."
        raise bad_input("block size of the draft temperatures", block_size, "one with rows", remedy)
    labels = zip(rows["scheme"].tolist(), rows["draft_temperature"].tolist(), strict=True)
    rows = rows.assign(**{"scheme and temperature": list(labels)})
    check_same_requests(rows, "scheme and temperature")
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        means, counts = _tau_means(members, "scheme and temperature", resamples, seed)
        for (scheme, temperature), own in sorted(means.items()):
            row = {"group": group, "scheme": scheme, "draft_temperature": temperature}
            row |= {"block_size": block_size, "n": counts[scheme, temperature]}
            table.append(row | columns_of("tau_mean", own))
    return _mark_best(pd.DataFrame(table))


def _tau_means(
    rows: pd.DataFrame, by: str, resamples: int, seed: int
) -> tuple[dict[tuple, Resampled], dict[tuple, int]]:
    """Return tau_mean and the number of requests with a round, per value of column `by`."""
    prompts, weights = prompt_weights(rows, resamples, seed)
    means, counts = {}, {}
    for name, own in rows.groupby(by):
        means[name] = ratio_by_prompt(own, "tau", "has_tau", prompts, weights)
        counts[name] = int(own["has_tau"].sum())
    return means, counts


def _grid_sizes(trained: int) -> set[tuple[int, int]]:
    sizes = range(1, 2 * trained + 1)
    behind = {(draft, v) for draft in (trained, 2 * trained) for v in sizes if v <= draft}
    return behind | {(b, b) for b in sizes}


def _draft_gains(means: dict[tuple, Resampled], size: int, trained: int) -> dict[str, float]:
    same, double = means[size, size], means[2 * trained, size]
    behind = means[trained, size] if size <= trained else None
    return (
        columns_of("tau_same", same)
        | columns_of("tau_trained", behind)
        | columns_of("tau_double", double)
        | columns_of("gain_trained", None if behind is None else behind - same)
        | columns_of("gain_double", double - same)
    )


def _at_temperature(
    rows: pd.DataFrame, draft_temperature: float | Mapping[str, float]
) -> pd.DataFrame:
    by_name = draft_temperature
    if not isinstance(by_name, Mapping):
        by_name = dict.fromkeys(rows["scheme"], draft_temperature)
    found = rows["draft_temperature"].astype(float)
    is_asked = np.isclose(found, rows["scheme"].map(by_name).astype(float), rtol=0)
    kept = rows[is_asked | (rows["scheme"] == MATCH)]
    for scheme in sorted(set(rows["scheme"]) - set(kept["scheme"])):
        allowed = f"one of {sorted(set(found[rows['scheme'] == scheme].tolist()))}"
        remedy = "Pass it: a scheme must not vanish from a comparison."
        raise bad_input(f"draft temperature of {scheme}", by_name.get(scheme), allowed, remedy)
    return kept.copy()


def _scheme_order(scheme: str, block_size: int) -> tuple:
    known = (MATCH, COUPLED, REJECTION)
    return known.index(scheme) if scheme in known else len(known), scheme, block_size


def _mark_best(table: pd.DataFrame) -> pd.DataFrame:
    average = table[table["group"] == AVERAGE]
    if average.empty:
        raise bad_input("groups", sorted(set(table["group"])), AVERAGE, "Add in-domain prompts.")
    best = average.loc[average.groupby("scheme")["tau_mean"].idxmax()]
    best = best.set_index("scheme")["draft_temperature"]
    return table.assign(is_best=table["draft_temperature"] == table["scheme"].map(best))
