"""Overheads: rows of every part, and memory that is really allocated."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from pocket_cases import draw_prompts, load_pocket

from blockpilot.knobs import Setting
from blockpilot.overhead import Inputs, measure_requests, measure_selectors, peak_mb, time_call
from blockpilot.records import OVERHEAD, read_table, write_table
from blockpilot.sampling import GREEDY
from blockpilot.sweep import Decoder, DecodeVariant

BASE = Setting(radius=2, depth=2, width=32, features="raw")
CPU = torch.device("cpu")


def test_peak_memory_is_the_most_held_at_once() -> None:
    def call() -> None:
        first = torch.empty(250_000)  # 1 MB
        del first
        second = torch.empty(500_000)  # 2 MB
        third = torch.empty(250_000)
        del second, third

    assert 3.0 <= peak_mb(call, CPU) < 3.1
    assert peak_mb(lambda: None, CPU) == 0


def test_a_call_is_timed_on_the_clock() -> None:
    assert 0 < time_call(lambda: sum(range(1000)), CPU) < 10


def test_selectors_are_measured_one_by_one(tmp_path) -> None:
    settings = [BASE, Setting(radius=1, depth=1, width=64, features="summary")]
    inputs = Inputs(
        prefill_logits=torch.randn(100),
        prefill_hidden=torch.randn(16),
        trained_block_size=8,
        repeats=4,
    )
    write_table(tmp_path / "o.parquet", [*measure_selectors(settings, inputs)], OVERHEAD)
    rows = read_table(tmp_path / "o.parquet", OVERHEAD).sort_values("width")
    # Weights and biases: 100 to 32, 32 to 32, 32 to 5; and 4 to 64, 64 to 3.
    parameters = [100 * 32 + 32 + 32 * 32 + 32 + 32 * 5 + 5, 4 * 64 + 64 + 64 * 3 + 3]
    assert rows["num_parameters"].tolist() == parameters
    assert np.allclose(rows["parameters_mb"], np.array(parameters) * 4 / 1e6)
    assert (rows["activations_mb"] >= np.array([32, 64]) * 4 / 1e6).all()
    assert (rows["n"] == 4).all()
    assert (rows["p10_s"] > 0).all()
    assert (rows["p10_s"] <= rows["median_s"]).all()
    assert (rows["median_s"] <= rows["p90_s"]).all()


def test_requests_are_measured_with_and_without_a_draft(tmp_path) -> None:
    target, draft, stop_ids = load_pocket("float32")
    variant = DecodeVariant(sampling=GREEDY, max_new_tokens=12)
    requests = pd.DataFrame({"input_ids": draw_prompts(1), "seed": 0})
    decode = Decoder(target, draft, variant, stop_ids)
    write_table(tmp_path / "o.parquet", [*measure_requests(decode, requests, 8)], OVERHEAD)
    rows = read_table(tmp_path / "o.parquet", OVERHEAD).set_index("component")
    parts = {"prefill": "target", "ar": "target", "fixed": "draft", "round": "draft"}
    assert rows["part"].to_dict() == parts
    assert rows["n"].tolist() == [3, 3, 3, 3]
    assert rows.loc["fixed", "median_s"] > rows.loc["round", "median_s"] > 0
    size = sum(p.numel() for p in target.model.parameters())
    assert rows.loc["ar", "num_parameters"] == size
    assert rows.loc["ar", "parameters_mb"] * 1e6 == 4 * size
    # At least the keys and values of the whole answer, which the cache holds from the start.
    config = target.config
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 12 * 4
    assert rows.loc["ar", "activations_mb"] * 1e6 > cached
    assert rows.loc["fixed", "activations_mb"] > 0
