# The paper's labels: every prompt decoded once per block size, one job per size.


rule sweep_candidate:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        pair=PAIR_FILES,
    output:
        sweep=f"{RUN}/sweep/{{decode}}/B{{block_size}}.parquet",
    log:
        f"{RUN}/logs/sweep_candidate/{{decode}}/B{{block_size}}.log",
    benchmark:
        f"{RUN}/benchmarks/sweep_candidate/{{decode}}/B{{block_size}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: VARIANTS[wildcards.decode],
    message:
        "Sweep block size {wildcards.block_size} ({wildcards.decode})"
    script:
        "../scripts/sweep_candidate.py"


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
