"""Seeded grammar of arithmetic word problems with worked steps."""

import random
import re
from collections import namedtuple
from itertools import pairwise

Turn = tuple[str, str]  # (user text, assistant text)


def _list(text: str, separator: str = " ") -> list[str]:
    return text.split(separator)


_SHE = _list(
    "Ana Mia Zoe Ella Nora Lucy Ruth Ivy Rosa Clara Emma Julia Lena Maya Nina Olga Priya Sara "
    "Tina Vera Wendy Yuki Amina Bella Daisy Fiona Grace Helen Irene Jane"
)
_HE = _list(
    "Ben Tom Leo Max Sam Omar Paul Ravi Hugo Ivan Jack Karl Liam Marco Noah Oscar Pedro Ryan "
    "Simon Theo Victor Will Adam Bruno Colin David Felix Gary Henry Jonas"
)
_THINGS = _list(
    "shell marble stamp coin sticker button bead card pebble feather key badge ribbon magnet "
    "acorn apple pear plum lemon carrot pen pencil crayon book comic poster balloon candle cup "
    "plate spoon toy ball kite brick rope lamp hat sock ring flower seed photo puzzle"
)
_BAKES = "muffin cookie biscuit bun cupcake scone bagel waffle pancake pretzel tart pie brownie"
_PLACES = _list("library market park beach school station museum lake bakery castle river zoo")
_TREATS = _list("lunch|a book|a ticket|an umbrella|a haircut|a cake|a map|a bus ride|fruit", "|")
_DAYS = _list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_LEADS = (
    "First|Then|After that|Later|In the end",
    "At first|Next|Then|Soon after|At last",
    "In the morning|At noon|After lunch|In the evening|At night",
)
# Clause templates, joined by "|", of one kind of running-total story.
# A clause with {n} changes the total directly; one with {k} and {m} needs a product first.
_Story = namedtuple("_Story", "items starts gains losses asks shares")
# One equation; the clause is empty when it only updates the running total.
_Step = namedtuple("_Step", "lead clause left op right result unit")
# The opening is the start fact, empty when the first step already states it.
_Problem = namedtuple("_Problem", "facts opening steps ask")
_SHARES = [
    ("{p} shares all the {i} equally among {d} friends", "How many {i} does each friend get?"),
    ("{p} puts all the {i} equally into {d} boxes", "How many {i} are in each box?"),
    ("{p} splits all the {i} evenly into {d} groups", "How many {i} are in each group?"),
]
_COLLECT = _Story(
    _THINGS,
    "{S} has {n} {i}|{S} starts with {n} {i}|{S} stores {n} {i}|{S} owns {k} bags of {m} {i}",
    "{p} finds {n} {i}|{p} buys {n} {i} at the {place}|{p} wins {n} {i}|{p} gets {n} {i} from {f}|"
    "{p} collects {n} {i}|{p} buys {k} bags of {m} {i}|{p} finds {k} boxes of {m} {i}",
    "{p} loses {n} {i}|{p} gives {n} {i} to {f}|{p} sells {n} {i}|{p} gives away {n} {i}|"
    "{p} leaves {n} {i} at the {place}|{p} gives {k} friends {m} {i} each|"
    "{p} sells {k} packs of {m} {i}",
    "How many {i} does {S} have now?|How many {i} are left with {S}?",
    _SHARES,
)
_MONEY = _Story(
    ["dollar"],
    "{S} has {n} {i}|{S} takes {n} {i} to the {place}|{S} has saved {n} {i}|"
    "{S} works for {k} hours at {m} {i} an hour",
    "{p} earns {n} {i}|{p} finds {n} {i} near the {place}|{f} pays back {n} {i}|"
    "{p} sells {k} {t} for {m} {i} each",
    "{p} pays {n} {i} for {treat}|{p} spends {n} {i} on {treat}|{p} lends {n} {i} to {f}|"
    "{p} buys {k} {t} for {m} {i} each|{p} pays for {k} {t} at {m} {i} each",
    "How many {i} does {S} have left?|How many {i} remain?|How many {i} are left?",
    [
        ("{p} spreads all the {i} equally over {d} weeks", "How many {i} are there for each week?"),
        ("{p} splits all the {i} evenly between {d} jars", "How many {i} are in each jar?"),
    ],
)
_BAKE = _Story(
    _list(_BAKES),
    "{S} bakes {k} trays of {m} {i}|{S} makes {k} batches of {m} {i}|{S} bakes {n} {i}",
    "{p} bakes {n} more {i}|{p} gets {n} {i} from {f}|{p} makes {k} batches of {m} {i}|"
    "{p} bakes {k} trays of {m} {i}",
    "{p} burns {n} {i}|{p} sells {n} {i} at the {place}|{p} eats {n} {i} with {f}|"
    "{p} drops {n} {i}|{p} sells {k} bags of {m} {i}|{p} gives {k} guests {m} {i} each",
    "How many {i} does {S} have now?|How many {i} are left?|How many {i} remain in the kitchen?",
    _SHARES,
)
_SEATING = _Story(
    _list("chair|seat|stool|cushion|folding chair", "|"),
    "{S} sets up {k} rows of {m} {i} at the {place}|{S} works in a hall with {k} rows of {m} {i}|"
    "{S} sets out {n} {i} at the {place}",
    "{p} adds {n} {i}|{p} brings in {n} {i}|{f} carries in {n} {i}|{p} adds {k} rows of {m} {i}",
    "{p} takes away {n} {i}|{f} removes {n} {i}|{p} removes {n} broken {i}|guests fill {n} {i}|"
    "{p} removes {k} rows of {m} {i}",
    "How many free {i} are there now?|How many {i} can still be used?",
    [("{p} arranges all the free {i} equally in {d} rows", "How many {i} are in each row?")],
)
_TRAVEL = _Story(
    ["km"],
    "{S} walks {n} {i} to the {place}|{S} cycles {n} {i} to the {place}|"
    "{S} rides for {k} hours at {m} {i} an hour",
    "{p} walks {n} {i} to the {place}|{p} runs {n} {i}|{p} cycles {n} {i} with {f}|"
    "{p} drives {n} {i} past the {place}|{p} rides for {k} hours at {m} {i} an hour",
    "",
    "How many {i} does {S} travel in all?|How long is the whole trip in {i}?",
    [("{p} splits the whole way evenly into {d} parts", "How many {i} are in each part?")],
)
_TRAIL = _Story(
    ["km"],
    "{S} plans a trip of {n} {i} to the {place}|{S} has {n} {i} to go to the {place}",
    "",
    "{p} walks {n} {i}|{p} cycles {n} {i} with {f}|{p} covers {n} {i} by bus|"
    "{p} rides for {k} hours at {m} {i} an hour|{p} walks {k} legs of {m} {i}",
    "How many {i} are still to go?|How many {i} are left for {S}?",
    [("{p} splits the rest of the trip evenly over {d} days", "How many {i} is that per day?")],
)
_STORIES = [_COLLECT, _COLLECT, _MONEY, _BAKE, _SEATING, _TRAVEL, _TRAIL]
_INSTRUCTIONS = {
    "brief": "Answer briefly.|Keep it short.|Give short steps only.|Be brief.|Use short steps.",
    "explain": "Explain each step.|Please explain every step.|Explain how you get there.|"
    "Explain your steps in sentences.|Explain it to me step by step.",
    "check": "Show your working and check it.|Work it out and check the result.|"
    "Solve it and check your last step.|Give the working with a check.|Please check your answer.",
}
_INVERSE = {"+": "-", "-": "+", "x": "/", "/": "x"}
_LINKS = ["We work out", "That means", "Now"]
_ENDS = {
    "+": ["so the total grows to", "which makes", "so now we have"],
    "-": ["so the number drops to", "which leaves", "so now we have"],
    "x": ["so that is", "which makes", "so we count"],
    "/": ["so each part is", "which gives", "so we get"],
}


def _plural(unit: str, count: int = 2) -> str:
    return unit if unit == "km" or count == 1 else unit + "s"


def _step(lead: str, clause: str, left: int, op: str, right: int, unit: str) -> _Step:
    results = {"+": left + right, "-": left - right, "x": left * right, "/": left // (right or 1)}
    return _Step(lead, clause, left, op, right, results[op], unit)


def _sentence(lead: str, clause: str) -> str:
    text = f"{lead} {clause}" if lead else clause
    return text[:1].upper() + text[1:] + "."


def _leads(rng: random.Random) -> list[str]:
    first = rng.randint(0, 6)
    days = [f"On {_DAYS[(first + offset) % 7]}" for offset in range(5)]
    return days if rng.random() < 0.4 else _list(rng.choice(_LEADS), "|")


def _fill(rng: random.Random, templates: str, words: dict, n: int) -> tuple[str, list[int]]:
    """Fills one clause; returns it with its amount, or with its two factors."""
    template = rng.choice(_list(templates, "|"))
    k, m = rng.randint(2, 6), rng.choice([rng.randint(2, 6), rng.randint(2, 12)])
    clause = template.format(
        **words,
        n=n,
        k=k,
        m=m,
        place=rng.choice(_PLACES),
        treat=rng.choice(_TREATS),
        t=_plural(rng.choice(_THINGS)),
        f=rng.choice([name for name in _SHE + _HE if name != words["S"]]),
    )
    return clause, [n] if "{n}" in template else [k, m]


def _event(rng: random.Random, story: _Story, words: dict, lead: str, total: int) -> list[_Step]:
    """Returns the one or two steps of an event that changes the running total."""
    # Losing gets likelier with the total, which keeps totals small.
    lose = bool(story.losses) and (not story.gains or rng.random() < 0.3 + total / 150)
    # Small amounts dominate because a tiny model sees each of their sums often enough.
    amount = rng.choice([rng.randint(2, 12), rng.randint(2, 25)])
    clause, numbers = _fill(rng, story.losses if lose else story.gains, words, amount)
    op, unit = "-" if lose else "+", words["unit"]
    if len(numbers) == 1:
        return [_step(lead, clause, total, op, amount, unit)]
    product = _step(lead, clause, numbers[0], "x", numbers[1], unit)
    return [product, _step("", "", total, op, product.result, unit)]


def _running(rng: random.Random) -> _Problem:
    story, name = rng.choice(_STORIES), rng.choice(_SHE + _HE)
    unit, pronoun = rng.choice(story.items), "she" if name in _SHE else "he"
    words = {"S": name, "p": rng.choice([name, pronoun, pronoun]), "i": _plural(unit), "unit": unit}
    total = rng.randint(10, 30) if story.gains else rng.randint(40, 99)
    opening, numbers = _fill(rng, story.starts, words, total)
    steps = [_step("", opening, numbers[0], "x", numbers[1], unit)] if len(numbers) == 2 else []
    for lead in _leads(rng)[: rng.randint(2, 5)]:
        steps += _event(rng, story, words, lead, steps[-1].result if steps else total)
    ask, total = rng.choice(_list(story.asks, "|")), steps[-1].result
    divisors = [d for d in range(2, 10) if total % d == 0 and 2 <= total // d <= 12]
    if divisors and rng.random() < 0.5:
        (clause, ask), divisor = rng.choice(story.shares), rng.choice(divisors)
        steps.append(_step("Finally", clause.format(**words, d=divisor), total, "/", divisor, unit))
    start = _sentence("", opening) if len(numbers) == 1 else ""
    facts = [start] if start else []
    facts += [_sentence(step.lead, step.clause) for step in steps if step.clause]
    return _Problem(facts, start, steps, ask.format(**words))


def _relation(rng: random.Random, name: str, other: str, value: int, unit: str) -> _Step:
    """Describes one person's count relative to the person before."""
    items = _plural(unit)
    if 2 <= value <= 12 and rng.random() < 0.5:
        factor = rng.randint(2, 4)
        clause = f"{name} has {factor} times as many {items} as {other}"
        return _step("", clause, factor, "x", value, unit)
    (word, op), amount = rng.choice([("more", "+"), ("fewer", "-")]), rng.randint(2, 15)
    return _step("", f"{name} has {amount} {word} {items} than {other}", value, op, amount, unit)


def _compare(rng: random.Random) -> _Problem:
    names, unit = rng.sample(_SHE + _HE, rng.randint(2, 4)), rng.choice(_THINGS)
    items, counts = _plural(unit), [rng.choice([rng.randint(3, 12), rng.randint(10, 30)])]
    verb = rng.choice(["has", "owns", "brings", "counts"])
    opening, steps = _sentence("", f"{names[0]} {verb} {counts[0]} {items}"), []
    for other, name in pairwise(names):
        steps.append(_relation(rng, name, other, counts[-1], unit))
        counts.append(steps[-1].result)
    facts = [opening] + [_sentence("", step.clause) for step in steps]
    if counts[-1] > counts[0] and rng.random() < 0.5:
        clause = f"we compare {names[-1]} with {names[0]}"
        steps.append(_step("", clause, counts[-1], "-", counts[0], unit))
        ask = f"How many more {items} does {names[-1]} have than {names[0]}?"
        return _Problem(facts, opening, steps, ask)
    total = counts[0]
    for index, count in enumerate(counts[1:], 1):
        clause = f"we add {names[0]} and {names[1]}" if index == 1 else f"we add {names[index]}"
        steps.append(_step("", clause, total, "+", count, unit))
        total = steps[-1].result
    group = "both" if len(names) == 2 else f"all {len(names)} people"
    return _Problem(facts, opening, steps, f"How many {items} do {group} have together?")


def _step_text(rng: random.Random, step: _Step, style: str) -> str:
    """Repeats the fact of a step, then calculates; only linking phrases are free."""
    equation = f"{step.left} {step.op} {step.right} = {step.result}"
    amount = f"{step.result} {_plural(step.unit, step.result)}"
    update = "Add this to" if step.op == "+" else "Take this from"
    clause = step.clause or f"{update} the total"
    clause = clause[:1].upper() + clause[1:]
    if style == "brief":
        return f"{clause}, {equation}."
    if style == "check":
        return f"{clause}, so {step.left} {step.op} {step.right} = {amount}."
    if not step.clause:
        return f"{update} {rng.choice(['the total', 'what we had'])}: {equation}, so {amount}."
    fact, link, end = _sentence(step.lead, step.clause), rng.choice(_LINKS), _ENDS[step.op]
    return f"{fact} {link} {equation}, {rng.choice(end)} {amount}."


def _response(rng: random.Random, problem: _Problem, style: str) -> str:
    lines = [f"Start: {problem.opening}"] if problem.opening else []
    texts = [_step_text(rng, step, style) for step in problem.steps]
    lines += [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    last = problem.steps[-1]
    if style == "check":
        # Undoing the last step only needs numbers that stand on the line above.
        back = f"{last.result} {_INVERSE[last.op]} {last.right} = {last.left}"
        lines.append(f"Check: {back}, as before the last step.")
    lines.append(f"Answer: {last.result} {_plural(last.unit, last.result)}")
    return "\n".join(lines)


def _acceptable(problem: _Problem, prompt: str, response: str) -> bool:
    """Keeps problems with small numbers, distinct facts and texts of fitting length."""
    steps = problem.steps
    numbers_fit = all(0 <= s.result <= 120 and s.left >= 2 and 2 <= s.right <= 60 for s in steps)
    lengths_fit = 100 <= len(prompt) <= 400 and 220 <= len(response) <= 500
    distinct = len(dict.fromkeys(problem.facts)) == len(problem.facts)
    return 2 <= len(steps) <= 6 and numbers_fit and lengths_fit and distinct


def make_conversation(rng: random.Random) -> list[Turn]:
    """Generates one word problem and its worked solution.

    Args:
        rng: The only source of randomness.

    Returns:
        A single (user text, assistant text) turn.
    """
    # Drawing the style once keeps styles balanced although their lengths differ.
    style = rng.choice(list(_INSTRUCTIONS))
    while True:
        problem = _compare(rng) if rng.random() < 0.15 else _running(rng)
        instruction = rng.choice(_list(_INSTRUCTIONS[style], "|"))
        parts = [*problem.facts, problem.ask]
        parts = [instruction, *parts] if rng.random() < 0.3 else [*parts, instruction]
        prompt, response = " ".join(parts), _response(rng, problem, style)
        if _acceptable(problem, prompt, response):
            return [(prompt, response)]


def final_answer(text: str) -> int | None:
    """Reads the final answer of a response.

    Args:
        text: A response, possibly one written by a model.

    Returns:
        The integer after the last "Answer:", or None if there is none.
    """
    _, marker, tail = text.rpartition("Answer:")
    match = re.match(r"\s*(-?\d+)", tail) if marker else None
    return int(match.group(1)) if match else None
