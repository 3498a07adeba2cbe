# Tables and figures for people, and the manifest of the run.


rule tabulate_results:
    input:
        prompts=PROMPTS,
        trajectories=expand(f"{RUN}/trajectories/{{decode}}.parquet", decode=VARIANTS),
        pairs=expand(f"{RUN}/pairs/{{decode}}.parquet", decode=VARIANTS),
        sweeps=expand(
            f"{RUN}/sweep/{{decode}}/B{{block_size}}.parquet",
            decode=VARIANTS,
            block_size=SWEPT,
        ),
        evaluations=expand(f"{RUN}/evaluation/{{decode}}.parquet", decode=VARIANTS),
    output:
        main=f"{RUN}/tables/main.csv",
        main_markdown=f"{RUN}/tables/main.md",
        headline=f"{RUN}/tables/headline.md",
        tau=f"{RUN}/tables/tau_by_block_size.csv",
        best_sizes=f"{RUN}/tables/best_block_size.csv",
        prompts=f"{RUN}/tables/prompts.csv",
        texts=f"{RUN}/tables/texts.csv",
    log:
        f"{RUN}/logs/tabulate_results.log",
    benchmark:
        f"{RUN}/benchmarks/tabulate_results.tsv"
    conda:
        ENVIRONMENT
    params:
        variants=list(VARIANTS),
        out_of_domain=CONFIG["prompts"]["out_of_domain"],
        resamples=CONFIG["evaluate"]["resamples"],
        seed=CONFIG["evaluate"]["seed"],
    message:
        "Tabulate results with paired bootstrap intervals"
    script:
        "../scripts/tabulate_results.py"


rule plot_figures:
    input:
        main=f"{RUN}/tables/main.csv",
        tau=f"{RUN}/tables/tau_by_block_size.csv",
    output:
        tau=multiext(f"{RUN}/figures/tau_by_block_size", ".svg", ".png"),
        speedup=multiext(f"{RUN}/figures/speedup", ".svg", ".png"),
    log:
        f"{RUN}/logs/plot_figures.log",
    benchmark:
        f"{RUN}/benchmarks/plot_figures.tsv"
    conda:
        ENVIRONMENT
    params:
        trained_block_size=DRAFT.block_size,
    message:
        "Plot tau against the block size, and speedups"
    script:
        "../scripts/plot_figures.py"


rule write_manifest:
    input:
        tables=rules.tabulate_results.output,
        figures=rules.plot_figures.output,
        replay=replay_results(),
    output:
        manifest=f"{RUN}/manifest.json",
    log:
        f"{RUN}/logs/write_manifest.log",
    benchmark:
        f"{RUN}/benchmarks/write_manifest.tsv"
    conda:
        ENVIRONMENT
    params:
        config={key: CONFIG[key] for key in sorted(CONFIG) if key != "train"},
        benchmarks=f"{RUN}/benchmarks",
    message:
        "Write down versions, device, configuration and seconds per rule"
    script:
        "../scripts/write_manifest.py"
