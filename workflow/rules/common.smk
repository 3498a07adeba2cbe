# Configuration shared by all rules. Every job reads this again: no torch here.
from dataclasses import asdict
from pathlib import Path

from snakemake.exceptions import WorkflowError

from blockpilot.candidates import candidate_set
from blockpilot.catalogue import ABLATIONS, COST, FIGURES, LABELS, RESULTS, drawable
from blockpilot.checkpoints import (
    check_answer_length,
    check_pair,
    read_draft_config,
    read_target_config,
)
from blockpilot.config import compose_config, swept_block_sizes
from blockpilot.errors import BlockPilotError
from blockpilot.knobs import KNOBS, Setting, list_settings
from blockpilot.provenance import digest_files


def local_files(folder):
    """Return the files of a checkpoint folder; none for a name on the Hub."""
    return sorted(str(path) for path in Path(folder).glob("*") if path.suffix != ".md")


try:
    CONFIG = compose_config(
        "conf", config.get("experiment", "pocket"), list(config.get("overrides", []))
    )
    PAIR, DECODE, SWEEP = CONFIG["pair"], CONFIG["decode"], CONFIG["sweep"]
    DRAFT = read_draft_config(PAIR["draft"])
    if PAIR["target_revision"] is None:
        TARGET = read_target_config(PAIR["target"])
        check_pair(DRAFT, TARGET, PAIR["draft"])
        check_answer_length("decode.max_new_tokens", DECODE["max_new_tokens"], TARGET)
    CANDIDATES = candidate_set(DRAFT.block_size, SWEEP["radius"])
    VARIANTS = DECODE["variants"]
    ABLATED = [name for name in CONFIG["ablations"]["variants"] if name in VARIANTS]
    WIDEST = max([SWEEP["radius"], *(CONFIG["ablations"]["radius"] if ABLATED else [])])
    ABLATED_SIZES = candidate_set(DRAFT.block_size, WIDEST)
except BlockPilotError as error:
    raise WorkflowError(str(error)) from None

SWEPT = swept_block_sizes(ABLATED_SIZES, DRAFT.block_size, SWEEP["extra_block_sizes"])
PER_JOB = SWEEP["candidates_per_job"]
SWEEP_JOBS = [SWEPT[at : at + PER_JOB] for at in range(0, len(SWEPT), PER_JOB)]
TRAIN = CONFIG["train"]
DATASETS = CONFIG["prompts"]["datasets"]
# What replay gives besides labels is made where labels are replayed.
REPLAYED = list(VARIANTS) if SWEEP["method"] == "replay" else []
# At temperature 0 all schemes are the same.
COMPARED = [
    name
    for name in SWEEP["schemes"]["variants"]
    if name in REPLAYED and VARIANTS[name]["temperature"] > 0
]
# The default setting of the selector, and every ablation of it: (knob, setting).
SETTING = Setting(
    radius=SWEEP["radius"],
    **{knob: CONFIG["selector"][knob] for knob in KNOBS if knob != "radius"},
)
SETTINGS = [
    (knob, asdict(setting))
    for knob, setting in list_settings(SETTING, CONFIG["ablations"])
]
DEVICE = CONFIG["device"]
THREADS = DEVICE["threads"]
GPUS = 1 if DEVICE["torch"].startswith("cuda") else 0
# Nothing else may use the device while time is measured: a CPU job takes all cores; a GPU job
# has leased its device anyway (blockpilot.devices), so there is one such job per device.
MEASURING_THREADS = THREADS if GPUS else workflow.cores
RUN = f"results/{CONFIG['run']}"
PROMPTS = expand(f"{RUN}/prompts/{{dataset}}.parquet", dataset=DATASETS)
PAIR_FILES = local_files(PAIR["target"]) + local_files(PAIR["draft"])
# What the papers report, shown below our own tables.
REPORTED = "workflow/resources/reported.csv"
# Seen from a rule file; only `--software-deployment-method conda` builds it. Not the environment's
# name: with a name, snakemake calls conda in every run.
ENVIRONMENT = "../../environment.yml"
# What decoding depends on; variants and lengths are added by the rules that use them.
LOADING = {"pair": PAIR, "dtype": DECODE["dtype"], "device": DEVICE}
# The target alone: another draft changes neither prompts nor trajectories.
TARGET_LOADING = {
    **LOADING,
    "pair": {key: value for key, value in PAIR.items() if key != "draft"},
}
REPLAY_LIMITS = {key: SWEEP[key] for key in ("memory_mb", "token_budget")}


def digest_modules(*modules):
    """Return what changes with some modules: Snakemake does not see edits of what is imported."""
    return digest_files([f"workflow/src/blockpilot/{name}.py" for name in modules])


# Measured times depend on these.
MEASURED_WITH = digest_modules(
    "decode", "draft", "evaluate", "fused", "policies", "sampling", "target"
)


def table_results():
    """Return what the rules write that tabulate this run, for figures, `all` and the manifest."""
    made = [rules.tabulate_results.output]
    if REPLAYED:
        made.append(rules.tabulate_replay.output)
    if COMPARED:
        made.append(rules.tabulate_schemes.output)
    if ABLATED:
        made.append(rules.tabulate_ablations.output)
    return [*made, rules.tabulate_selector.output, rules.tabulate_costs.output]


def csv_tables():
    """Return the CSV tables of this run by their stems."""
    paths = [path for output in table_results() for path in output]
    return {Path(path).stem: path for path in paths if path.endswith(".csv")}


def table_page(name, category, title):
    """Return a table's web page, shown in the report."""
    return report(
        f"{RUN}/tables/{name}.html",
        caption=f"../report/table_{name}.rst",
        category=category,
        labels={"name": f"Table: {title}"},
    )


def figure_in_report(name):
    """Return a figure's SVG, which the report shows."""
    return report(
        f"{RUN}/figures/{name}.svg",
        caption=f"../report/{name}.rst",
        category=FIGURES[name].category,
        labels={"name": FIGURES[name].title},
    )


def label_benchmarks(name):
    """Return the files that tell how long a variant's labels took."""
    sizes = ["_".join(map(str, own)) for own in SWEEP_JOBS]
    folder = f"{RUN}/benchmarks"
    return [
        f"{folder}/decode_trajectories/{name}.tsv",
        *(f"{folder}/sweep_candidates/{name}/B{own}.tsv" for own in sizes),
        f"{folder}/merge_pairs/{name}.tsv",
    ]


def variant_sampling(name):
    """Return what decides a variant's tokens and rounds."""
    keys = ("temperature", "sampling", "top_k", "top_p", "draft_temperature")
    return {key: VARIANTS[name][key] for key in sorted(keys) if key in VARIANTS[name]}


def target_sampling(name):
    """Return what decides a variant's text: not the scheme, nor anything of the draft."""
    keys = ("temperature", "top_k", "top_p")
    return {key: VARIANTS[name][key] for key in sorted(keys) if key in VARIANTS[name]}


def draft_temperature(name):
    """Return the temperature at which a variant's draft draws under `coupled`."""
    own = VARIANTS[name]
    return own.get("draft_temperature") or own["temperature"]


wildcard_constraints:
    dataset="[A-Za-z0-9_]+",
    decode="[A-Za-z0-9_]+",
