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
from smoke_facts import DATASETS, VARIANTS

from blockpilot.catalogue import FIGURES
from blockpilot.records import (
    ABLATIONS,
    ACCEPTANCE,
    CONTROL,
    CONVERSATIONS,
    COST,
    EVALUATION,
    GRID,
    HISTORY,
    LATENCY,
    OVERHEAD,
    PAIRS,
    PREDICTIONS,
    PROMPTS,
    SCHEMES,
    SWEEP,
    TRAJECTORIES,
    Schema,
    read_table,
)

# Tables that people get as Markdown and as a web page, too.
FOR_PEOPLE = ("main", "datasets", "ablations", "overhead")
CSVS = (*FOR_PEOPLE, "tau_by_block_size", "tau_by_prompt", "best_block_size", "texts")
CSVS += ("response_lengths", "training", "predictions", "policy_cost", "reported")
CSVS += ("findings", "finding_distribution", "draft_verify", "bounds")
CSVS += ("schemes", "draft_temperatures", "replay_agreement", "replay_pairs", "replay_cost")
# Figures of tables that hold times.
TIMED = ("speedup", "replay_cost", "overhead")
# Columns of time and memory differ from run to run; nothing else may.
TIMES = re.compile(r"(_s|_ms|_mb)(_low|_high)?$|^speedup")


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
        files[f"ablations/{variant}.parquet"] = ABLATIONS
        files[f"acceptance/{variant}.parquet"] = ACCEPTANCE
        files[f"grid/{variant}.parquet"] = GRID
        files[f"sweep_control/{variant}.parquet"] = CONTROL
        files[f"sweep_control/{variant}_cost.parquet"] = COST
    files["schemes/T1.parquet"] = SCHEMES
    files["latency/cpu.parquet"] = LATENCY
    files["overhead/cpu.parquet"] = OVERHEAD
    return files


@pytest.fixture(scope="session")
def second(make_checkout, run_to_end) -> Path:
    """Return the results of a second checkout: one core, and T1 before T0."""
    first_of_all = "results/smoke/evaluation/T1.parquet"
    other = run_to_end(make_checkout("second"), "--prioritize", first_of_all, cores=1)
    return other / "results" / "smoke"


def result_files(folder: Path) -> set[str]:
    names = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {name.as_posix() for name in names if name.parts[0] not in ("logs", "benchmarks")}


# Every file


def test_there_is_every_artifact_and_no_other_file(folder, schemas) -> None:
    expected = {*schemas, "manifest.json", "tables/headline.md"}
    expected |= {f"tables/{name}.csv" for name in CSVS}
    expected |= {f"tables/{name}.{suffix}" for name in FOR_PEOPLE for suffix in ("md", "html")}
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


def test_the_manifest_tells_what_made_the_run(smoke, manifest, trained_block_size) -> None:
    keys = {"config", "date", "git_revision", "machine", "seeds", "trained_block_size", "versions"}
    assert set(manifest) == keys | {"rule_s", "rule_mb", "wall_s"}
    assert manifest["trained_block_size"] == trained_block_size
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
    timed = [name for name in FIGURES if name in TIMED or name.startswith("ablation_")]
    same_bytes = [f"figures/{name}.svg" for name in FIGURES if name not in timed]
    same_bytes += [f"tables/datasets.{suffix}" for suffix in ("md", "html")]
    for variant in VARIANTS:
        same_bytes += [
            f"selector/{variant}/default/selector.safetensors",
            f"selector/{variant}/default/config.json",
        ]
    for name in same_bytes:
        assert (folder / name).read_bytes() == (second / name).read_bytes(), name
    first, other = (json.loads((f / "manifest.json").read_text()) for f in (folder, second))
    for part in ("config", "seeds", "versions", "machine", "trained_block_size"):
        assert first[part] == other[part]


def compare_frames(first: pd.DataFrame, second: pd.DataFrame, name: str) -> None:
    kept = [column for column in first if not TIMES.search(column)]
    assert list(first) == list(second), name
    pd.testing.assert_frame_equal(first[kept], second[kept], check_exact=True, obj=name)
    # Whether labels are ever earned back depends on measured times.
    for column in set(first) - {*kept, "speedup_pays_after_requests"}:
        assert (first[column].isna() == second[column].isna()).all(), f"{name}: {column}"


def test_the_comparison_sees_differences_inside_lists() -> None:
    frame = pd.DataFrame({"num_committed": [np.array([1, 2]), np.array([3])], "tpot_s": [1.0, 2]})
    other = frame.assign(tpot_s=[2.0, 3])
    compare_frames(frame, other, "times may differ")
    other = frame.assign(num_committed=[np.array([1, 2]), np.array([4])])
    with pytest.raises(AssertionError):
        compare_frames(frame, other, "rounds may not")
