"""Measure the pair on held-out prompts against its goals and write the model cards."""

import json
from pathlib import Path

import pandas as pd
import torch

from blockpilot.candidates import candidate_set
from blockpilot.draft import load_draft, read_draft_config
from blockpilot.jobs import start_job
from blockpilot.labels import make_pairs
from blockpilot.pocket.cards import check_goals, render_card
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.pocket.quality import text_quality
from blockpilot.prompts import hash_prompt, load_tokenizer, render
from blockpilot.provenance import machine_facts, write_json, write_text
from blockpilot.sweep import Decoder, DecodeVariant, sweep_block_size
from blockpilot.target import load_target
from blockpilot.trajectories import decode_trajectories

start_job(snakemake.log[0])
torch.set_num_threads(1)
train = snakemake.params.train
settings = train["assess"]
config = read_draft_config(snakemake.input.draft)
target = load_target(snakemake.input.target, feature_layer_ids=config.target_layer_ids)
draft = load_draft(snakemake.input.draft, target=target)
tokenizer = load_tokenizer(snakemake.input.target)
stop_ids = {tokenizer.eos_token_id}


def held_out_prompts():
    """Return one row per turn of fresh conversations, with the reference answer."""
    rows = {}
    for domain in GENERATORS:
        for index in range(settings["conversations_per_domain"]):
            messages = []
            for user, assistant in draw_conversation(domain, settings["seed"], index):
                messages.append({"role": "user", "content": user})
                _, ids = render(tokenizer, messages, {})
                rows[hash_prompt(ids)] = {
                    "dataset": "assess",
                    "split": "train",
                    "domain": domain,
                    "input_ids": ids,
                    "reference": assistant,
                }
                messages.append({"role": "assistant", "content": assistant})
    return pd.DataFrame([{"prompt_id": name, **row} for name, row in rows.items()])


def decode(prompts, temperature):
    """Return trajectories and a decoder for one temperature."""
    tokens = settings["max_new_tokens"]
    rows = decode_trajectories(
        target,
        prompts,
        seeds=[0],
        temperature=temperature,
        max_new_tokens=tokens,
        stop_ids=stop_ids,
        batch_size=32,
    )
    variant = DecodeVariant(temperature=temperature, sampling="match", max_new_tokens=tokens)
    return pd.DataFrame(rows), Decoder(target, draft, variant, stop_ids)


prompts = held_out_prompts()
greedy, decoder = decode(prompts, 0.0)
texts = greedy.merge(prompts, on="prompt_id")
texts["response"] = [tokenizer.decode(i, skip_special_tokens=True) for i in texts["output_ids"]]
window = candidate_set(config.block_size, 2)
sweeps = [pd.DataFrame(sweep_block_size(decoder, prompts, greedy, b)) for b in window]
sampled, decoder = decode(prompts, 1.0)
at_one = pd.DataFrame(sweep_block_size(decoder, prompts, sampled, config.block_size))
measured = {
    "text": text_quality(texts.to_dict("records")),
    "tau_T0": float(sweeps[window.index(config.block_size)]["tau"].mean()),
    "tau_T1": float(at_one["tau"].mean()),
    "tie_share": float(make_pairs(greedy, sweeps, prompts, window)["is_tie"].mean()),
    "tau_T0_by_block_size": {
        str(b): float(s["tau"].mean()) for b, s in zip(window, sweeps, strict=True)
    },
}
goals = list(check_goals(measured))
history = {
    kind: json.loads((Path(snakemake.input[kind]) / "training.json").read_text())
    for kind in ("target", "draft")
}
count = {
    kind: sum(p.numel() for p in model.parameters())
    for kind, model in (("target", target.model), ("draft", draft))
}
machine = machine_facts()
leads = {
    "target": "A small Qwen3-architecture language model of an invented world (arithmetic word "
    "problems, small Python functions, an invented knowledge base), made so that speculative "
    "decoding can be studied on two CPU cores. It knows nothing of the real one: do not use it "
    "for anything else.",
    "draft": "A DFlash block drafter for the pocket target, in the public checkpoint layout. "
    "Trained on the target's own greedy and sampled responses.",
}
shared = {
    "machine": f"{machine['processor']}, {snakemake.threads} threads",
    "held-out prompts": f"{len(prompts)} of seed {settings['seed']}",
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
        "trained block size": config.block_size,
        "features of target layers": list(config.target_layer_ids),
        "steps": train["draft"]["loop"]["steps"],
        "blocks per conversation and step": train["draft"]["training"]["anchors_per_example"],
    },
}
cards = Path(snakemake.output.cards)
for kind in ("target", "draft"):
    own = facts[kind] | {
        "parameters": count[kind],
        "training seconds": round(history[kind]["elapsed_s"]),
    }
    card = render_card(f"Pocket {kind}", leads[kind], own | shared, history[kind]["history"], goals)
    write_text(cards / f"{kind}.md", card)
write_json(cards / "quality.json", {"goals": goals, "measured": measured})
print(pd.DataFrame(goals).to_string())
