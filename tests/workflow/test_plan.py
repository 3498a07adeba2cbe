"""A knob reruns what it touches and nothing else; plans only, on the finished smoke run."""

from __future__ import annotations

import re

TABLES_OF_ABLATIONS = {"tabulate_ablations", "tabulate_costs"}
RULES_AFTER_EVALUATION = {
    "tabulate_results",
    "plot_figures",
    "write_manifest",
    *TABLES_OF_ABLATIONS,
}
RULES_AFTER_SELECTOR = {"evaluate_policies", "tabulate_selector", *RULES_AFTER_EVALUATION}
RULES_AFTER_CONTROL = {"tabulate_replay", "plot_figures", "write_manifest"}
RULES_AFTER_SWEEP = {
    "merge_pairs",
    "train_selector",
    "train_ablations",
    *RULES_AFTER_SELECTOR,
    *RULES_AFTER_CONTROL,
}
RULES_AFTER_TRAJECTORIES = {
    "sweep_candidates",
    "replay_acceptance",
    "replay_grid",
    "control_sweep",
    "compare_schemes",
    "tabulate_schemes",
    "measure_overhead",
    *RULES_AFTER_SWEEP,
}
RULES_AFTER_PROMPTS = {"decode_trajectories", *RULES_AFTER_TRAJECTORIES}
ALL_RULES = {
    "collect_conversations",
    "extend_conversations",
    "state_latency",
    *RULES_AFTER_PROMPTS,
}


def rules_in(path) -> set[str]:
    """Return the rules of a file; those of a loop have a `name:` that goes on with sizes."""
    text = path.read_text()
    named = re.findall(r'^ +name:\s+f"([a-z_]+)_\{', text, re.MULTILINE)
    return {*re.findall(r"^rule (\w+):", text, re.MULTILINE), *named}


def test_a_fresh_checkout_plans_everything_but_the_training_of_the_pair(
    make_checkout, planned_rules
) -> None:
    fresh = make_checkout("fresh")
    planned = planned_rules(fresh, experiment=None)
    files = (fresh / "workflow" / "rules").glob("*.smk")
    of_training = rules_in(fresh / "workflow" / "rules" / "train_pocket.smk")
    assert len(of_training) >= 5
    assert not planned & of_training
    assert planned == set().union(*map(rules_in, files)) - of_training
    assert planned == ALL_RULES


def test_a_finished_run_has_nothing_to_do(smoke, planned_rules) -> None:
    assert planned_rules(smoke) == set()


def test_a_selector_knob_replans_training_and_what_follows(smoke, planned_rules) -> None:
    planned = planned_rules(smoke, overrides=["selector.width=128"])
    trained = {"train_selector", "train_ablations", "measure_overhead"}
    assert planned == trained | RULES_AFTER_SELECTOR


def test_an_ablation_replans_itself_and_what_shows_it(smoke, planned_rules) -> None:
    planned = planned_rules(smoke, overrides=["ablations.width=[16]"])
    shown = {"plot_figures", "write_manifest", *TABLES_OF_ABLATIONS}
    assert planned == {"train_ablations", "measure_overhead"} | shown


def test_a_run_without_ablations_still_measures_its_selector(make_checkout, planned_rules) -> None:
    planned = planned_rules(make_checkout("plain"), overrides=["ablations.variants=[]"])
    assert planned == ALL_RULES - {"train_ablations", "tabulate_ablations"}


def test_the_length_replans_decoding_but_no_prompts(smoke, planned_rules) -> None:
    planned = planned_rules(smoke, overrides=["decode.max_new_tokens=24"])
    assert planned == RULES_AFTER_PROMPTS


def test_statistics_replan_tables_and_figures_only(smoke, planned_rules) -> None:
    planned = planned_rules(smoke, overrides=["evaluate.resamples=600"])
    assert planned == RULES_AFTER_EVALUATION | {"tabulate_replay", "tabulate_schemes"}


def test_one_switch_decodes_all_labels_live(make_checkout, planned_rules) -> None:
    planned = planned_rules(make_checkout("live"), overrides=["sweep.method=live"])
    replayed = {name for name in ALL_RULES if "replay" in name or "schemes" in name}
    assert planned == ALL_RULES - replayed - {"control_sweep", "state_latency"}


def test_the_scheme_of_a_variant_touches_its_rounds_but_not_its_text(smoke, planned_rules) -> None:
    planned = planned_rules(smoke, overrides=["decode.variants.T1.sampling=match"])
    # Overheads are measured on the first variant's texts.
    assert planned == RULES_AFTER_TRAJECTORIES - {"measure_overhead"}


def test_the_label_target_stops_at_the_pairs(make_checkout, planned_rules) -> None:
    planned = planned_rules(make_checkout("label"), "label")
    expected = {"collect_conversations", "extend_conversations", "decode_trajectories"}
    assert planned == expected | {"sweep_candidates", "merge_pairs"}


def test_a_radius_replans_labels_but_keeps_what_was_swept(smoke, planned_rules) -> None:
    """With radius 1 every candidate is among the swept sizes if those are kept as extra ones."""
    swept = sorted(
        int(path.stem[1:]) for path in (smoke / "results/smoke/sweep/T0").glob("B*.parquet")
    )
    planned = planned_rules(smoke, overrides=["sweep.radius=1", f"sweep.extra_block_sizes={swept}"])
    assert planned == RULES_AFTER_SWEEP | {"measure_overhead"}


def test_another_draft_replans_the_sweeps_but_no_text_of_the_target(
    smoke, planned_rules, tmp_path
) -> None:
    shipped = smoke / "workflow/resources/pocket/draft"
    other = tmp_path / "draft"
    other.mkdir()
    for path in shipped.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    planned = planned_rules(smoke, overrides=[f"pair.draft={other}"])
    assert planned == RULES_AFTER_TRAJECTORIES


def test_editing_a_measured_module_replans_the_times_but_no_sweep(smoke, planned_rules) -> None:
    module = smoke / "workflow/src/blockpilot/decode.py"
    before = module.read_bytes()
    try:
        module.write_bytes(before + b"# measured again\n")
        planned = planned_rules(smoke)
    finally:
        module.write_bytes(before)
    timed = {"control_sweep", "measure_overhead"}
    # The selectors are as they were.
    assert planned == (RULES_AFTER_SELECTOR - {"tabulate_selector"}) | timed | RULES_AFTER_CONTROL
    assert planned_rules(smoke) == set()
