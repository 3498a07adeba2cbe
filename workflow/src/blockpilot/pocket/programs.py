"""A seeded grammar of requests for small Python functions, and their answers."""

from __future__ import annotations

import ast
import random
from typing import Any

from blockpilot.pocket.program_grammar import (
    DICTS,
    FILTERS,
    INPUTS,
    LABELS,
    SOURCES,
    WORDS,
    Plan,
    Sink,
    Turn,
    any_sinks,
    apply_op,
    draw_map,
    num_sinks,
    plain_sinks,
    text_sinks,
)


def _branches(rng: random.Random, kind: str) -> Sink:
    """A two or three way choice that adds amounts or labels."""
    one, two = FILTERS[kind](rng), FILTERS[kind](rng)
    if rng.random() < 0.5:
        vals = [repr(w) for w in rng.sample(LABELS, 3)]
        init, put, ret = "result = []", "result.append(%s)", "result"
        out, lead = "list[str]", "list"
    else:
        vals = [str(k) for k in rng.sample(range(1, 10), 3)]
        init, put, ret = "total = 0", "total += %s", "total"
        out, lead = "int", "total"
        if kind == "num" and rng.random() < 0.6:
            vals[rng.randint(0, 1)] = "{v}"
    said = ["the item itself" if v == "{v}" else v for v in vals]
    three = rng.random() < 0.5 and one.slug != two.slug
    lines = [f"if {one.expr}:", "    " + put % vals[0]]
    lines += [f"elif {two.expr}:", "    " + put % vals[1]] if three else []
    lines += ["else:", "    " + put % vals[2]]
    mid = f", {said[1]} for those that {two.text}" if three else ""
    rule = f"{said[0]} for those that {one.text}{mid} and {said[2]} for the rest"
    pick = f"{vals[0]} if {one.expr} else {vals[2]}"
    comp = "" if three else (f"[{pick} {{for}}]" if lead == "list" else f"sum({pick} {{for}})")
    return Sink(
        "label" if lead == "list" else "score",
        f"a {lead} over {{x}}: {rule}",
        f"return a {lead}: {rule}",
        [init],
        lines,
        ret,
        comp,
        out,
        "Choose by the rule.",
    )


def _source(rng: random.Random, nfilters: int) -> tuple[Plan, str, str]:
    """Pick a source and its filters; return the plan so far, the item kind and variable."""
    src = rng.choices(["num", "word", "text", "rows", "dict"], [8, 7, 3, 4, 5])[0]
    kind = {"text": "char", "rows": "num", "dict": "num"}.get(src, src)
    filters = [FILTERS[kind](rng) for _ in range(nfilters)]
    if len(filters) == 2 and filters[0].slug == filters[1].slug:
        filters.pop()
    said = " and ".join(f.text for f in filters)
    if src == "dict":
        arg, noun, var, value, context = rng.choice(DICTS)
        head, conds = f"{var}, {value} in {arg}.items()", [f.expr.format(v=value) for f in filters]
        items = f"the {noun}" + f" whose {value} {said}".replace(" are ", " is ") * bool(said)
        kind, heads, hint = "word", [head], "dict[str, int]"
        if not filters:  # Without a test on the value, the keys alone are the items.
            heads = [f"{var} in {arg}"]
    else:
        arg, noun, var, context = rng.choice(SOURCES[src])
        cut = rng.randint(2, 3) if src in ("num", "word") and rng.random() < 0.15 else 0
        place = f"{arg}[:{cut}]" if cut else arg
        heads = ["row in " + arg, f"{var} in row"] if src == "rows" else [f"{var} in {place}"]
        conds, hint = [f.expr.format(v=var) for f in filters], INPUTS[src]
        items = f"the first {cut} {noun}" if cut else f"the {noun}"
        if said:  # "those of" tells that the slice comes before the test.
            items = ("those of " if cut else "") + f"{items} that {said}"
    test = " if " + " and ".join(conds) if conds else ""
    clause = " ".join("for " + h for h in heads) + test
    plan = Plan(
        arg,
        hint,
        src,
        heads,
        clause,
        items,
        ["take " + items],
        conds,
        Sink("", "", "", [], [], ""),
        [f.slug for f in filters],
        context,
    )
    return plan, kind, var


def _plan(rng: random.Random) -> Plan:
    nfilters, nmaps = rng.choices([0, 1, 2], [3, 6, 3])[0], rng.choices([0, 1, 2], [4, 6, 3])[0]
    branch = rng.random() < 0.4  # Most branch programs are too long and get drawn again.
    if branch:
        nfilters, nmaps = min(nfilters, 1), 0
    plan, kind, var = _source(rng, nfilters)
    start, expr, maps = kind, var, []
    for _ in range(nmaps):
        op = draw_map(rng, kind)
        if all(op.slug != m.slug for m in maps):
            maps, expr, kind = [*maps, op], apply_op(op, expr), op.out
    sinks = any_sinks(rng, kind) + (num_sinks(rng) if kind == "num" else text_sinks(rng))
    sinks += [] if maps else plain_sinks(rng, start)
    plan.sink = sink = _branches(rng, start) if branch else rng.choice(sinks)
    plain, mapped = plan.items, ", each " + " and then ".join(m.text for m in maps)
    plan.items = plain + mapped if maps else plain
    plan.steps += [m.do for m in maps] + [sink.do]
    plan.parts = [sink.slug, *plan.parts, *(m.slug for m in maps)]

    def fill(text: str) -> str:
        shown = f"({expr})" if " " in expr and ("{e} %" in text or "{e}[" in text) else expr
        text = text.replace("{e}", shown).replace("{v}", var).replace("{for}", plan.clause)
        return text.replace("{x}", plan.items)

    sink.text, sink.comp, sink.update = (
        fill(sink.text),
        fill(sink.comp),
        [fill(line) for line in sink.update],
    )
    comp = bool(sink.comp) and rng.random() < 0.5
    plan.flags = {
        "comp": comp,
        "hints": rng.random() < 0.35,
        "two": rng.random() < 0.5,
        "comments": rng.random() < 0.35,
        "explain": rng.random() < 0.35,
    }
    plan.name = _name(rng, plan)
    return plan


def _name(rng: random.Random, plan: Plan) -> str:
    parts = plan.parts + ([plan.arg] if rng.random() < 0.6 or len(plan.parts) < 2 else [])
    name = "_".join(parts)
    return name if len(name) <= 30 else "_".join([plan.parts[0], plan.parts[-1], plan.arg])


def _body(plan: Plan) -> list[str]:
    sink, note = plan.sink, plan.flags["comments"]
    if plan.flags["comp"]:
        return [f"# {plan.steps[-1].capitalize()}."] * note + ["return " + sink.comp]
    lines, pad = list(sink.init), ""
    lines += [f"# Go through {plan.arg}."] * note
    for head in plan.headers:
        lines.append(f"{pad}for {head}:")
        pad += "    "
    if plan.conds:
        lines.append(f"{pad}if {' and '.join(plan.conds)}:")
        pad += "    "
    lines += [f"{pad}# {sink.doing}"] * note
    return [*lines, *(pad + line for line in sink.update), f"return {sink.ret}"]


def _sample(rng: random.Random, src: str) -> Any:
    words = rng.sample(WORDS, rng.randint(3, 4))
    if src == "word":
        return words
    if src == "text":
        return " ".join(words[:1]) if rng.random() < 0.5 else words[0] + words[1]
    if src == "dict":
        return {w: rng.randint(1, 14) for w in words[:3]}
    if src == "rows":
        return [[rng.randint(-3, 12) for _ in range(rng.randint(1, 3))] for _ in range(2)]
    low = -6 if rng.random() < 0.3 else 0
    return [rng.randint(low, 15) for _ in range(rng.randint(3, 5))]


def _examples(rng: random.Random, plan: Plan, head: str, body: list[str]) -> list[str]:
    """Run the program on random inputs; the first result must not be empty or a default."""
    space: dict[str, Any] = {}
    exec("\n".join([head, *("    " + line for line in body)]), space)  # our own text
    out: list[str] = []
    want = 2 if plan.flags["two"] else 1
    for _ in range(12):
        value = _sample(rng, plan.sample)
        result = space[plan.name](value)
        small = not isinstance(result, int) or abs(result) < 1000
        usable = result is not None and small and len(repr(result)) < 60
        line = f">>> {plan.name}({value!r})"
        telling = out or (result and repr(result) != plan.sink.ret)
        if usable and telling and line not in out:
            out += [line, repr(result)]
        if len(out) == 2 * want:
            return out
    return []


def _response(rng: random.Random, plan: Plan) -> str:
    arg = f"{plan.arg}: {plan.hint}" if plan.flags["hints"] else plan.arg
    arrow = f" -> {plan.sink.out}" if plan.flags["hints"] else ""
    head, body = f"def {plan.name}({arg}){arrow}:", _body(plan)
    examples = _examples(rng, plan, head, body)
    if not examples:
        return ""
    inner = [f'"""Return {plan.sink.text}.', "", *examples, '"""', *body]
    lines = [head, *("    " + line if line else "" for line in inner)]
    if plan.flags["explain"]:
        lines += ["", f"# How it works: {', then '.join(plan.steps)}."]
    return "\n".join(lines)


def _style(rng: random.Random, plan: Plan) -> str:
    """State every visible choice of the response."""
    f, way = plan.flags, "loop"
    if f["comp"]:
        way = rng.choice(["comprehension", "comprehension", "one-line expression"])
    said = [rng.choice([f"use a {way}", f"solve it with a {way}", f"write it as a {way}"])]
    count = "two examples" if f["two"] else "one example"
    said.append(rng.choice([f"give {count}", f"show {count}", f"put {count} in the docstring"]))
    if f["hints"] or rng.random() < 0.3:
        said.append(
            rng.choice(["with type hints", "add type hints"])
            if f["hints"]
            else rng.choice(["no type hints", "leave out type hints"])
        )
    if f["comments"]:
        said.append(rng.choice(["add comments", "comment the code"]))
    if f["explain"]:
        said.append(rng.choice(["explain it at the end", "end with how it works"]))
    rng.shuffle(said)
    text = ", ".join(said[:-1]) + " and " + said[-1]
    return text[0].upper() + text[1:] + "."


def _request(rng: random.Random, plan: Plan) -> str:
    call, what = f"`{plan.name}({plan.arg})`", plan.sink.text
    task = rng.choice(
        [
            f"Write a Python function {call} that returns {what}.",
            f"Please write {call} in Python. It should return {what}.",
            f"I need a Python function {call} which returns {what}.",
            f"Define {call} in Python so that it returns {what}.",
            f"Can you code a Python function {call}? It returns {what}.",
            f"Write a Python function {call} with these steps: {', then '.join(plan.steps)}.",
            f"Code {call} in Python: {', then '.join(plan.steps)}.",
        ]
    )
    bits = [task, _style(rng, plan)]
    # Types that the task words leave open are settled by the context sentence.
    if plan.sample in ("rows", "dict") or rng.random() < 0.5:
        bits.insert(rng.choice([0, 1]), plan.context)
    return " ".join(bits)


def make_conversation(rng: random.Random) -> list[Turn]:
    """Make one request for a small function and its answer.

    Args:
        rng: The only source of randomness.

    Returns:
        A list with one turn: the request and the code.
    """
    while True:
        plan = _plan(rng)
        response = _response(rng, plan)
        if not 190 <= len(response) <= 520 or max(map(len, response.split("\n"))) > 150:
            continue
        request = _request(rng, plan)
        if 100 <= len(request) <= 350:
            return [(request, response)]


def parses(response: str) -> bool:
    """Tell whether the response is valid Python with at least one function definition."""
    try:
        tree = ast.parse(response.strip())
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree))
