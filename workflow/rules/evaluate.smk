# Held-out prompts: rounds of all of them, wall-clock time of a fixed subset.


rule evaluate_policies:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        sweeps=expand(
            f"{RUN}/sweep/{{{{decode}}}}/B{{block_size}}.parquet", block_size=SWEPT
        ),
        pairs=f"{RUN}/pairs/{{decode}}.parquet",
        selector=f"{RUN}/selector/{{decode}}/default",
        pair=PAIR_FILES,
    output:
        evaluation=f"{RUN}/evaluation/{{decode}}.parquet",
    log:
        f"{RUN}/logs/evaluate_policies/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/evaluate_policies/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: MEASURING_THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: variant_sampling(wildcards.decode),
        seeds=lambda wildcards: VARIANTS[wildcards.decode]["seeds"],
        swept=SWEPT,
        timed_prompts_per_domain=lambda wildcards: VARIANTS[wildcards.decode].get(
            "timed_prompts_per_domain", CONFIG["evaluate"]["timed_prompts_per_domain"]
        ),
        seed=CONFIG["evaluate"]["seed"],
        measured_with=MEASURED_WITH,
    message:
        "Evaluate all policies on held-out prompts, alone on the device ({wildcards.decode})"
    script:
        "../scripts/evaluate_policies.py"
