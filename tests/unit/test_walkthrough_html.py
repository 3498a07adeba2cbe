"""The pages of a walkthrough: nothing is lost, nothing is markup by accident."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from blockpilot.acceptance import AcceptanceTable
from blockpilot.errors import BlockPilotError
from blockpilot.walkthrough import Walkthrough
from blockpilot.walkthrough_html import (
    anchors_html,
    prompt_html,
    rounds_html,
    strips_html,
    text_html,
)

TOKENS = ["<b>", " &amp;", "\n", "$x$", "", "é", '"', "'end"]


@pytest.fixture
def walk() -> Walkthrough:
    """Return eight tokens; b = 4 has rounds of 4, 1 and 2 that reject 0, 3 and unknown."""
    return Walkthrough(
        prompt_id="0f",
        seed=0,
        prompt="<|user|>\n</div>",
        tokens=TOKENS,
        limit_tokens=100,
        num_committed={2: [2, 1, 2, 2], 4: [4, 1, 2]},
    )


@pytest.fixture
def stopped(walk) -> Walkthrough:
    """Return the same with a table: one draft and the stop token, the target's own."""
    table = AcceptanceTable.empty([4], len(TOKENS), 100)
    table.accepted[2] = [3, 2, 1, 0, 0, 1, -1]
    return replace(walk, acceptance=table)


def visible_text(page: str) -> str:
    """Return the text a reader would copy, without marks that are no part of it."""
    inner = re.search(r'<div class="text"[^>]*>(.*)</div></div>$', page, re.DOTALL)[1]
    inner = re.sub(r'<su[bp]>.*?</su[bp]>|<span class="end">↵</span>', "", inner)
    return unescape(re.sub(r"<[^>]*>", "", inner))


def test_the_coloured_text_is_the_text(walk) -> None:
    assert visible_text(text_html(walk, 4)) == "".join(TOKENS)
    assert visible_text(prompt_html(walk)) == walk.prompt


def test_tokens_are_marked_by_role(walk) -> None:
    page = text_html(walk, 4)
    body = page.partition('<div class="text">')[2]
    roles = re.findall(r'<(\w+) class="token (\w+)"', body)
    draft, bonus = ("span", "draft"), ("b", "bonus")
    expected = [("i", "prefill"), draft, draft, draft, bonus, bonus, draft, ("u", "last")]
    assert roles == expected
    assert re.findall(r"<sup>(\d)</sup>", body) == ["1", "2", "3"]
    assert re.findall(r"<sub>−(\d)</sub>", body) == ["3"]


def test_the_legend_has_the_roles_that_occur(walk, stopped) -> None:
    unknown = "the run does not say"
    assert unknown in text_html(walk, 4) and unknown not in text_html(stopped, 4)


def test_markup_in_tokens_is_escaped(walk) -> None:
    for page in (text_html(walk, 4), rounds_html(walk, 4), strips_html(walk, 4)):
        body = page.partition("</style>")[2]
        assert "&amp;amp;" in body
        assert "<b>" not in re.sub(r"<b>\+*</b>", "", body)
    assert "&lt;/div&gt;" in prompt_html(walk)


def test_formulas_are_left_alone(walk) -> None:
    assert 'class="walk tex2jax_ignore mathjax_ignore"' in text_html(walk, 4)


def test_the_slots_of_every_block(walk, stopped) -> None:
    find = re.compile(r'<td class="slots left">(.*?)</td>')
    slots = ["●●●<i></i><b>+</b>", "<i>○○○</i><b>+</b>"]
    assert find.findall(rounds_html(walk, 4)) == [*slots, "●<i>??</i>"]
    assert find.findall(rounds_html(stopped, 4)) == [*slots, "●<i>○○</i><b>+</b>"]


def test_cells_are_as_wide_as_what_their_rounds_commit(walk) -> None:
    page = strips_html(walk, 4)
    found = re.findall(r'class="cell[^"]*" style="left:([\d.]+)%;width:([\d.]+)%', page)
    cells = [(float(left) * 8 / 100, float(width) * 8 / 100) for left, width in found]
    of_two = [(1, 2), (3, 1), (4, 2), (6, 2)]
    of_four = [(1, 4), (5, 1), (6, 2)]
    assert cells == of_two + of_four
    assert "tau 1.75, 4 rounds, 4 drafted" in page and "tau 2.33, 3 rounds, 9 drafted" in page
    assert page.count('class="strip chosen"') == 1


def test_bars_show_every_anchor_and_mark_the_rounds(stopped) -> None:
    page = anchors_html(stopped, [4])
    heights = re.findall(r"height:([\d.]+)%\" title=\"anchor (\d): (\d) accepted", page)
    assert [(int(anchor), int(accepted)) for _, anchor, accepted in heights] == [
        (0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (5, 1),
    ]  # fmt: skip
    assert heights[0][0] == "100.0" and heights[2][0] == "33.3"
    assert page.count('class="unknown"') == 1
    assert page.count("▲</i>") == 3


def test_without_an_acceptance_table_there_are_no_bars(walk) -> None:
    with pytest.raises(BlockPilotError, match="acceptance of 0f"):
        anchors_html(walk, [4])
