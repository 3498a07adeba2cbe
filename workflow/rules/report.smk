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
        reported=REPORTED,
    output:
        main=f"{RUN}/tables/main.csv",
        main_markdown=f"{RUN}/tables/main.md",
        main_html=table_page("main", RESULTS, "all policies on held-out prompts"),
        headline=f"{RUN}/tables/headline.md",
        tau=f"{RUN}/tables/tau_by_block_size.csv",
        prompt_taus=f"{RUN}/tables/tau_by_prompt.csv",
        best_sizes=f"{RUN}/tables/best_block_size.csv",
        texts=f"{RUN}/tables/texts.csv",
        lengths=f"{RUN}/tables/response_lengths.csv",
        datasets=f"{RUN}/tables/datasets.csv",
        datasets_markdown=f"{RUN}/tables/datasets.md",
        datasets_html=table_page("datasets", LABELS, "data sets"),
        reported=f"{RUN}/tables/reported.csv",
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


# Every figure whose tables this run makes.
TABLES = csv_tables()
DRAWN = drawable(TABLES)


rule plot_figures:
    input:
        tables=[TABLES[stem] for name in DRAWN for stem in FIGURES[name].tables],
    output:
        svg=[figure_in_report(name) for name in DRAWN],
        png=expand(f"{RUN}/figures/{{name}}.png", name=DRAWN),
    log:
        f"{RUN}/logs/plot_figures.log",
    benchmark:
        f"{RUN}/benchmarks/plot_figures.tsv"
    conda:
        ENVIRONMENT
    params:
        figures=DRAWN,
        trained_block_size=DRAFT.block_size,
    message:
        "Draw all figures"
    script:
        "../scripts/plot_figures.py"


rule write_manifest:
    input:
        tables=table_results(),
        figures=rules.plot_figures.output,
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
        trained_block_size=DRAFT.block_size,
    message:
        "Write down versions, device, configuration and seconds per rule"
    script:
        "../scripts/write_manifest.py"
