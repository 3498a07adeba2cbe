# The classifier from p(x) to B*.


rule train_selector:
    input:
        pairs=f"{RUN}/pairs/{{decode}}.parquet",
    output:
        selector=directory(f"{RUN}/selector/{{decode}}/default"),
    log:
        f"{RUN}/logs/train_selector/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/train_selector/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        selector=CONFIG["selector"],
        device=DEVICE,
    message:
        "Train the selector ({wildcards.decode})"
    script:
        "../scripts/train_selector.py"


rule tabulate_selector:
    input:
        prompts=PROMPTS,
        pairs=expand(f"{RUN}/pairs/{{decode}}.parquet", decode=VARIANTS),
        selectors=expand(f"{RUN}/selector/{{decode}}/default", decode=VARIANTS),
    output:
        training=f"{RUN}/tables/training.csv",
        predictions=f"{RUN}/tables/predictions.csv",
    log:
        f"{RUN}/logs/tabulate_selector.log",
    benchmark:
        f"{RUN}/benchmarks/tabulate_selector.tsv"
    conda:
        ENVIRONMENT
    params:
        variants=list(VARIANTS),
        out_of_domain=CONFIG["prompts"]["out_of_domain"],
    message:
        "Tabulate the training of the selectors and their predictions"
    script:
        "../scripts/tabulate_selector.py"
