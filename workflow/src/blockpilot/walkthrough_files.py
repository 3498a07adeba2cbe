"""Reads what a walkthrough shows from the artifacts of a finished run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

from blockpilot.acceptance import AcceptanceTable
from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.records import ACCEPTANCE, PROMPTS, SWEEP, TRAJECTORIES, read_table
from blockpilot.rounds import limit_tokens
from blockpilot.walkthrough import Decode, Walkthrough, token_texts

KEY = ["prompt_id", "seed"]
PROMPT_COLUMNS = ["prompt_id", "dataset", "domain", "split", "turn", "text"]
TEXT_COLUMNS = [*KEY, "output_ids", "stop_reason"]


def read_decoder(pair: Mapping, root: str | Path = ".") -> Decode:
    """Return the function that turns token ids into text, special tokens included.

    Args:
        pair: `config.pair` of a run's manifest: its `target` is a folder or an id of the Hugging
            Face hub, then at `target_revision`.
        root: Where a relative folder is looked for.

    Raises:
        BlockPilotError: If there is no tokenizer.json.
    """
    # Not `prompts.load_tokenizer`: the transformers library would load torch.
    from tokenizers import Tokenizer

    file = Path(root) / pair["target"] / "tokenizer.json"
    try:
        if file.exists():
            tokenizer = Tokenizer.from_file(str(file))
        else:
            revision = pair.get("target_revision") or "main"
            tokenizer = Tokenizer.from_pretrained(pair["target"], revision=revision)
    except Exception as error:  # the Rust library raises bare exceptions
        allowed = "a folder with tokenizer.json, or the id of a model with one"
        cause = str(error).partition("\n")[0]
        remedy = f"Restore the folder, or download it first. Cause: {cause}"
        raise bad_input("target of the run's pair", pair["target"], allowed, remedy) from error
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)


def read_requests(run_folder: str | Path, decode: str) -> pd.DataFrame:
    """Return the texts of one decode variant with their prompts, `num_tokens` and `tau_spread`.

    `tau_spread` is the largest less the smallest tau over the swept block sizes.

    Args:
        run_folder: `results/{run}`.
        decode: Name of the decode variant.
    """
    folder = Path(run_folder)
    files = sorted((folder / "prompts").glob("*.parquet"))
    prompts = pd.concat([read_table(path, PROMPTS, PROMPT_COLUMNS) for path in files])
    texts = read_table(folder / f"trajectories/{decode}.parquet", TRAJECTORIES, TEXT_COLUMNS)
    by_request = _read_sweep(folder, decode).groupby(KEY)["tau"]
    spread = (by_request.max() - by_request.min()).rename("tau_spread").reset_index()
    # A prompt may stand in several data sets; its text is the same.
    prompts = prompts.drop_duplicates("prompt_id")
    texts = texts.assign(num_tokens=texts["output_ids"].map(len))
    return texts.merge(prompts, on="prompt_id").merge(spread, on=KEY).sort_values(KEY)


def choose_request(
    requests: pd.DataFrame,
    prompt_id: str | None = None,
    seed: int | None = None,
    out_of_domain: Collection[str] = (),
) -> pd.Series:
    """Return the request of a prompt; without one, that whose tau depends most on the block size.

    Args:
        requests: From `read_requests`.
        prompt_id: Of the prompt; None chooses among the in-domain test prompts.
        seed: Of the sampling noise; any if None.
        out_of_domain: Data sets to leave out where there is no `prompt_id`.

    Raises:
        BlockPilotError: If there is none.
    """
    own = requests if seed is None else requests[requests["seed"] == seed]
    if prompt_id is None:
        own = own[(own["split"] == "test") & ~own["dataset"].isin(list(out_of_domain))]
        own = own.sort_values("tau_spread", ascending=False, kind="stable")
    else:
        own = own[own["prompt_id"] == prompt_id]
    if own.empty:
        where, value = "request", {"prompt_id": prompt_id, "seed": seed}
        allowed = "a row of the table of requests; without a prompt_id an in-domain test prompt"
        raise bad_input(where, value, allowed, "Choose a prompt_id and seed from that table.")
    return own.iloc[0]


def read_walkthrough(
    run_folder: str | Path, decode: str, request: Mapping, max_new_tokens: int, to_text: Decode
) -> Walkthrough:
    """Return the walkthrough of one request.

    Args:
        run_folder: `results/{run}`.
        decode: Name of the decode variant.
        request: A row of `read_requests`.
        max_new_tokens: As decoded.
        to_text: Decodes token ids, special tokens included.
    """
    folder, ids = Path(run_folder), [int(token) for token in request["output_ids"]]
    limit = limit_tokens(len(ids), request["stop_reason"], max_new_tokens)
    own = _of(_read_sweep(folder, decode), request).sort_values("block_size")
    path = folder / f"acceptance/{decode}.parquet"
    known = _of(read_table(path, ACCEPTANCE), request) if path.exists() else own.head(0)
    tables = [
        AcceptanceTable.from_row(row.block_sizes, row.accepted, limit)
        for row in known.itertuples(index=False)
    ]
    return Walkthrough(
        prompt_id=str(request["prompt_id"]),
        seed=int(request["seed"]),
        prompt=request["text"],
        tokens=token_texts(ids, to_text),
        limit_tokens=limit,
        num_committed={
            int(size): [int(count) for count in counts]
            for size, counts in zip(own["block_size"], own["num_committed"], strict=True)
        },
        acceptance=tables[0] if tables else None,
    )


def _of(frame: pd.DataFrame, request: Mapping) -> pd.DataFrame:
    return frame[(frame[KEY] == [request[name] for name in KEY]).all(axis=1)]


def _read_sweep(folder: Path, decode: str) -> pd.DataFrame:
    """Return the rows of all swept sizes whose rounds made the trajectory's own text."""
    files = sorted((folder / "sweep" / decode).glob("B*.parquet"))
    if not files:
        raise BlockPilotError(f"{folder / 'sweep' / decode} has no tables. Run snakemake first.")
    rows = pd.concat([read_table(path, SWEEP) for path in files], ignore_index=True)
    return rows[rows["equals_ar"].isin([True]) | (rows["method"] == "replay")]
