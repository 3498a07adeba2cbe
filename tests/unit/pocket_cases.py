"""The shipped pair and prompts of its generators, for the tests that hold invariants on it."""

from __future__ import annotations

from pathlib import Path

from blockpilot.pair import Pair, load_pair
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.prompts import load_tokenizer, render

POCKET = Path(__file__).resolve().parents[2] / "workflow/resources/pocket"
PROMPT_SEED = 7


def load_pocket(dtype: str = "float64") -> Pair:
    """Return the shipped pair on one CPU thread."""
    config = {
        "target": str(POCKET / "target"),
        "target_revision": None,
        "draft": str(POCKET / "draft"),
        "attn_implementation": "sdpa",
    }
    return load_pair(config, dtype, {"torch": "cpu", "threads": 1})


def render_turns(texts: list[str]) -> list[list[int]]:
    """Return the token ids of single user turns."""
    tokenizer = load_tokenizer(POCKET / "target")
    return [render(tokenizer, [{"role": "user", "content": text}], {})[1] for text in texts]


def draw_prompts(count: int) -> list[list[int]]:
    """Return `count` first turns of each domain."""
    conversations = [draw_conversation(d, PROMPT_SEED, i) for d in GENERATORS for i in range(count)]
    return render_turns([turns[0][0] for turns in conversations])
