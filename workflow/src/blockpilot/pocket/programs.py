"""Seeded grammar of small Python programs: a request in words and a documented function.

A program is a source (list, text, rows, dict), up to two filters, up to two maps and one sink.
The docstring examples are computed by running the generated function.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Turn = tuple[str, str]

_INPUTS = {"num": "list[int]", "word": "list[str]", "text": "str", "rows": "list[list[int]]"}
_TYPES = {"num": "int", "word": "str", "char": "str"}
# Each source: argument, plural noun, loop variable, optional context sentence.
_SOURCES: dict[str, list[tuple[str, str, str, str]]] = {
    "num": [
        ("prices", "prices", "price", "The list holds the prices of books."),
        ("scores", "scores", "score", "The scores come from a quiz."),
        ("ages", "ages", "age", "The list holds the ages of pupils."),
        ("temps", "temperatures", "temp", "Each entry is the temperature of one day."),
        ("points", "points", "point", "A team wrote down its points."),
        ("weights", "weights", "weight", "The list holds the weights of boxes."),
        ("numbers", "numbers", "n", "The input is a list of whole numbers."),
        ("values", "values", "x", "A sensor sends these values."),
    ],
    "word": [
        ("words", "words", "word", "The input is a list of words."),
        ("names", "names", "name", "The list holds the names of pupils."),
        ("cities", "cities", "city", "The list holds cities from a map."),
        ("fruits", "fruits", "fruit", "The fruits are sold at a market."),
        ("tags", "tags", "tag", "The tags belong to photos."),
        ("colors", "colors", "color", "The list holds the colors of cars."),
    ],
    "text": [
        ("text", "letters", "c", "The input is a short text."),
        ("line", "letters", "char", "The line is read from a file."),
        ("message", "letters", "letter", "The message comes from a friend."),
    ],
    "rows": [
        ("rows", "numbers", "n", "Each row is a list of numbers."),
        ("grid", "cells", "cell", "The grid is a list of rows."),
        ("table", "entries", "entry", "The table holds one list per row."),
        ("matrix", "entries", "x", "The matrix is stored row by row."),
    ],
}
# Each dict: argument, plural key noun, key variable, value noun, context sentence.
_DICTS = [
    ("stock", "fruits", "fruit", "amount", "The dict maps each fruit to its amount."),
    ("grades", "pupils", "pupil", "grade", "The dict maps each pupil to a grade."),
    ("menu", "dishes", "dish", "price", "The menu maps each dish to its price."),
    ("ages", "names", "name", "age", "The dict maps each name to an age."),
]
_SAMPLE_WORDS = (
    "red blue green apple pear plum fig lemon mango cat dog bird fish horse anna ben carl dora "
    "emma rome paris oslo lima tree leaf stone river cloud bread milk salt tea moon star sun rain"
)
_WORDS = _SAMPLE_WORDS.split()
_LABELS = ["low", "high", "mid", "good", "bad", "big", "small", "yes", "ok", "rare", "fine"]


class _Op(NamedTuple):
    """One filter or map: words, imperative words, expression over {v}, name part, type."""

    text: str
    do: str
    expr: str
    slug: str
    out: str = ""


@dataclass
class _Sink:
    """How the chosen items become the result, as words, as a loop and as one expression."""

    slug: str
    text: str
    do: str
    init: list[str]
    update: list[str]
    ret: str
    comp: str = ""
    out: str = "int"
    doing: str = "Update the result."


@dataclass
class _Plan:
    """A program before it is written out."""

    arg: str
    hint: str
    sample: str
    headers: list[str]
    clause: str
    items: str
    steps: list[str]
    conds: list[str]
    sink: _Sink
    parts: list[str]
    context: str
    flags: dict[str, bool] = field(default_factory=dict)
    name: str = ""


def _num_filter(rng: random.Random) -> _Op:
    k, d, low = rng.randint(1, 12), rng.randint(3, 6), rng.randint(-2, 6)
    high = low + rng.randint(3, 8)
    return rng.choice(
        [
            _Op("are even", "", "{v} % 2 == 0", "even"),
            _Op("are odd", "", "{v} % 2 == 1", "odd"),
            _Op(f"are greater than {k}", "", f"{{v}} > {k}", f"over_{k}"),
            _Op(f"are less than {k}", "", f"{{v}} < {k}", f"under_{k}"),
            _Op(f"are at least {k}", "", f"{{v}} >= {k}", f"from_{k}"),
            _Op(f"are divisible by {d}", "", f"{{v}} % {d} == 0", f"div_{d}"),
            _Op(f"are not equal to {k}", "", f"{{v}} != {k}", f"not_{k}"),
            _Op("are positive", "", "{v} > 0", "positive"),
            _Op("are negative", "", "{v} < 0", "negative"),
            _Op(f"are between {low} and {high}", "", f"{low} <= {{v}} <= {high}", "between"),
        ]
    )


def _word_filter(rng: random.Random) -> _Op:
    k, c = rng.randint(2, 5), rng.choice("abcdefglmoprst")
    vowel = rng.choice("aeiorlnst")
    return rng.choice(
        [
            _Op(f"are longer than {k} letters", "", f"len({{v}}) > {k}", "long"),
            _Op(f"are shorter than {k + 1} letters", "", f"len({{v}}) < {k + 1}", "short"),
            _Op(f"are exactly {k + 1} letters long", "", f"len({{v}}) == {k + 1}", f"len_{k + 1}"),
            _Op(f"start with '{c}'", "", f"{{v}}.startswith('{c}')", f"start_{c}"),
            _Op(f"end with '{vowel}'", "", f"{{v}}.endswith('{vowel}')", f"end_{vowel}"),
            _Op(f"contain '{vowel}'", "", f"'{vowel}' in {{v}}", f"with_{vowel}"),
            _Op(f"do not contain '{vowel}'", "", f"'{vowel}' not in {{v}}", f"without_{vowel}"),
        ]
    )


def _char_filter(rng: random.Random) -> _Op:
    c, d = rng.choice("aeiorlnst"), rng.choice("cdefghiklmnopr")
    return rng.choice(
        [
            _Op("are vowels", "", "{v} in 'aeiou'", "vowels"),
            _Op("are not vowels", "", "{v} not in 'aeiou'", "no_vowels"),
            _Op(f"are not equal to '{c}'", "", f"{{v}} != '{c}'", f"not_{c}"),
            _Op(f"are after '{d}' in the alphabet", "", f"{{v}} > '{d}'", f"after_{d}"),
            _Op(f"are before '{d}' in the alphabet", "", f"{{v}} < '{d}'", f"before_{d}"),
        ]
    )


_FILTERS = {"num": _num_filter, "word": _word_filter, "char": _char_filter}


def _map(rng: random.Random, kind: str) -> _Op:
    k, m, s = rng.randint(1, 9), rng.randint(2, 5), rng.choice("abcdeknrstyz!?.-")
    ops = {
        "num": [
            _Op("squared", "square each", "{v} ** 2", "squared", "num"),
            _Op(f"increased by {k}", f"add {k} to each", f"{{v}} + {k}", f"plus_{k}", "num"),
            _Op(f"lowered by {k}", f"subtract {k} from each", f"{{v}} - {k}", f"minus_{k}", "num"),
            _Op(f"multiplied by {m}", f"multiply each by {m}", f"{{v}} * {m}", f"times_{m}", "num"),
            _Op(
                f"reduced modulo {m + 1}",
                f"take each modulo {m + 1}",
                f"{{v}} % {m + 1}",
                f"mod_{m + 1}",
                "num",
            ),
            _Op("negated", "negate each", "-{v}", "negated", "num"),
            _Op("made absolute", "make each absolute", "abs({v})", "abs", "num"),
        ],
        "word": [
            _Op("in upper case", "put each in upper case", "{v}.upper()", "upper", "word"),
            _Op("reversed", "reverse each", "{v}[::-1]", "reversed", "word"),
            _Op(f"cut to {m} letters", f"cut each to {m} letters", f"{{v}}[:{m}]", "cut", "word"),
            _Op("capitalized", "capitalize each", "{v}.capitalize()", "capital", "word"),
            _Op(f"followed by '{s}'", f"put '{s}' after each", f"{{v}} + '{s}'", "ended", "word"),
            _Op("replaced by its length", "replace each by its length", "len({v})", "len", "num"),
        ],
        "char": [
            _Op("in upper case", "put each in upper case", "{v}.upper()", "upper", "char"),
            _Op(f"repeated {m} times", f"repeat each {m} times", f"{{v}} * {m}", "rep", "char"),
            _Op(f"followed by '{s}'", f"put '{s}' after each", f"{{v}} + '{s}'", "ended", "char"),
        ],
    }
    return rng.choice(ops[kind])


def _apply(op: _Op, expr: str) -> str:
    atomic = isinstance(ast.parse(expr, mode="eval").body, ast.Name | ast.Call | ast.Subscript)
    if not atomic and "({v})" not in op.expr:
        expr = f"({expr})"
    return op.expr.replace("{v}", expr)


# In sinks, {e} is the mapped item, {v} the plain item, {for} the clause of a comprehension
# and {x} the words for the items.
def _num_sinks(rng: random.Random) -> list[_Sink]:
    s, k = rng.randint(2, 5), rng.randint(1, 9)
    p = rng.choice([0, 0, 0, k])
    plus, words = (f" + {p}", f" plus {p}") if p else ("", "")
    best = ["if best is None or {e} {op} best:", "    best = {e}"]
    out = [
        _Sink(
            "sum",
            "the sum of {x}" + (f", with {p} added to the sum" if p else ""),
            "return the sum" + words,
            ["total = 0"],
            ["total += {e}"],
            "total" + plus,
            "sum({e} {for})" + plus,
            doing="Add it to the total.",
        ),
        _Sink(
            "product",
            f"{s} times the product of {{x}}",
            f"return {s} times the product",
            [f"result = {s}"],
            ["result *= {e}"],
            "result",
            doing="Multiply the result by it.",
        ),
        _Sink(
            "running",
            "the list of running totals of {x}",
            "return the running totals",
            ["total = 0", "result = []"],
            ["total += {e}", "result.append(total)"],
            "result",
            out="list[int]",
            doing="Store the total so far.",
        ),
    ]
    for word, fn, op in [("largest", "max", ">"), ("smallest", "min", "<")]:
        out.append(
            _Sink(
                fn,
                f"the {word} of {{x}}",
                f"return the {word}",
                ["best = None"],
                [b.replace("{op}", op) for b in best],
                "best",
                f"{fn}(({{e}} {{for}}), default=None)",
                "int | None",
                f"Remember the {word} so far.",
            )
        )
    return out


def _key(rng: random.Random, kind: str) -> tuple[str, str]:
    m = rng.randint(2, 5)
    keys = {
        "num": [(f"remainder modulo {m}", f"{{e}} % {m}"), ("last digit", "abs({e}) % 10")],
        "word": [("first letter", "{e}[0]"), ("length", "len({e})"), ("last letter", "{e}[-1]")],
        "char": [("letter", "{e}")],
    }
    return rng.choice(keys[kind])


def _any_sinks(rng: random.Random, kind: str) -> list[_Sink]:
    typ, k = _TYPES[kind], rng.randint(0, 9)
    default = str(-k) if kind == "num" else rng.choice(["''", "'none'", "'?'"])
    by, key = _key(rng, kind)
    return [
        _Sink(
            "list",
            "a list of {x}",
            "return them as a list",
            ["result = []"],
            ["result.append({e})"],
            "result",
            "[{e} {for}]",
            f"list[{typ}]",
            "Put it in the list.",
        ),
        _Sink(
            "first",
            f"the first of {{x}}, or {default} if there is none",
            f"return the first, or {default} if there is none",
            [],
            ["return {e}"],
            default,
            f"next(({{e}} {{for}}), {default})",
            typ,
            "Stop at the first match.",
        ),
        _Sink(
            "last",
            f"the last of {{x}}, or {default} if there is none",
            f"return the last, or {default} if there is none",
            [f"result = {default}"],
            ["result = {e}"],
            "result",
            out=typ,
            doing="Keep the latest match.",
        ),
        _Sink(
            "count_by",
            f"a dict by {by} with the counts of {{x}}",
            f"count by {by} in a dict",
            ["counts = {}"],
            [f"key = {key}", "counts[key] = counts.get(key, 0) + 1"],
            "counts",
            out="dict",
            doing="Count one more for this key.",
        ),
        _Sink(
            "group",
            f"a dict by {by} with the groups of {{x}}",
            f"group them by {by} in a dict",
            ["groups = {}"],
            [f"key = {key}", "groups.setdefault(key, []).append({e})"],
            "groups",
            out="dict",
            doing="Put it in the group of its key.",
        ),
    ]


def _text_sinks(rng: random.Random) -> list[_Sink]:
    sep = rng.choice([" ", "-", ", ", "+", "/", "_"])
    return [
        _Sink(
            "join",
            f"a string of {{x}}, joined by '{sep}'",
            f"join them by '{sep}'",
            ["parts = []"],
            ["parts.append({e})"],
            f"'{sep}'.join(parts)",
            f"'{sep}'.join({{e}} {{for}})",
            "str",
            "Collect the parts.",
        ),
        _Sink(
            "build",
            "one string built from {x}",
            "build one string from them",
            ["result = ''"],
            ["result += {e}"],
            "result",
            "''.join({e} {for})",
            "str",
            "Add it to the string.",
        ),
    ]


def _plain_sinks(rng: random.Random, kind: str) -> list[_Sink]:
    """Sinks over unmapped items: counting and tests."""
    one = _FILTERS[kind](rng)
    count = _Sink(
        "count",
        "the number of {x}",
        "return how many there are",
        ["count = 0"],
        ["count += 1"],
        "count",
        "sum(1 {for})",
        doing="Count one more.",
    )
    hit = _Sink(
        "has",
        f"whether some of {{x}} {one.text}",
        f"return whether some {one.text}",
        [],
        [f"if {one.expr}:", "    return True"],
        "False",
        f"any({one.expr} {{for}})",
        "bool",
        "One match is enough.",
    )
    return [count, hit]


def _branches(rng: random.Random, kind: str) -> _Sink:
    """A two or three way choice that adds amounts or labels."""
    one, two = _FILTERS[kind](rng), _FILTERS[kind](rng)
    if rng.random() < 0.5:
        vals = [repr(w) for w in rng.sample(_LABELS, 3)]
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
    return _Sink(
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


def _source(rng: random.Random, nfilters: int) -> tuple[_Plan, str, str]:
    """Pick a source and its filters; return the plan so far, the item kind and variable."""
    src = rng.choices(["num", "word", "text", "rows", "dict"], [8, 7, 3, 4, 5])[0]
    kind = {"text": "char", "rows": "num", "dict": "num"}.get(src, src)
    filters = [_FILTERS[kind](rng) for _ in range(nfilters)]
    if len(filters) == 2 and filters[0].slug == filters[1].slug:
        filters.pop()
    said = " and ".join(f.text for f in filters)
    if src == "dict":
        arg, noun, var, value, context = rng.choice(_DICTS)
        head, conds = f"{var}, {value} in {arg}.items()", [f.expr.format(v=value) for f in filters]
        items = f"the {noun}" + f" whose {value} {said}".replace(" are ", " is ") * bool(said)
        kind, heads, hint = "word", [head], "dict[str, int]"
        if not filters:  # Without a test on the value, the keys alone are the items.
            heads = [f"{var} in {arg}"]
    else:
        arg, noun, var, context = rng.choice(_SOURCES[src])
        cut = rng.randint(2, 3) if src in ("num", "word") and rng.random() < 0.15 else 0
        place = f"{arg}[:{cut}]" if cut else arg
        heads = ["row in " + arg, f"{var} in row"] if src == "rows" else [f"{var} in {place}"]
        conds, hint = [f.expr.format(v=var) for f in filters], _INPUTS[src]
        items = f"the first {cut} {noun}" if cut else f"the {noun}"
        if said:  # "those of" tells that the slice comes before the test.
            items = ("those of " if cut else "") + f"{items} that {said}"
    test = " if " + " and ".join(conds) if conds else ""
    clause = " ".join("for " + h for h in heads) + test
    plan = _Plan(
        arg,
        hint,
        src,
        heads,
        clause,
        items,
        ["take " + items],
        conds,
        _Sink("", "", "", [], [], ""),
        [f.slug for f in filters],
        context,
    )
    return plan, kind, var


def _plan(rng: random.Random) -> _Plan:
    nfilters, nmaps = rng.choices([0, 1, 2], [3, 6, 3])[0], rng.choices([0, 1, 2], [4, 6, 3])[0]
    branch = rng.random() < 0.4  # Most branch programs are too long and get drawn again.
    if branch:
        nfilters, nmaps = min(nfilters, 1), 0
    plan, kind, var = _source(rng, nfilters)
    start, expr, maps = kind, var, []
    for _ in range(nmaps):
        op = _map(rng, kind)
        if all(op.slug != m.slug for m in maps):
            maps, expr, kind = [*maps, op], _apply(op, expr), op.out
    sinks = _any_sinks(rng, kind) + (_num_sinks(rng) if kind == "num" else _text_sinks(rng))
    sinks += [] if maps else _plain_sinks(rng, start)
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


def _name(rng: random.Random, plan: _Plan) -> str:
    parts = plan.parts + ([plan.arg] if rng.random() < 0.6 or len(plan.parts) < 2 else [])
    name = "_".join(parts)
    return name if len(name) <= 30 else "_".join([plan.parts[0], plan.parts[-1], plan.arg])


def _body(plan: _Plan) -> list[str]:
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
    words = rng.sample(_WORDS, rng.randint(3, 4))
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


def _examples(rng: random.Random, plan: _Plan, head: str, body: list[str]) -> list[str]:
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


def _response(rng: random.Random, plan: _Plan) -> str:
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


def _style(rng: random.Random, plan: _Plan) -> str:
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


def _request(rng: random.Random, plan: _Plan) -> str:
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
