"""What small programs are made of: sources, filters, maps and sinks, in code and in words."""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass, field
from typing import NamedTuple

Turn = tuple[str, str]

INPUTS = {"num": "list[int]", "word": "list[str]", "text": "str", "rows": "list[list[int]]"}
_TYPES = {"num": "int", "word": "str", "char": "str"}
# Each source: argument, plural noun, loop variable, optional context sentence.
SOURCES: dict[str, list[tuple[str, str, str, str]]] = {
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
DICTS = [
    ("stock", "fruits", "fruit", "amount", "The dict maps each fruit to its amount."),
    ("grades", "pupils", "pupil", "grade", "The dict maps each pupil to a grade."),
    ("menu", "dishes", "dish", "price", "The menu maps each dish to its price."),
    ("ages", "names", "name", "age", "The dict maps each name to an age."),
]
_SAMPLE_WORDS = (
    "red blue green apple pear plum fig lemon mango cat dog bird fish horse anna ben carl dora "
    "emma rome paris oslo lima tree leaf stone river cloud bread milk salt tea moon star sun rain"
)
WORDS = _SAMPLE_WORDS.split()
LABELS = ["low", "high", "mid", "good", "bad", "big", "small", "yes", "ok", "rare", "fine"]


class _Op(NamedTuple):
    """One filter or map: words, imperative words, expression over {v}, name part, type."""

    text: str
    do: str
    expr: str
    slug: str
    out: str = ""


@dataclass
class Sink:
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
class Plan:
    """A program before it is written out."""

    arg: str
    hint: str
    sample: str
    headers: list[str]
    clause: str
    items: str
    steps: list[str]
    conds: list[str]
    sink: Sink
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


FILTERS = {"num": _num_filter, "word": _word_filter, "char": _char_filter}


def draw_map(rng: random.Random, kind: str) -> _Op:
    """Draw a map over items of a kind."""
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


def apply_op(op: _Op, expr: str) -> str:
    """Return the code of `op` applied to an expression."""
    atomic = isinstance(ast.parse(expr, mode="eval").body, ast.Name | ast.Call | ast.Subscript)
    if not atomic and "({v})" not in op.expr:
        expr = f"({expr})"
    return op.expr.replace("{v}", expr)


# In sinks, {e} is the mapped item, {v} the plain item, {for} the clause of a comprehension
# and {x} the words for the items.
def num_sinks(rng: random.Random) -> list[Sink]:
    """Return the sinks of numbers."""
    s, k = rng.randint(2, 5), rng.randint(1, 9)
    p = rng.choice([0, 0, 0, k])
    plus, words = (f" + {p}", f" plus {p}") if p else ("", "")
    best = ["if best is None or {e} {op} best:", "    best = {e}"]
    out = [
        Sink(
            "sum",
            "the sum of {x}" + (f", with {p} added to the sum" if p else ""),
            "return the sum" + words,
            ["total = 0"],
            ["total += {e}"],
            "total" + plus,
            "sum({e} {for})" + plus,
            doing="Add it to the total.",
        ),
        Sink(
            "product",
            f"{s} times the product of {{x}}",
            f"return {s} times the product",
            [f"result = {s}"],
            ["result *= {e}"],
            "result",
            doing="Multiply the result by it.",
        ),
        Sink(
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
            Sink(
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


def any_sinks(rng: random.Random, kind: str) -> list[Sink]:
    """Return the sinks of any items."""
    typ, k = _TYPES[kind], rng.randint(0, 9)
    default = str(-k) if kind == "num" else rng.choice(["''", "'none'", "'?'"])
    by, key = _key(rng, kind)
    return [
        Sink(
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
        Sink(
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
        Sink(
            "last",
            f"the last of {{x}}, or {default} if there is none",
            f"return the last, or {default} if there is none",
            [f"result = {default}"],
            ["result = {e}"],
            "result",
            out=typ,
            doing="Keep the latest match.",
        ),
        Sink(
            "count_by",
            f"a dict by {by} with the counts of {{x}}",
            f"count by {by} in a dict",
            ["counts = {}"],
            [f"key = {key}", "counts[key] = counts.get(key, 0) + 1"],
            "counts",
            out="dict",
            doing="Count one more for this key.",
        ),
        Sink(
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


def text_sinks(rng: random.Random) -> list[Sink]:
    """Return the sinks that build texts."""
    sep = rng.choice([" ", "-", ", ", "+", "/", "_"])
    return [
        Sink(
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
        Sink(
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


def plain_sinks(rng: random.Random, kind: str) -> list[Sink]:
    """Return the sinks of unmapped items."""
    """Sinks over unmapped items: counting and tests."""
    one = FILTERS[kind](rng)
    count = Sink(
        "count",
        "the number of {x}",
        "return how many there are",
        ["count = 0"],
        ["count += 1"],
        "count",
        "sum(1 {for})",
        doing="Count one more.",
    )
    hit = Sink(
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
