# The text that all labels refer to: the target alone, autoregressively, in batches.


rule decode_trajectories:
    input:
        prompts=PROMPTS,
        target=local_files(PAIR["target"]),
        responses=[
            own["path"] for own in DATASETS.values() if own["source"] == "responses"
        ],
    output:
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
    log:
        f"{RUN}/logs/decode_trajectories/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/decode_trajectories/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        loading=TARGET_LOADING,
        datasets={
            name: DATASETS[name]
            for name in DATASETS
            if DATASETS[name]["source"] == "responses"
        },
        memory_mb=SWEEP["memory_mb"],
        batch_size=DECODE["batch_size"],
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: target_sampling(wildcards.decode),
        seeds=lambda wildcards: VARIANTS[wildcards.decode]["seeds"],
    message:
        "Decode every prompt autoregressively ({wildcards.decode})"
    script:
        "../scripts/decode_trajectories.py"
