"""The smoke run: every artifact is there, consistent with the others, and made the same twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from blockpilot.records import (
    CONVERSATIONS,
    EVALUATION,
    HISTORY,
    PAIRS,
    PREDICTIONS,
    PROMPTS,
    SWEEP,
    TRAJECTORIES,
    Schema,
    read_table,
)

DATASETS = ("arithmetic", "code", "human_eval", "prose")
DOMAINS = ("arithmetic", "code", "prose")
VARIANTS = ("T0", "T1")
KEY = ["prompt_id", "seed"]
CSVS = ("main", "tau_by_block_size", "best_block_size", "prompts", "texts")
FIGURES = ("tau_by_block_size", "speedup")
# Columns of time and memory differ from run to run; nothing else may.
TIMES = re.compile(r"(_s|_ms|_mb)(_low|_high)?$|^speedup")
# Float32 batches round differently from single requests: a near-tie may flip a token.
LEAST_EQUAL_SHARE = 0.9


@pytest.fixture(scope="session")
def folder(smoke) -> Path:
    return smoke / "results" / "smoke"


@pytest.fixture(scope="session")
def trained_block_size(smoke) -> int:
    config = json.loads((smoke / "workflow/resources/pocket/draft/config.json").read_text())
    return config["block_size"]


@pytest.fixture(scope="session")
def candidates(trained_block_size) -> list[int]:
    return list(range(trained_block_size - 2, trained_block_size + 3))


@pytest.fixture(scope="session")
def swept(trained_block_size, candidates) -> list[int]:
    return sorted({*candidates, max(1, trained_block_size // 2), 2 * trained_block_size})


@pytest.fixture(scope="session")
def schemas(swept) -> dict[str, Schema]:
    """Return every Parquet file of the run and its schema."""
    files = {}
    for dataset in DATASETS:
        files[f"conversations/{dataset}.parquet"] = CONVERSATIONS
        files[f"prompts/{dataset}.parquet"] = PROMPTS
    for variant in VARIANTS:
        files[f"trajectories/{variant}.parquet"] = TRAJECTORIES
        files |= {f"sweep/{variant}/B{b}.parquet": SWEEP for b in swept}
        files[f"pairs/{variant}.parquet"] = PAIRS
        files[f"selector/{variant}/default/history.parquet"] = HISTORY
        files[f"selector/{variant}/default/predictions.parquet"] = PREDICTIONS
        files[f"evaluation/{variant}.parquet"] = EVALUATION
    return files


@pytest.fixture(scope="session")
def prompts(folder) -> pd.DataFrame:
    tables = [read_table(folder / f"prompts/{name}.parquet", PROMPTS) for name in DATASETS]
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="session", params=VARIANTS)
def variant(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def pairs(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"pairs/{variant}.parquet", PAIRS)


@pytest.fixture(scope="session")
def trajectories(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"trajectories/{variant}.parquet", TRAJECTORIES)


@pytest.fixture(scope="session")
def sweep(folder, variant, swept) -> pd.DataFrame:
    files = [folder / f"sweep/{variant}/B{b}.parquet" for b in swept]
    return pd.concat([read_table(path, SWEEP) for path in files], ignore_index=True)


@pytest.fixture(scope="session")
def evaluation(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"evaluation/{variant}.parquet", EVALUATION)


@pytest.fixture(scope="session")
def manifest(folder) -> dict:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def second(make_checkout, run_to_end) -> Path:
    """Return the results of a second checkout: one core, and T1 before T0."""
    first_of_all = "results/smoke/evaluation/T1.parquet"
    other = run_to_end(make_checkout("second"), "--prioritize", first_of_all, cores=1)
    return other / "results" / "smoke"


def result_files(folder: Path) -> set[str]:
    names = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {name.as_posix() for name in names if name.parts[0] not in ("logs", "benchmarks")}


def as_lists(values: pd.Series) -> list[list]:
    return [list(value) for value in values]


# Every file


def test_there_is_every_artifact_and_no_other_file(folder, schemas) -> None:
    expected = {*schemas, "manifest.json", "tables/main.md", "tables/headline.md"}
    expected |= {f"tables/{name}.csv" for name in CSVS}
    expected |= {f"figures/{name}.{suffix}" for name in FIGURES for suffix in ("svg", "png")}
    expected |= {
        f"selector/{variant}/default/{name}"
        for variant in VARIANTS
        for name in ("selector.safetensors", "config.json", "README.md")
    }
    found = {name for name in result_files(folder) if not name.endswith(".snakemake_timestamp")}
    assert found == expected


def test_every_table_reads_with_its_schema_and_has_its_units(folder, schemas) -> None:
    for name, schema in schemas.items():
        frame = read_table(folder / name, schema)
        assert len(frame), name
        assert not frame.duplicated(list(schema.key)).any(), name
        file = pq.ParquetFile(folder / name)
        units = json.loads(file.schema_arrow.metadata[b"blockpilot.units"])
        assert set(units) == {c for c in schema.names if re.search(r"(_s|_ms|_tokens|_mb)$", c)}
        assert file.metadata.row_group(0).column(0).compression == "ZSTD", name


def test_figures_are_whole(folder) -> None:
    for name in FIGURES:
        svg = (folder / f"figures/{name}.svg").read_text(encoding="utf-8")
        assert "<svg" in svg
        assert svg.rstrip().endswith("</svg>")
        png = (folder / f"figures/{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert png.rstrip(b"\0").endswith(b"IEND\xaeB`\x82")


def test_the_manifest_tells_what_made_the_run(smoke, manifest) -> None:
    assert set(manifest) == {"config", "git_revision", "machine", "rule_s", "seeds", "versions"}
    assert re.fullmatch(r"[0-9a-f]{40}", manifest["git_revision"])
    assert {"python", "torch", "transformers", "snakemake"} <= set(manifest["versions"])
    assert "not installed" not in manifest["versions"].values()
    assert manifest["machine"]["cores"] >= 1
    assert manifest["seeds"] == {variant: [0] for variant in VARIANTS}
    assert manifest["config"]["run"] == "smoke"
    assert manifest["config"]["selector"]["width"] == 64
    assert "train" not in manifest["config"]
    measured = {path.name.removesuffix(".tsv") for path in benchmarks(smoke)}
    assert set(manifest["rule_s"]) == measured - {"write_manifest"}
    assert all(seconds > 0 for seconds in manifest["rule_s"].values())


def benchmarks(checkout: Path) -> Iterator[Path]:
    return (checkout / "results/smoke/benchmarks").iterdir()


# Splits, rounds, labels


def test_no_prompt_and_no_conversation_is_in_two_splits(folder, prompts) -> None:
    for column in ("prompt_id", "conversation_id"):
        assert prompts.groupby(column)["split"].nunique().max() == 1, column
    assert set(prompts["split"]) == {"train", "validation", "test"}
    assert set(prompts.loc[prompts["dataset"] == "human_eval", "split"]) == {"test"}
    for dataset in DATASETS:
        source = read_table(folder / f"conversations/{dataset}.parquet", CONVERSATIONS)
        own = prompts[prompts["dataset"] == dataset]
        turns = dict(zip(source["conversation_id"], source["turns"].map(len), strict=True))
        assert own.groupby("conversation_id").size().to_dict() == turns


def test_every_prompt_has_a_trajectory(trajectories, prompts) -> None:
    assert sorted(trajectories["prompt_id"]) == sorted(prompts["prompt_id"])
    lengths = trajectories["output_ids"].map(len)
    assert lengths.between(1, 32).all()
    assert (lengths[trajectories["stop_reason"] == "length"] == 32).all()
    assert set(trajectories["stop_reason"]) <= {"stop", "length"}


def test_tau_is_committed_tokens_per_round(sweep) -> None:
    for row in sweep.itertuples():
        assert row.num_rounds == len(row.num_committed)
        assert all(1 <= count <= row.block_size for count in row.num_committed)
        if row.num_rounds:
            assert row.tau == sum(map(int, row.num_committed)) / row.num_rounds
            assert row.tpot_s > 0
        else:
            assert np.isnan(row.tau)


def test_text_equals_the_trajectory(sweep, trajectories, swept, variant, record_property) -> None:
    assert len(sweep) == len(swept) * len(trajectories)
    rows = sweep.merge(trajectories[[*KEY, "output_ids"]], on=KEY, validate="many_to_one")
    share = rows["equals_ar"].mean()
    record_property(f"equals_ar_{variant}", share)
    print(f"{variant}: {rows['equals_ar'].sum()} of {len(rows)} texts equal the trajectory")
    assert share >= LEAST_EQUAL_SHARE
    for row in rows[rows["equals_ar"]].itertuples():
        assert sum(map(int, row.num_committed)) == len(row.output_ids) - 1


def test_labels_are_the_best_candidates(sweep, pairs, trajectories, candidates, swept) -> None:
    with_a_round = trajectories["output_ids"].map(len) > 1
    assert sorted(pairs["prompt_id"]) == sorted(trajectories.loc[with_a_round, "prompt_id"])
    tau = {
        (row.prompt_id, row.seed, row.block_size): np.sum(row.num_committed) / row.num_rounds
        for row in sweep[sweep["num_rounds"] > 0].itertuples()
    }
    for row in pairs.itertuples():
        own = {b: tau[row.prompt_id, row.seed, b] for b in swept}
        assert list(row.block_sizes) == swept
        assert list(row.candidates) == candidates
        np.testing.assert_array_equal(row.tau_by_block_size, np.float32(list(own.values())))
        highest = max(own[b] for b in candidates)
        winners = [b for b in candidates if own[b] == highest]
        assert row.best_block_size == winners[0]
        assert row.class_index == candidates.index(winners[0])
        assert row.is_tie == (len(winners) > 1)
        assert row.best_block_size_swept == min(swept, key=lambda b: (-own[b], b))


def test_pairs_carry_the_states_of_the_trajectories(pairs, trajectories, prompts) -> None:
    both = pairs.merge(trajectories, on=KEY, suffixes=("", "_ar"), validate="one_to_one")
    assert len(both) == len(pairs)
    for name in ("prefill_logits", "prefill_hidden"):
        np.testing.assert_array_equal(np.stack(both[name]), np.stack(both[f"{name}_ar"]))
    located = pairs.merge(prompts, on="prompt_id", suffixes=("", "_prompt"))
    for name in ("split", "domain"):
        assert (located[name] == located[f"{name}_prompt"]).all()


def test_the_selector_chooses_candidates(folder, variant, pairs, candidates) -> None:
    selector = folder / f"selector/{variant}/default"
    config = json.loads((selector / "config.json").read_text())
    assert config["block_sizes"] == candidates
    assert config["fallback_block_size"] in candidates
    predictions = read_table(selector / "predictions.parquet", PREDICTIONS)
    assert set(predictions["predicted_block_size"]) <= set(candidates)
    both = predictions.merge(pairs, on=KEY, suffixes=("", "_pairs"), validate="one_to_one")
    assert len(both) == len(pairs) == len(predictions)
    assert (both["best_block_size"] == both["best_block_size_pairs"]).all()


# Evaluation


def test_every_policy_has_every_test_prompt(evaluation, pairs, swept) -> None:
    test = set(map(tuple, pairs.loc[pairs["split"] == "test", KEY].to_numpy()))
    policies = {"ar", "ar_control", "best_fixed", "blockpilot", "oracle"}
    policies |= {f"fixed:{b}" for b in swept}
    assert set(evaluation["policy"]) == policies
    for policy, own in evaluation.groupby("policy"):
        assert set(map(tuple, own[KEY].to_numpy())) == test, policy
        assert len(own) == len(test), policy
    assert set(evaluation["split"]) == {"test"}


def test_exactly_the_timed_subset_has_times(evaluation, pairs, manifest) -> None:
    per_domain = manifest["config"]["evaluate"]["timed_prompts_per_domain"]
    test = pairs[pairs["split"] == "test"].sort_values("prompt_id")
    expected = set(test.groupby("domain").head(per_domain)["prompt_id"])
    for policy, own in evaluation.groupby("policy"):
        timed = own["decode_s"].notna()
        assert set(own.loc[timed, "prompt_id"]) == expected, policy
        for name in ("prefill_s", "select_s"):
            assert (own[name].notna() == timed).all(), (policy, name)
        assert (own.loc[timed, ["decode_s", "prefill_s"]] > 0).all(axis=None), policy


def test_rounds_add_up(evaluation) -> None:
    for row in evaluation.itertuples():
        assert row.num_rounds == len(row.num_committed) == len(row.block_sizes)
        assert row.num_tokens == sum(map(int, row.num_committed))
        assert all(1 <= b <= row.block_size for b in row.block_sizes)
    ar = evaluation[evaluation["policy"].isin(["ar", "ar_control"])]
    assert (ar["num_rounds"] == ar["num_tokens"]).all()


def test_policies_choose_what_they_should(evaluation, pairs, folder, variant) -> None:
    chosen = evaluation.set_index(["policy", *KEY]).sort_index()["block_size"]
    predictions = read_table(
        folder / f"selector/{variant}/default/predictions.parquet", PREDICTIONS
    ).set_index(KEY)["predicted_block_size"]
    best = pairs.set_index(KEY)["best_block_size"]
    for policy, expected in (("blockpilot", predictions), ("oracle", best)):
        own = chosen.loc[policy]
        assert (own == expected.loc[own.index]).all(), policy
    train = pairs[pairs["split"] == "train"]
    mean = dict(
        zip(train["block_sizes"].iloc[0], np.mean(as_lists(train["tau_by_block_size"]), 0),
            strict=True)
    )  # fmt: skip
    best_fixed = max(train["candidates"].iloc[0], key=lambda b: (mean[b], -b))
    assert set(chosen.loc["best_fixed"]) == {best_fixed}


def test_rounds_of_fixed_sizes_are_those_of_the_sweep(evaluation, sweep) -> None:
    """Timed rows were decoded anew, the others looked up: both must repeat the sweep."""
    fixed = evaluation[evaluation["policy"].str.startswith("fixed:")]
    both = fixed.merge(
        sweep, on=[*KEY, "block_size"], suffixes=("", "_sweep"), validate="one_to_one"
    )
    assert len(both) == len(fixed)
    assert as_lists(both["num_committed"]) == as_lists(both["num_committed_sweep"])
    assert (both["equals_ar"] == both["equals_ar_sweep"]).all()


# Tables


def test_the_main_table_has_all_policies_groups_and_variants(folder, prompts) -> None:
    main = pd.read_csv(folder / "tables/main.csv")
    assert set(main["decode"]) == set(VARIANTS)
    assert set(main["group"]) == {"average", *DOMAINS, "human_eval"}
    for variant, own in main.groupby("decode"):
        evaluation = read_table(folder / f"evaluation/{variant}.parquet", EVALUATION)
        policies = set(evaluation["policy"])
        assert all(set(rows["policy"]) == policies for _, rows in own.groupby("group"))
        located = evaluation.merge(prompts[["prompt_id", "dataset"]], on="prompt_id")
        inside = located[located["dataset"] != "human_eval"]
        for policy, rows in own.set_index("group").groupby("policy"):
            mine = inside[inside["policy"] == policy]
            n = rows["n"]
            assert n["average"] == n[list(DOMAINS)].sum() == len(mine)
            tau = (mine["num_tokens"] / mine["num_rounds"]).mean()
            assert rows.loc["average", "tau_mean"] == pytest.approx(tau, rel=1e-12)
            pooled = mine["num_tokens"].sum() / mine["num_rounds"].sum()
            assert rows.loc["average", "tau_pooled"] == pytest.approx(pooled, rel=1e-12)


def test_speedups_are_ratios_of_pooled_times(folder, prompts) -> None:
    main = pd.read_csv(folder / "tables/main.csv")
    main = main.set_index(["decode", "group", "policy"]).sort_index()
    for variant in VARIANTS:
        rows = read_table(folder / f"evaluation/{variant}.parquet", EVALUATION)
        rows = rows.merge(prompts[["prompt_id", "dataset"]], on="prompt_id")
        rows = rows[(rows["dataset"] != "human_eval") & rows["decode_s"].notna()]
        rows = rows.assign(spent_s=rows["decode_s"] + rows["select_s"])
        sums = rows.groupby("policy")[["spent_s", "num_tokens"]].sum()
        tpot_s = sums["spent_s"] / sums["num_tokens"]
        own = main.loc[variant, "average"]
        np.testing.assert_allclose(own["tpot_s"], tpot_s[own.index], rtol=1e-9)
        np.testing.assert_allclose(own["speedup"], tpot_s["ar"] / tpot_s[own.index], rtol=1e-9)


def test_bounds_are_marked(folder) -> None:
    main = pd.read_csv(folder / "tables/main.csv")
    assert set(main.loc[main["is_bound"], "policy"]) == {"oracle"}
    text = (folder / "tables/main.md").read_text(encoding="utf-8")
    assert "oracle (bound)" in text
    assert "ar_control" in text


def test_the_other_tables_count_what_there_is(folder, prompts, swept, candidates) -> None:
    tau = pd.read_csv(folder / "tables/tau_by_block_size.csv")
    assert set(tau["block_size"]) == set(swept)
    assert set(tau["group"]) == {"average", *DOMAINS, "human_eval"}
    best = pd.read_csv(folder / "tables/best_block_size.csv")
    shares = best.groupby(["decode", "group", "among"])["share"].sum()
    np.testing.assert_allclose(shares, 1, rtol=1e-12)
    assert set(best.loc[best["among"] == "candidates", "block_size"]) == set(candidates)
    counts = pd.read_csv(folder / "tables/prompts.csv").set_index(["dataset", "split"])
    expected = prompts.groupby(["dataset", "split"])["prompt_id"].nunique()
    assert counts["prompts"].to_dict() == expected.to_dict()


# Again


def test_a_second_call_has_nothing_to_do(smoke, run_snakemake, started_jobs, snapshot) -> None:
    before = snapshot(smoke)
    done = run_snakemake(smoke)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr
    assert started_jobs(done) == []
    assert snapshot(smoke) == before


def test_another_parallelism_and_order_of_jobs_make_the_same_artifacts(
    folder, second, schemas
) -> None:
    assert result_files(second) == result_files(folder)
    for name in schemas:
        compare_frames(pd.read_parquet(folder / name), pd.read_parquet(second / name), name)
    for name in (f"tables/{csv}.csv" for csv in CSVS):
        compare_frames(pd.read_csv(folder / name), pd.read_csv(second / name), name)
    # tables/main.md and the figure of speedups show times.
    same_bytes = ["figures/tau_by_block_size.svg", "figures/tau_by_block_size.png"]
    for variant in VARIANTS:
        same_bytes += [
            f"selector/{variant}/default/selector.safetensors",
            f"selector/{variant}/default/config.json",
        ]
    for name in same_bytes:
        assert (folder / name).read_bytes() == (second / name).read_bytes(), name
    first, other = (json.loads((f / "manifest.json").read_text()) for f in (folder, second))
    for part in ("config", "seeds", "versions", "machine"):
        assert first[part] == other[part]


def compare_frames(first: pd.DataFrame, second: pd.DataFrame, name: str) -> None:
    kept = [column for column in first if not TIMES.search(column)]
    assert list(first) == list(second), name
    pd.testing.assert_frame_equal(first[kept], second[kept], check_exact=True, obj=name)
    for column in set(first) - set(kept):
        assert (first[column].isna() == second[column].isna()).all(), f"{name}: {column}"


def test_the_comparison_sees_differences_inside_lists() -> None:
    frame = pd.DataFrame({"num_committed": [np.array([1, 2]), np.array([3])], "tpot_s": [1.0, 2]})
    other = frame.assign(tpot_s=[2.0, 3])
    compare_frames(frame, other, "times may differ")
    other = frame.assign(num_committed=[np.array([1, 2]), np.array([4])])
    with pytest.raises(AssertionError):
        compare_frames(frame, other, "rounds may not")
