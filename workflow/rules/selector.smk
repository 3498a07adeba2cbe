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
    params:
        selector=CONFIG["selector"],
        threads=THREADS,
    message:
        "Train the selector ({wildcards.decode})"
    script:
        "../scripts/train_selector.py"
