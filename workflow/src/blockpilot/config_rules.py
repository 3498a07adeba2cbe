"""The one list of what may be configured: the key, what is allowed, and the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = tuple[str, Callable[[Any], bool]]


def _integer(low: int, high: int | None = None) -> Rule:
    text = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    return (
        text,
        lambda v: (
            isinstance(v, int)
            and not isinstance(v, bool)
            and v >= low
            and (high is None or v <= high)
        ),
    )


def _number(low: float, high: float) -> Rule:
    return (
        f"a number from {low} to {high}",
        lambda v: isinstance(v, int | float) and not isinstance(v, bool) and low <= v <= high,
    )


def _one_of(*values: Any) -> Rule:
    return "one of " + ", ".join(map(str, values)), lambda v: v in values


def _list_of(rule: Rule, least: int = 1) -> Rule:
    text = f"a list of at least {least}, each {rule[0]}"
    return text, lambda v: isinstance(v, list) and len(v) >= least and all(map(rule[1], v))


def _optional(rule: Rule) -> Rule:
    return f"null or {rule[0]}", lambda v: v is None or rule[1](v)


TEXT: Rule = ("a text", lambda v: isinstance(v, str) and bool(v))
FLAG: Rule = ("true or false", lambda v: isinstance(v, bool))
ANYTHING: Rule = ("anything", lambda v: True)
# float16 is allowed here so that the refusal can say why (target.resolve_dtype).
FEATURES = _one_of("raw", "softmax", "normalized", "hidden", "summary")
DTYPE = _one_of("float32", "bfloat16", "float64", "float16", "fp16", "half")

RULES: dict[str, Rule] = {
    "run": (
        "a folder name",
        lambda v: isinstance(v, str) and v not in ("", ".", "..") and "/" not in v,
    ),
    "device.name": TEXT,
    "device.torch": TEXT,
    "device.threads": _integer(1),
    "pair.name": TEXT,
    "pair.target": TEXT,
    "pair.target_revision": _optional(TEXT),
    "pair.draft": TEXT,
    "pair.attn_implementation": _one_of("sdpa", "eager"),
    "pair.template_options.*": ANYTHING,
    "prompts.answer_max_new_tokens": _integer(1),
    "prompts.out_of_domain": _list_of(TEXT, least=0),
    "prompts.datasets.*.source": _one_of("pocket", "human_eval", "file", "responses"),
    "prompts.datasets.*.split": _optional(_one_of("train", "validation", "test")),
    "prompts.datasets.*.domain": TEXT,
    "prompts.datasets.*.domain_column": _optional(TEXT),
    "prompts.datasets.*.seed": _integer(0),
    "prompts.datasets.*.unlike_seed": _optional(_integer(0)),
    "prompts.datasets.*.unlike_count": _integer(0),
    "prompts.datasets.*.count": _optional(_integer(1)),
    "prompts.datasets.*.path": TEXT,
    "prompts.datasets.*.column": TEXT,
    "prompts.datasets.*.response_column": TEXT,
    "decode.max_new_tokens": _integer(1),
    "decode.dtype": DTYPE,
    "decode.batch_size": _integer(1),
    "decode.variants.*.temperature": _number(0, 10),
    "decode.variants.*.sampling": _one_of("match", "coupled", "rejection"),
    "decode.variants.*.top_k": _integer(0),
    "decode.variants.*.top_p": _number(1e-9, 1),
    "decode.variants.*.draft_temperature": _optional(_number(1e-9, 10)),
    "decode.variants.*.timed_prompts_per_domain": _integer(1),
    "decode.variants.*.seeds": _list_of(_integer(0)),
    "sweep.method": _one_of("replay", "live"),
    "sweep.radius": _integer(1),
    "sweep.extra_block_sizes": _optional(_list_of(_integer(1), least=0)),
    "sweep.candidates_per_job": _integer(1),
    "sweep.token_budget": _integer(1),
    "sweep.memory_mb": _integer(1),
    "sweep.control_prompts_per_domain": _integer(1),
    "sweep.grid_prompts_per_domain": _integer(1),
    "sweep.acceptance_prompts_per_domain": _optional(_integer(1)),
    "sweep.schemes.variants": _list_of(TEXT, least=0),
    "sweep.schemes.prompts_per_domain": _integer(1),
    "sweep.schemes.draft_temperatures": _list_of(_number(1e-3, 10)),
    "latency.draft_ms.*": _number(1e-6, 1e6),
    "latency.verify_ms.*": _number(1e-6, 1e6),
    "latency.ar_ms": _number(1e-6, 1e6),
    "selector.features": FEATURES,
    "selector.width": _integer(1),
    "selector.depth": _integer(1),
    "selector.dropout": _number(0, 0.99),
    "selector.epochs": _integer(1),
    "selector.learning_rate": _number(1e-9, 10),
    "selector.batch_size": _integer(1),
    "selector.seed": _integer(0),
    "ablations.variants": _list_of(TEXT, least=0),
    "ablations.seeds": _list_of(_integer(0)),
    "ablations.radius": _list_of(_integer(1)),
    "ablations.depth": _list_of(_integer(1)),
    "ablations.width": _list_of(_integer(1)),
    "ablations.features": _list_of(FEATURES),
    "evaluate.timed_prompts_per_domain": _integer(1),
    "evaluate.overhead_prompts_per_domain": _integer(1),
    "evaluate.overhead_repeats": _integer(1),
    "evaluate.resamples": _integer(100),
    "evaluate.seed": _integer(0),
    "train.**": ANYTHING,
}
