# Conversations from grammars, packages or files; then every turn as a prompt of the target.


rule collect_conversations:
    output:
        conversations=f"{RUN}/conversations/{{dataset}}.parquet",
    log:
        f"{RUN}/logs/collect_conversations/{{dataset}}.log",
    benchmark:
        f"{RUN}/benchmarks/collect_conversations/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    params:
        settings=lambda wildcards: DATASETS[wildcards.dataset],
    message:
        "Collect the conversations of {wildcards.dataset}"
    script:
        "../scripts/collect_conversations.py"


rule extend_conversations:
    input:
        conversations=f"{RUN}/conversations/{{dataset}}.parquet",
        target=local_files(PAIR["target"]),
    output:
        prompts=f"{RUN}/prompts/{{dataset}}.parquet",
    log:
        f"{RUN}/logs/extend_conversations/{{dataset}}.log",
    benchmark:
        f"{RUN}/benchmarks/extend_conversations/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        loading=TARGET_LOADING,
        batch_size=DECODE["batch_size"],
        answer_max_new_tokens=CONFIG["prompts"]["answer_max_new_tokens"],
    message:
        "Render {wildcards.dataset}; the target answers earlier turns"
    script:
        "../scripts/extend_conversations.py"
