"""README.md prints no number that was typed: its results come from the published files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockpilot.published import Published
from blockpilot.readme import BLOCK, CAPTIONS, README_RUN, SUFFIX, TEMPLATES, render_blocks

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?"
UNIT = (
    r"(?:%|(?:[mµn]?s|sec(?:ond)?s?|min(?:ute)?s?|h(?:our)?s?|days?|[kMGT]i?B|x|times|fold|faster"
    r"|slower|tokens?/s|tokens? (?:per|a|an|each)|per (?:round|prompt|token|label|second))\b)"
)
# A number with a unit, with an interval behind it, or with so many digits that it was measured.
MEASURED = re.compile(
    rf"{NUMBER}(?:[ -]?{UNIT}|\s*×| \[-?\d)|(?<![\w.])\d+\.\d{{2,}}(?![\w.])|\[-?\d[\d.,]*, -?\d"
)
# What looks measured outside the blocks, and why it is not.
METHOD = {
    "95 % percentile intervals": "the confidence of every interval",
    "on 98 % of the test prompts": "the limit of the guard against leakage",
    "Python 3.11": "a version",
}
# What may be written by hand inside the blocks: settings and names, never results.
SETTINGS = {
    r"T = (?:0\.7|[01])(?![\d.]*\d)": "temperatures of the decode variants",
    r"`fixed:\d+`": "names of policies",
    r"\| b = (?:1|2|4|8|16) (?=\|)|10th, 90th percentile": "headings of a benchmark",
    r"b = 8\b|block size 8\b|a round of 8\b|within 8 ± [123]\b": "the trained block size",
    r"(?:[Dd]raft|[Dd]rafting|drafts of|[Vv]erify|verifying)\s+(?:[4678]|16)\b(?!\.\d)": "sizes",
    r"\b(?:sizes|size) from 1 to (?:16|2B)|sizes 1 to 16|sizes 6 to 10": "ranges of sizes",
    r"Drafting 2B|drafting 2B": "twice the trained block size",
    r"95 % (?:band|intervals?)|Black lines are 95 %\s+intervals": "the confidence of intervals",
    r"10th (?:and|to)\s+90th percentile": "what a range spans",
    r"need not start at 0|below 100 %|shown to be above 0": "captions: axes and limits",
    r"1 is autoregressive decoding|band around 1 is": "captions: where a ratio says no difference",
    r"\| labels of 60 prompts|chunks of 15 prompts|12 prompts x 128 tokens": "sizes of benchmarks",
    r"`dflash` 0\.1\.0|\bfloat32\b": "a version, and the name of a precision",
    r"\bat (?:10 texts|300 texts|64 tokens|512|1,000|1,976)(?![\d.,]*\d)": "points of the curves",
}


def find_measured(text: str) -> list[str]:
    """Return the measured-looking numbers outside blocks, code fences and links."""
    text = BLOCK.sub("", text)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)
    for phrase in METHOD:
        text = text.replace(phrase, "")
    return [match.group() for match in MEASURED.finditer(text)]


def find_written(block: str) -> list[str]:
    """Return the digits of a marked block that no lookup printed, with what stands around them."""
    text = re.sub(r"\]\([^)]*\)", "]", re.sub("⟦.*?⟧", "#", block))
    for pattern in SETTINGS:
        text = re.sub(pattern, "", text)
    return re.findall(r".{0,20}\d[\d.,]*.{0,10}", text)


def publish(**options) -> Published:
    return Published(folder=ROOT / "docs" / README_RUN, captions=ROOT / CAPTIONS, **options)


def test_readme_has_the_numbers_of_its_run():
    text = README.read_text(encoding="utf-8")
    expected = render_blocks(text, ROOT / TEMPLATES, publish())
    assert text == expected, "README.md differs from its templates and tables; run: make readme"


def test_every_template_is_a_block_of_the_readme():
    blocks = [match["name"] for match in BLOCK.finditer(README.read_text(encoding="utf-8"))]
    templates = sorted(p.name.removesuffix(SUFFIX) for p in (ROOT / TEMPLATES).glob(f"*{SUFFIX}"))
    assert sorted(blocks) == templates


def test_nothing_measured_is_written_outside_the_blocks():
    found = find_measured(README.read_text(encoding="utf-8"))
    assert not found, f"{found}: look them up in a block of docs/readme"


def test_every_number_of_a_block_is_looked_up():
    marked = publish(mark="⟦{}⟧".format)
    text = render_blocks(README.read_text(encoding="utf-8"), ROOT / TEMPLATES, marked)
    found = {match["name"]: find_written(match["body"]) for match in BLOCK.finditer(text)}
    assert found
    assert not any(found.values()), f"{found}: write them as lookups"


@pytest.mark.parametrize(
    "planted",
    [
        "39 minutes",
        "takes 0.9 GB",
        "a gain of 12.6 %",
        "2.4 times faster",
        "2.4x",
        "speedup 2.4×",
        "3.3 ms per token",
        "0.44 s per prompt",
        "5.1 tokens per round",
        "tau 5.57",
        "(5 [4, 6])",
        "`b = 4`: 33 ms",
        "200 tokens/s",
        "a 2-fold gain",
        "1,500 s",
    ],
)
def test_the_search_finds_what_is_planted(planted):
    filler = "```\n1.23 s\n```\n[a](b/1.23) <!-- results:a -->\n5 ms\n<!-- /results:a -->\n"
    assert len(find_measured(filler + f"Text {planted} more.")) == 1
    assert find_measured(filler + "Text.") == []


@pytest.mark.parametrize(
    "harmless",
    [
        "split 50/15/35, 10,000 resamples",
        "on 2 cores, seed 0, `temperature=0.7`",
        "block size 8, T = 1, B3/B4",
        "Apache-2.0, dflash 0.1.0, Python 3.11, v1.2.34",
        "intervals are 95 % percentile intervals",
    ],
)
def test_the_search_leaves_settings(harmless):
    assert find_measured(harmless) == []


@pytest.mark.parametrize(
    ("block", "written"),
    [
        ("gains ⟦5.57⟧ at T = 0, b = 8, `fixed:9` [x](y/3.csv)", 0),
        ("gains 5.57 at T = 0", 1),
        ("⟦4⟧ and 5 of `fixed:9`", 1),
        ("at T = 0.75", 1),
        ("T = 0: 3\nverifying 4 gives 2", 2),
        ("⟦2.5⟧ at 1,000, 2.4 at 10 texts", 1),
        ("verifying 4.5", 1),
    ],
)
def test_the_search_tells_written_from_looked_up(block, written):
    assert len(find_written(block)) == written
