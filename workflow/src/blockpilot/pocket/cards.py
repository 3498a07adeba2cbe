"""Model cards of the embedded pair: what it is, how it was trained, which goals it meets."""

from __future__ import annotations

from collections.abc import Iterator

DOMAINS = ("arithmetic", "code", "prose")
# (goal, value as a function of the measurements, lower and upper bound)
GOALS = (
    *((f"median response, {d} (tokens)", ("text", d, "median_tokens"), 64, None) for d in DOMAINS),
    *((f"looping responses, {d} (share)", ("text", d, "loop_share"), None, 0.05) for d in DOMAINS),
    *(
        (f"ended by the stop token, {d} (share)", ("text", d, "stop_share"), 0.90, None)
        for d in DOMAINS
    ),
    (
        "right final answers, arithmetic (share)",
        ("text", "arithmetic", "correct_share"),
        0.60,
        None,
    ),
    ("functions that parse, code (share)", ("text", "code", "correct_share"), 0.70, None),
    ("tau_mean at the trained block size, T=0", ("tau_T0",), 2.5, 7.0),
    ("tau_mean at the trained block size, T=1", ("tau_T1",), 1.3, None),
    ("ties among B-2..B+2, T=0 (share)", ("tie_share",), None, 0.30),
)


def check_goals(measured: dict) -> Iterator[dict]:
    """Yield one row per quality goal: goal, allowed, measured, met."""
    for goal, path, low, high in GOALS:
        value = measured
        for key in path:
            value = value[key]
        allowed = " and ".join(
            text
            for text in (
                f">= {low:g}" if low is not None else "",
                f"<= {high:g}" if high is not None else "",
            )
            if text
        )
        met = (low is None or value >= low) and (high is None or value <= high)
        yield {"goal": goal, "allowed": allowed, "measured": round(float(value), 4), "met": met}


def render_card(name: str, lead: str, facts: dict[str, object], history: list[dict], goals: list):
    """Return a model card as Markdown.

    Args:
        name: Title.
        lead: What the model is and is not for.
        facts: Architecture and training, shown as a table.
        history: Validation rows of the training loop; first, middle and last are shown.
        goals: Rows of `check_goals`.
    """
    shown = [history[0], history[len(history) // 2], history[-1]]
    columns = [key for key in history[0] if key != "elapsed_s"]
    lines = [
        "---",
        "license: apache-2.0",
        "library_name: blockpilot",
        "---",
        f"# {name}",
        "",
        lead,
        "",
        *_table(("", ""), [(key, value) for key, value in facts.items()]),
        "",
        "## Training",
        "",
        *_table(columns, [[_number(row[c]) for c in columns] for row in shown]),
        "",
        "## Quality goals, on held-out prompts",
        "",
        "Missed goals are listed too.",
        "",
        *_table(
            ("goal", "allowed", "measured", "met"),
            [
                (g["goal"], g["allowed"], _number(g["measured"]), "yes" if g["met"] else "no")
                for g in goals
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _table(header, rows) -> list[str]:
    lines = ["| " + " | ".join(map(str, header)) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]
