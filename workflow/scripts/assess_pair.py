"""Measure the pair on held-out prompts against its goals and write the model cards."""

import json
from pathlib import Path

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.pocket.cards import check_goals, render_card
from blockpilot.prompts import load_tokenizer
from blockpilot.provenance import machine_facts, write_json, write_text
from blockpilot.training.assess import held_out_prompts, measure_pair

start_job(snakemake.log[0])
train = snakemake.params.train
settings = train["assess"]
folders = {kind: snakemake.input[kind] for kind in ("target", "draft")}
pair = load_pair(
    {**folders, "target_revision": None, "attn_implementation": "sdpa"},
    "float32",
    {"torch": "cpu", "threads": 1},
)
tokenizer = load_tokenizer(folders["target"])
prompts = held_out_prompts(tokenizer, settings["seed"], settings["conversations_per_domain"])
measured = measure_pair(pair, tokenizer, prompts, settings["max_new_tokens"])
goals = list(check_goals(measured))

leads = {
    "target": "A small Qwen3-architecture language model of an invented world (arithmetic word "
    "problems, small Python functions, an invented knowledge base), made so that speculative "
    "decoding can be studied on two CPU cores. It knows nothing of the real one: do not use it "
    "for anything else.",
    "draft": "A DFlash block drafter for the pocket target, in the public checkpoint layout. "
    "Trained on the target's own greedy and sampled responses.",
}
facts = {
    "target": {
        "corpus": f"{3 * train['corpus']['conversations_per_domain']} generated conversations, "
        f"seed {train['corpus']['seed']}",
        "steps": train["target"]["loop"]["steps"],
        "tokens per step": train["target"]["batch_tokens"],
    },
    "draft": {
        "corpus": f"responses to {train['responses']['conversations_per_domain']} conversations "
        f"per domain at temperatures {train['responses']['temperatures']}",
        "trained block size": pair.draft.block_size,
        "features of target layers": list(pair.draft.config.target_layer_ids),
        "steps": train["draft"]["loop"]["steps"],
        "blocks per conversation and step": train["draft"]["training"]["anchors_per_example"],
    },
}
models = {"target": pair.target.model, "draft": pair.draft}
cards = Path(snakemake.output.cards)
for kind, folder in folders.items():
    training = json.loads((Path(folder) / "training.json").read_text())
    own = facts[kind] | {
        "parameters": sum(p.numel() for p in models[kind].parameters()),
        "training seconds": round(training["elapsed_s"]),
        "machine": f"{machine_facts()['processor']}, {snakemake.threads} threads",
        "held-out prompts": f"{len(prompts)} of seed {settings['seed']}",
    }
    card = render_card(f"Pocket {kind}", leads[kind], own, training["history"], goals)
    write_text(cards / f"{kind}.md", card)
write_json(cards / "quality.json", {"goals": goals, "measured": measured})
print(pd.DataFrame(goals).to_string())
