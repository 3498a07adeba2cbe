# The paper's ablations (radius, depth, width, input), and what choosing a block size costs.


rule train_ablations:
    input:
        pairs=f"{RUN}/pairs/{{decode}}.parquet",
    output:
        ablations=f"{RUN}/ablations/{{decode}}.parquet",
    log:
        f"{RUN}/logs/train_ablations/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/train_ablations/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        selector=CONFIG["selector"],
        settings=SETTINGS,
        training_seeds=CONFIG["ablations"]["seeds"],
        trained_block_size=DRAFT.block_size,
        device=DEVICE,
    message:
        "Train every setting of the ablations ({wildcards.decode})"
    script:
        "../scripts/train_ablations.py"


rule measure_overhead:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{list(VARIANTS)[0]}.parquet",
        pair=PAIR_FILES,
    output:
        overhead=f"{RUN}/overhead/{DEVICE['name']}.parquet",
    log:
        f"{RUN}/logs/measure_overhead.log",
    benchmark:
        f"{RUN}/benchmarks/measure_overhead.tsv"
    conda:
        ENVIRONMENT
    # Nothing else may run while time is measured.
    threads: MEASURING_THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        max_new_tokens=DECODE["max_new_tokens"],
        variant=variant_sampling(list(VARIANTS)[0]),
        settings=SETTINGS,
        trained_block_size=DRAFT.block_size,
        prompts_per_domain=CONFIG["evaluate"]["overhead_prompts_per_domain"],
        repeats=CONFIG["evaluate"]["overhead_repeats"],
        measured_with=[MEASURED_WITH, digest_modules("overhead", "selector")],
    message:
        "Measure time and memory of selectors, prefill and requests, alone on the device"
    script:
        "../scripts/measure_overhead.py"


rule tabulate_ablations:
    input:
        prompts=PROMPTS,
        pairs=expand(f"{RUN}/pairs/{{decode}}.parquet", decode=ABLATED),
        evaluations=expand(f"{RUN}/evaluation/{{decode}}.parquet", decode=ABLATED),
        ablations=expand(f"{RUN}/ablations/{{decode}}.parquet", decode=ABLATED),
        overhead=rules.measure_overhead.output.overhead,
        reported=REPORTED,
    output:
        csv=f"{RUN}/tables/ablations.csv",
        markdown=f"{RUN}/tables/ablations.md",
        html=table_page("ablations", ABLATIONS, "all ablations"),
    log:
        f"{RUN}/logs/tabulate_ablations.log",
    benchmark:
        f"{RUN}/benchmarks/tabulate_ablations.tsv"
    conda:
        ENVIRONMENT
    params:
        variants=ABLATED,
        settings=SETTINGS,
        default=asdict(SETTING),
        out_of_domain=CONFIG["prompts"]["out_of_domain"],
        resamples=CONFIG["evaluate"]["resamples"],
        seed=CONFIG["evaluate"]["seed"],
    message:
        "Tabulate the ablations"
    script:
        "../scripts/tabulate_ablations.py"


rule tabulate_costs:
    input:
        prompts=PROMPTS,
        pairs=expand(f"{RUN}/pairs/{{decode}}.parquet", decode=VARIANTS),
        evaluations=expand(f"{RUN}/evaluation/{{decode}}.parquet", decode=VARIANTS),
        overhead=rules.measure_overhead.output.overhead,
        label_seconds=[path for name in VARIANTS for path in label_benchmarks(name)],
        train_seconds=expand(
            f"{RUN}/benchmarks/train_selector/{{decode}}.tsv", decode=VARIANTS
        ),
        reported=REPORTED,
    output:
        overhead=f"{RUN}/tables/overhead.csv",
        overhead_markdown=f"{RUN}/tables/overhead.md",
        overhead_html=table_page("overhead", COST, "time and memory"),
        policy_cost=f"{RUN}/tables/policy_cost.csv",
    log:
        f"{RUN}/logs/tabulate_costs.log",
    benchmark:
        f"{RUN}/benchmarks/tabulate_costs.tsv"
    conda:
        ENVIRONMENT
    params:
        variants=list(VARIANTS),
        settings=SETTINGS,
        default=asdict(SETTING),
        out_of_domain=CONFIG["prompts"]["out_of_domain"],
        resamples=CONFIG["evaluate"]["resamples"],
        seed=CONFIG["evaluate"]["seed"],
    message:
        "Tabulate what choosing costs, and when labels are earned back"
    script:
        "../scripts/tabulate_costs.py"
