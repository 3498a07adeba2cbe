"""Draws a walkthrough as HTML: the coloured text, the rounds, and all block sizes side by side.

Nothing is told by colour alone: drafts are plain, bonus tokens bold and underlined, the first
token italic and dashed, and numbers stand beside the shades. Every fragment brings its own style.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from blockpilot.acceptance import UNKNOWN, AcceptanceTable
from blockpilot.errors import bad_input
from blockpilot.walkthrough import Role, Round, Walkthrough

# Elements that keep a difference where a viewer drops the style.
TAGS = {Role.PREFILL: "i", Role.DRAFT: "span", Role.BONUS: "b", Role.LAST: "u"}
MEANINGS = {
    Role.PREFILL: "first token, from prefill: no round",
    Role.DRAFT: "accepted drafts",
    Role.BONUS: "bonus token, the target's own: ends a round",
    Role.LAST: "last token: draft or bonus, the run does not say",
}
HEADINGS = {
    "index": "round",
    "anchor": "anchor",
    "drafted": "drafted",
    "accepted": "accepted",
    "rejected": "rejected",
    "num_committed": "committed",
}
TICK_TOKENS = 10
LEAST_PX_PER_TOKEN = 6

# Okabe and Ito's blue and orange, lightened for dark text.
STYLE = """<style>
.walk { color: #1b1f24; background: #fff; border: 1px solid #d8dee4; border-radius: 8px;
  padding: 12px 16px; margin: 4px 0; font: 13px/1.5 system-ui, sans-serif; }
.walk .legend { display: flex; flex-wrap: wrap; gap: 4px 18px; color: #57606a;
  font-size: 12px; margin-bottom: 10px; }
.walk .legend span.sample { padding: 0 5px; margin-right: 5px; color: #1b1f24; }
.walk .text { font: 14px/1.9 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: 0; }
.walk .token { padding: 2px 0; font-style: normal; font-weight: normal; text-decoration: none; }
.walk .draft { background: #d6eaf8; } .walk .odd .draft { background: #a9d3f0; }
.walk .bonus { background: #fde3bd; font-weight: bold; box-shadow: inset 0 -2px #b35900; }
.walk .odd .bonus { background: #f9c580; }
.walk .prefill { font-style: italic; background: #fff; outline: 1px dashed #57606a;
  outline-offset: -1px; }
.walk .last { background: repeating-linear-gradient(135deg, #d6eaf8 0 4px, #fde3bd 4px 8px);
  box-shadow: inset 0 -2px #57606a; }
.walk .round { white-space: pre-wrap; border-left: 2px solid #1b1f24; }
.walk sup, .walk sub { font: 9px/1 system-ui, sans-serif; color: #57606a; user-select: none;
  padding: 0 1px; }
.walk sub { color: #8a3b00; }
.walk .end { color: #57606a; opacity: 0.6; user-select: none; font-weight: normal; }
.walk .part { display: inline-block; width: 3px; }
.walk table { border-collapse: collapse; font-size: 13px; margin: 0; }
.walk th { color: #57606a; font-weight: 600; border-bottom: 1px solid #8c959f; }
.walk th, .walk td { text-align: right; padding: 2px 10px; background: #fff; }
.walk tr + tr td { border-top: 1px solid #eaeef2; }
.walk th.left, .walk td.left { text-align: left; }
.walk td.text { line-height: 1.5; font-size: 13px; }
.walk .slots { font-family: ui-monospace, "DejaVu Sans Mono", monospace; letter-spacing: 2px;
  white-space: nowrap; text-align: left; color: #00538a; }
.walk .slots b { color: #b35900; } .walk .slots i { color: #8c959f; font-style: normal; }
.walk .scroll { overflow-x: auto; }
.walk .strips { display: grid; grid-template-columns: max-content 1fr; gap: 5px 12px;
  align-items: center; }
.walk .name { position: sticky; left: 0; z-index: 1; background: #fff; padding: 2px 6px 2px 0;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.walk .name small { color: #57606a; }
.walk .strip { position: relative; height: 24px; }
.walk .chosen { font-weight: bold; } .walk .strip.chosen { outline: 2px solid #1b1f24;
  outline-offset: 1px; }
.walk .cell { position: absolute; top: 0; bottom: 0; box-sizing: border-box; overflow: hidden;
  border-left: 1px solid #1b1f24; font: 10px/24px system-ui, sans-serif; text-align: center; }
.walk .cell .draft, .walk .cell .bonus, .walk .cell .last { position: absolute; top: 0;
  bottom: 0; }
.walk .cell em { position: relative; font-style: normal; }
.walk .strip > .prefill { position: absolute; top: 0; bottom: 0; left: 0; }
.walk .axis { height: 14px; } .walk .axis span { position: absolute; font-size: 10px;
  color: #57606a; border-left: 1px solid #8c959f; padding-left: 2px; line-height: 12px; }
.walk .anchors { height: 46px; border-bottom: 1px solid #8c959f; margin-bottom: 9px; }
.walk .anchors span { position: absolute; bottom: 0; box-sizing: border-box;
  border-right: 1px solid #fff; background: #a9d3f0; }
.walk .anchors .used { background: #00538a; }
.walk .anchors .unknown { background: repeating-linear-gradient(135deg, #fff 0 2px,
  #d8dee4 2px 4px); height: 100%; }
.walk .anchors i { position: absolute; top: 46px; font: 8px/9px system-ui; color: #00538a;
  text-align: center; }
</style>"""


def text_html(walk: Walkthrough, block_size: int) -> str:
    """Return the output text, coloured by round and role, with a legend.

    A small number before a round is its index, one behind it counts its rejected drafts.
    """
    rounds = walk.rounds(block_size)
    first = _token(walk.tokens[0], Role.PREFILL, "position 0") if walk.tokens else ""
    body = first + "".join(_round(walk, one) for one in rounds)
    roles = _roles(rounds)
    marks = "<span><sup>3</sup> round</span><span><sub>−4</sub> rejected drafts</span>"
    return _fragment(f'{_legend(roles, marks)}<div class="text">{body}</div>')


def rounds_html(walk: Walkthrough, block_size: int) -> str:
    """Return the table of rounds with a symbol for every slot of the block."""
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS.values())
    rows = [f'<tr>{head}<th class="left">block</th><th class="left">text</th></tr>']
    for one in walk.rounds(block_size):
        values = [getattr(one, name) for name in HEADINGS]
        cells = "".join(f"<td>{'?' if value is None else value}</td>" for value in values)
        # A row a line: the marks of line ends are enough here.
        text = f'<td class="left text{_odd(one)}">{_tokens(walk, one, line_end="")}</td>'
        rows.append(f'<tr>{cells}<td class="slots left">{_slots(one)}</td>{text}</tr>')
    key = (
        '<span class="slots">●</span> accepted draft · <span class="slots"><i>○</i></span> '
        'rejected draft · <span class="slots"><b>+</b></span> bonus token'
    )
    legend = f'<div class="legend"><span>{key}</span></div>'
    return _fragment(f'{legend}<div class="scroll"><table>{"".join(rows)}</table></div>')


def strips_html(walk: Walkthrough, block_size: int | None = None) -> str:
    """Return a strip per block size: a cell per round, as wide as the tokens it commits.

    Args:
        walk: The request.
        block_size: Is framed.
    """
    rows, shown = [], []
    for size, value in walk.tau_by_block_size.items():
        rounds = walk.rounds(size)
        shown += rounds
        chosen = " chosen" if size == block_size else ""
        drafted = sum(one.drafted for one in rounds)
        facts = f"<small>tau {value:.2f}, {len(rounds)} rounds, {drafted} drafted</small>"
        cells = "".join(_cell(walk, one) for one in rounds)
        first = f'<span class="prefill" style="width:{_share(1, walk)}"></span>'
        rows.append(
            f'<div class="name{chosen}">b = {size} {facts}</div>'
            f'<div class="strip{chosen}">{first}{cells}</div>'
        )
    marks = "<span>number: committed tokens of the round</span>"
    return _fragment(_legend(_roles(shown), marks) + _grid(walk, rows))


def anchors_html(walk: Walkthrough, block_sizes: Sequence[int]) -> str:
    """Return the accepted drafts at every anchor, a panel per block size.

    Args:
        walk: A request with an acceptance table.
        block_sizes: Some of the swept ones.

    Raises:
        BlockPilotError: If the run has no acceptance table of this request.
    """
    if walk.acceptance is None:
        remedy = "Choose a test prompt, or raise sweep.acceptance_prompts_per_domain."
        raise bad_input(f"acceptance of {walk.prompt_id}", None, "a row of the run", remedy)
    rows = []
    for size in block_sizes:
        used = {one.anchor for one in walk.rounds(size)}
        bars = "".join(
            _bar(walk, walk.acceptance, size, anchor, anchor in used)
            for anchor in range(walk.acceptance.num_anchors)
        )
        facts = f"<small>bar: 0 to {size - 1} drafts</small>"
        rows.append(
            f'<div class="name">b = {size} {facts}</div><div class="strip anchors">{bars}</div>'
        )
    return _fragment(_ANCHOR_LEGEND + _grid(walk, rows))


_ANCHOR_LEGEND = (
    '<div class="legend"><span>bar: drafts accepted if a round started there, before clipping'
    "</span><span>dark with ▲: the rounds of this block size did start there</span><span><span "
    'class="sample anchors" style="border:0;background:repeating-linear-gradient(135deg,#fff 0 '
    '2px,#d8dee4 2px 4px)">&ensp;</span>not evaluated</span></div>'
)


def prompt_html(walk: Walkthrough) -> str:
    """Return the text of the prompt, special tokens included."""
    return _fragment(f'<div class="text" style="line-height:1.5">{_visible(walk.prompt)}</div>')


def _fragment(body: str) -> str:
    # Notebooks would otherwise set what stands between two dollar signs as a formula.
    return f'{STYLE}<div class="walk tex2jax_ignore mathjax_ignore">{body}</div>'


def _legend(roles: Sequence[Role], marks: str) -> str:
    samples = "".join(
        f'<span><span class="sample {role}">token</span>{MEANINGS[role]}</span>' for role in roles
    )
    return f'<div class="legend">{samples}{marks}</div>'


def _roles(rounds: Sequence[Round]) -> list[Role]:
    found = {Role.PREFILL, *(role for one in rounds for role in one.roles)}
    return [role for role in Role if role in found]


def _visible(text: str, line_end: str = "\n") -> str:
    """Escape a text, mark the ends of its lines and put `line_end` behind the marks."""
    return escape(text).replace("\n", f'<span class="end">↵</span>{line_end}')


def _token(text: str, role: Role, title: str, line_end: str = "\n") -> str:
    tag = TAGS[role]
    # A token that only begins a character still is a token.
    shown = _visible(text, line_end) or '<span class="part"></span>'
    return f'<{tag} class="token {role}" title="{role}, {title}">{shown}</{tag}>'


def _tokens(walk: Walkthrough, one: Round, line_end: str = "\n") -> str:
    return "".join(
        _token(walk.tokens[place], role, f"position {place}, round {one.index}", line_end)
        for place, role in enumerate(one.roles, start=one.anchor + 1)
    )


def _round(walk: Walkthrough, one: Round) -> str:
    index = f"<sup>{one.index}</sup>"
    rejected = f"<sub>−{one.rejected}</sub>" if one.rejected else ""
    return f'<span class="round{_odd(one)}">{index}{_tokens(walk, one)}{rejected}</span>'


def _odd(one: Round) -> str:
    return " odd" if one.index % 2 else ""


def _slots(one: Round) -> str:
    if one.accepted is None:
        known = one.num_committed - 1
        return "●" * known + "<i>" + "?" * (one.drafted - known) + "</i>"
    return "●" * one.accepted + f"<i>{'○' * one.rejected}</i>" + "<b>+</b>" * one.bonus


def _share(count: float, walk: Walkthrough) -> str:
    return f"{100 * count / len(walk.tokens):.4f}%"


def _cell(walk: Walkthrough, one: Round) -> str:
    last, count = one.roles[-1], one.num_committed
    cut = 100 * (count - 1) / count
    parts = f'<span class="draft" style="left:0;right:{100 - cut:.3f}%"></span>'
    parts += f'<span class="{last}" style="left:{cut:.3f}%;right:0"></span>'
    place = f"left:{_share(one.anchor + 1, walk)};width:{_share(count, walk)}"
    title = escape(f"round {one.index}: {walk.text(one)}")
    content = f"{parts}<em>{count}</em>"
    return f'<div class="cell{_odd(one)}" style="{place}" title="{title}">{content}</div>'


def _bar(walk: Walkthrough, table: AcceptanceTable, size: int, anchor: int, used: bool) -> str:
    accepted = table.num_accepted(table.shortened(size, anchor), anchor)
    place = f"left:{_share(anchor, walk)};width:{_share(1, walk)}"
    if accepted == UNKNOWN:
        return f'<span class="unknown" style="{place}"></span>'
    height = 100 * accepted / max(size - 1, 1)
    title = f'title="anchor {anchor}: {accepted} accepted"'
    mark = f'<i style="{place}">▲</i>' if used else ""
    kind = "used" if used else ""
    # Two per cent: no accepted draft is a value too.
    style = f"{place};height:{max(height, 2):.1f}%"
    return f'<span class="{kind}" style="{style}" {title}></span>{mark}'


def _grid(walk: Walkthrough, rows: Sequence[str]) -> str:
    ticks = "".join(
        f'<span style="left:{_share(place, walk)}">{place}</span>'
        # The last name would stick out.
        for place in range(0, len(walk.tokens) - 2, TICK_TOKENS)
    )
    axis = f'<div class="name"><small>position</small></div><div class="strip axis">{ticks}</div>'
    width = 260 + LEAST_PX_PER_TOKEN * len(walk.tokens)
    strips = f'<div class="strips" style="min-width:{width}px">{axis}{"".join(rows)}</div>'
    return f'<div class="scroll">{strips}</div>'
