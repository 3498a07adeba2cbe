"""Web pages of tables, what stands below them, and the table of data sets."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.reported import reported_rows
from blockpilot.tables import REPORTED_HEADING, write_for_people, write_html
from blockpilot.texts import describe_datasets

REPORTED = Path(__file__).resolve().parents[2] / "workflow" / "resources" / "reported.csv"
FRAME = pd.DataFrame(
    {
        "decode": ["T0", "T0", "T1", "T1"],
        "policy": ["ar", "fixed:8", "<b> & co", "ar"],
        "equal": ["36/36", "", "3/36", "4/36"],
        "tau": [1.0, 4.2149, 4.2, 1.0],
        "tau_low": [1.0, 4.101, 4.0, np.nan],
        "tau_high": [1.0, 4.3333, 4.4, np.nan],
    }
)
COLUMNS = {"decode": "decode", "policy": "policy", "equal": "text equal", "tau": "τ"}


def test_a_page_aligns_numbers_and_separates_variants(tmp_path):
    write_html(FRAME, tmp_path / "t.html", COLUMNS, caption="Held out & <timed>")
    body = (tmp_path / "t.html").read_text(encoding="utf-8").partition("<body>\n")[2]
    number = '<td class="number">'
    assert body == (
        "<p>Held out &amp; &lt;timed&gt;</p>\n"
        "<table>\n"
        '<thead><tr><th scope="col">decode</th><th scope="col">policy</th>'
        '<th scope="col" class="number">text equal</th>'
        '<th scope="col" class="number">τ</th></tr></thead>\n'
        "<tbody>\n"
        f"<tr><td>T0</td><td>ar</td>{number}36/36</td>{number}1.00 [1.00, 1.00]</td></tr>\n"
        f"<tr><td>T0</td><td>fixed:8</td>{number}</td>{number}4.21 [4.10, 4.33]</td></tr>\n"
        '<tr class="start"><td>T1</td><td>&lt;b&gt; &amp; co</td>'
        f"{number}3/36</td>{number}4.20 [4.00, 4.40]</td></tr>\n"
        f"<tr><td>T1</td><td>ar</td>{number}4/36</td>{number}1.00</td></tr>\n"
        "</tbody>\n"
        "</table>\n"
        "</body>\n"
        "</html>\n"
    )


def test_a_line_starts_a_block_of_at_least_two_rows_on_average(tmp_path):
    def starts(*columns: str) -> list[int]:
        names = ["decode", "group", "knob", "value"]
        write_html(pd.DataFrame(dict(zip(names, map(list, columns), strict=False))), path)
        rows = path.read_text(encoding="utf-8").partition("<tbody>\n")[2].split("\n")[:-5]
        return [at for at, row in enumerate(rows) if row.startswith('<tr class="start">')]

    path = tmp_path / "t.html"
    assert starts("aaaabbbb", "ccddccdd", "xyxyxyxy") == [2, 4, 6]
    # The third column changes in every row: the first two make the blocks.
    assert starts("aaaabbbb", "ccddccdd", "efefefef", "xyxyxyxy") == [2, 4, 6]
    assert starts("aaab", "xyzw") == [3]
    assert starts("abcd", "xyzw") == []
    assert starts("aabb") == []


def test_a_page_needs_nothing_else_and_keeps_intervals_on_a_line(tmp_path):
    write_html(FRAME, tmp_path / "t.html", COLUMNS)
    text = (tmp_path / "t.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>\n")
    assert "<title>t</title>" in text
    assert re.search(r"th, td \{[^}]*white-space: nowrap", text)
    assert "@media print" in text
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import|https?:", text)


def test_what_papers_report_stands_apart_on_the_page(tmp_path):
    write_html(FRAME, tmp_path / "t.html", COLUMNS, reported=[{"target": "X", "tau": "6.31"}])
    text = (tmp_path / "t.html").read_text(encoding="utf-8")
    own, section = text.split('<section class="reported">')
    assert "6.31" not in own
    assert "4.21" not in section
    assert f"<h2>{REPORTED_HEADING}</h2>" in section
    assert '<tr><td>X</td><td class="number">6.31</td></tr>' in section
    assert section.rstrip().endswith("</section>\n</body>\n</html>")


def test_one_call_writes_a_table_for_machines_and_for_people(tmp_path):
    csv, md, html = (tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "html"))
    rows, frame = [{"target": "X", "tau": "6.31"}], FRAME.head(3)
    write_for_people(frame, csv, md, html, COLUMNS, caption="A caption", reported=rows)
    pd.testing.assert_frame_equal(pd.read_csv(csv, keep_default_na=False), frame)
    for text in (md.read_text(encoding="utf-8"), html.read_text(encoding="utf-8")):
        assert all(part in text for part in ("A caption", "4.21 [4.10, 4.33]", "6.31", "τ"))
        assert "4.2149" not in text
    write_for_people(frame, csv, md, html, shown=pd.DataFrame({"policy": ["two"]}))
    assert md.read_text(encoding="utf-8") == "| policy |\n| --- |\n| two |\n"
    assert "fixed:8" not in html.read_text(encoding="utf-8")
    assert "4.2149" in csv.read_text(encoding="utf-8")


def test_reported_figures_keep_their_digits_and_say_where_they_are_from():
    rows = reported_rows(REPORTED, "main")
    assert len(rows) == 30
    [row] = [
        r for r in rows if (r["target"], r["T"], r["system"]) == ("Qwen3-8B", "1", "DFlash(16)")
    ]
    assert (row["speedup over ar"], row["tau"]) == ("3.55", "5.00")
    assert row["reported in"].startswith("BlockPilot")
    assert row["seen in"] == "summaries of the paper"
    [row] = [r for r in rows if (r["target"], r["benchmark"]) == ("Qwen3-4B", "MT-Bench")]
    assert (row["speedup over ar"], row["tau"], row["seen in"]) == ("2.85", "4.35", "paper")
    assert row["reported in"] == "DFlash, arXiv 2602.06036"
    seen = [[r["seen in"] for r in reported_rows(REPORTED, name)] for name in ("main", "ablations")]
    assert [own.count("summaries of the paper") for own in seen] == [9, 9]


def test_reported_ranges_are_one_cell_and_unused_columns_are_left_out():
    selector, backbone = reported_rows(REPORTED, "overhead")
    assert (selector["latency (ms)"], backbone["latency (ms)"]) == ("7.34", "183 to 278")
    assert (selector["memory (GB)"], backbone["memory (GB)"]) == ("0.62", "8 to 16")
    assert "tau" not in selector
    assert "latency (ms)" not in reported_rows(REPORTED, "ablations")[0]
    with pytest.raises(BlockPilotError, match="allowed: ablations, main, overhead"):
        reported_rows(REPORTED, "latency")


def test_data_sets_by_hand():
    prompts = pd.DataFrame(
        {
            "prompt_id": ["a", "b", "c", "d"],
            "conversation_id": ["A", "A", "C", "D"],
            "dataset": ["sums", "sums", "sums", "poems"],
            "split": ["test", "test", "train", "test"],
            "input_ids": [[0] * 10, [0] * 20, [0] * 7, [0] * 3],
        }
    )
    greedy = pd.DataFrame({"prompt_id": list("abcd"), "output_ids": [[1], [1] * 4, [1] * 9, []]})
    sampled = pd.DataFrame({"prompt_id": ["a", "a", "b"], "output_ids": [[1], [1] * 3, [1] * 8]})
    table = describe_datasets(prompts, {"T0": greedy, "T1": sampled})
    assert table.columns.tolist() == [
        *("dataset", "split", "prompts", "conversations"),
        *("median_prompt_tokens", "p10_prompt_tokens", "p90_prompt_tokens"),
        *("T0_median_output_tokens", "T1_median_output_tokens"),
    ]
    rows = table.astype(object).where(table.notna(), None).to_numpy().tolist()
    assert rows == [
        ["poems", "test", 1, 1, 3, 3, 3, 0, None],
        ["sums", "test", 2, 1, 15, 11, 19, 2.5, 3],
        ["sums", "train", 1, 1, 7, 7, 7, 9, None],
    ]
