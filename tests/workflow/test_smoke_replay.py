"""The smoke run: what replay makes besides labels, checked against sweep and decoding."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from smoke_facts import DOMAINS, KEY, LEAST_EQUAL_SHARE, VARIANTS, as_lists

from blockpilot.acceptance import AcceptanceTable, walk
from blockpilot.bounds import all_choices, clairvoyant
from blockpilot.records import ACCEPTANCE, CONTROL, COST, GRID, LATENCY, SCHEMES, read_table
from blockpilot.rounds import limit_tokens

MAX_NEW_TOKENS = 32


@pytest.fixture(scope="module")
def control(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"sweep_control/{variant}.parquet", CONTROL)


@pytest.fixture(scope="module")
def tables(folder, variant, trajectories) -> dict[tuple, AcceptanceTable]:
    """Return the acceptance table of every test request."""
    rows = read_table(folder / f"acceptance/{variant}.parquet", ACCEPTANCE)
    found = {}
    for row in rows.merge(trajectories, on=KEY, validate="one_to_one").itertuples():
        limit = limit_tokens(len(row.output_ids), row.stop_reason, MAX_NEW_TOKENS)
        table = AcceptanceTable.from_row(row.block_sizes, row.accepted, limit)
        assert table.num_anchors == len(row.output_ids) - 1 or not len(row.block_sizes)
        found[row.prompt_id, row.seed] = table
    return found


def test_the_control_has_both_methods_of_every_pair(control, swept, variant) -> None:
    pairs = control.groupby([*KEY, "block_size"])["method"].agg(set)
    assert all(methods == {"live", "replay"} for methods in pairs)
    assert set(control["block_size"]) == set(swept)
    live = control[control["method"] == "live"]
    assert live["tpot_s"].gt(0).all()
    assert live["equals_ar"].mean() >= LEAST_EQUAL_SHARE
    both = live.merge(control[control["method"] == "replay"], on=[*KEY, "block_size"])
    lists = as_lists(both["num_committed_x"]), as_lists(both["num_committed_y"])
    equal = [mine == other for mine, other in zip(*lists, strict=True)]
    print(f"{variant}: rounds of {sum(equal)} of {len(equal)} pairs agree")
    assert np.mean(equal) >= LEAST_EQUAL_SHARE


def test_the_costs_are_of_both_methods(folder, variant, swept) -> None:
    cost = read_table(folder / f"sweep_control/{variant}_cost.parquet", COST)
    parts = cost.groupby("method")["part"].agg(set)
    assert parts["replay"] == {"trajectories", "context", "blocks"}
    assert parts["live"] == {f"b = {size}" for size in swept}
    assert (cost["total_s"] > 0).all()


def test_walking_the_acceptance_table_gives_the_sweep(tables, sweep, swept, pairs) -> None:
    test = set(map(tuple, pairs.loc[pairs["split"] == "test", KEY].to_numpy()))
    assert test <= set(tables)
    rows = sweep[[key in tables for key in zip(sweep["prompt_id"], sweep["seed"], strict=True)]]
    equal = [
        walk(tables[row.prompt_id, row.seed], row.block_size) == list(row.num_committed)
        for row in rows.itertuples()
    ]
    assert len(equal) == len(tables) * len(swept)
    assert np.mean(equal) >= LEAST_EQUAL_SHARE


def test_no_bound_takes_more_rounds_than_what_it_bounds(tables, swept) -> None:
    choices = all_choices(swept)
    for table in tables.values():
        fixed = [len(walk(table, size)) for size in swept]
        assert clairvoyant(table, choices).num_rounds <= min(fixed)


def test_the_grid_has_every_size_and_agrees_with_the_sweep(
    folder, variant, sweep, trained_block_size
) -> None:
    grid = read_table(folder / f"grid/{variant}.parquet", GRID)
    largest = 2 * trained_block_size
    sizes = {(b, b) for b in range(1, largest + 1)}
    sizes |= {(trained_block_size, b) for b in range(1, trained_block_size)}
    sizes |= {(largest, b) for b in range(1, largest)}
    assert set(zip(grid["draft_size"], grid["block_size"], strict=True)) == sizes
    assert grid.groupby(["draft_size", "block_size"]).size().nunique() == 1
    same = grid[grid["draft_size"] == grid["block_size"]]
    both = same.merge(sweep, on=[*KEY, "block_size"], suffixes=("", "_sweep"))
    lists = as_lists(both["num_committed"]), as_lists(both["num_committed_sweep"])
    equal = [mine == other for mine, other in zip(*lists, strict=True)]
    assert len(equal) > 0
    assert np.mean(equal) >= LEAST_EQUAL_SHARE
    ones = grid[grid["block_size"] == 1]
    assert all(set(row) == {1} for row in as_lists(ones["num_committed"]))


def test_schemes_share_prompts_and_sizes(folder, trained_block_size, prompts) -> None:
    rows = read_table(folder / "schemes/T1.parquet", SCHEMES)
    split = prompts.set_index("prompt_id")["split"]
    rows = rows[rows["prompt_id"].map(split) == "test"]
    keys = rows.groupby("scheme")[["prompt_id", "block_size"]].apply(
        lambda own: frozenset(map(tuple, own.to_numpy()))
    )
    assert set(keys.index) == {"match", "coupled", "rejection"}
    assert len(set(keys)) == 1
    assert set(rows["block_size"]) == set(range(2, 2 * trained_block_size + 1))
    methods = rows.groupby("scheme")["method"].agg(set)
    assert methods.to_dict() == {
        "match": {"replay"},
        "coupled": {"replay"},
        "rejection": {"live"},
    }


def test_latencies_are_marked_as_written_by_hand(folder) -> None:
    rows = read_table(folder / "latency/cpu.parquet", LATENCY)
    assert {"draft", "verify", "ar"} <= set(rows["component"])
    assert (rows["n"] == 0).all()


def test_the_tables_cover_groups_and_variants(folder, swept) -> None:
    names = ("findings", "finding_distribution", "draft_verify", "bounds", "replay_agreement")
    for name in names:
        table = pd.read_csv(folder / f"tables/{name}.csv")
        assert set(table["decode"]) == set(VARIANTS), name
        assert {"average", *DOMAINS} <= set(table["group"]), name
    bounds = pd.read_csv(folder / "tables/bounds.csv")
    policies = {"best_fixed", "oracle", "clairvoyant", "clairvoyant_verify"}
    assert set(bounds["policy"]) == policies
    assert set(bounds["objective"]) == {"rounds", "time"}
    schemes = pd.read_csv(folder / "tables/schemes.csv")
    assert set(schemes["split"]) == {"validation", "test"}
    temperatures = pd.read_csv(folder / "tables/draft_temperatures.csv")
    assert set(temperatures["draft_temperature"]) == {0.5, 1.0}
    cost = pd.read_csv(folder / "tables/replay_cost.csv")
    assert (cost.loc[cost["part"] == "total", "num_block_sizes"] == len(swept)).all()
