# Labels: the rounds of every prompt at every block size, replayed from the trajectories (or
# decoded live, as the paper does), some sizes per job; then the best size of each prompt.

for SIZES in SWEEP_JOBS:

    rule:
        name:
            f"sweep_candidates_{'_'.join(map(str, SIZES))}"
        input:
            prompts=PROMPTS,
            trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
            pair=PAIR_FILES,
        output:
            sweeps=expand(
                f"{RUN}/sweep/{{{{decode}}}}/B{{block_size}}.parquet", block_size=SIZES
            ),
        log:
            f"{RUN}/logs/sweep_candidates/{{decode}}/B{'_'.join(map(str, SIZES))}.log",
        benchmark:
            f"{RUN}/benchmarks/sweep_candidates/{{decode}}/B{'_'.join(map(str, SIZES))}.tsv"
        conda:
            ENVIRONMENT
        threads: THREADS
        resources:
            gpu=GPUS,
        params:
            loading=LOADING,
            max_new_tokens=DECODE["max_new_tokens"],
            variant=lambda wildcards: variant_sampling(wildcards.decode),
            method=SWEEP["method"],
            limits=REPLAY_LIMITS,
            block_sizes=SIZES,
        message:
            f"Sweep block sizes {', '.join(map(str, SIZES))} ({{wildcards.decode}})"
        script:
            "../scripts/sweep_candidates.py"


rule merge_pairs:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        sweeps=expand(
            f"{RUN}/sweep/{{{{decode}}}}/B{{block_size}}.parquet", block_size=SWEPT
        ),
    output:
        pairs=f"{RUN}/pairs/{{decode}}.parquet",
    log:
        f"{RUN}/logs/merge_pairs/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/merge_pairs/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    params:
        candidates=CANDIDATES,
    message:
        "Merge the sweeps into pairs (p(x), B*) ({wildcards.decode})"
    script:
        "../scripts/merge_pairs.py"
