# What a replayed trajectory tells besides labels: every anchor, every size, every scheme, and
# a live control.


rule replay_acceptance:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        pair=PAIR_FILES,
    output:
        acceptance=f"{RUN}/acceptance/{{decode}}.parquet",
    log:
        f"{RUN}/logs/replay_acceptance/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/replay_acceptance/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: variant_sampling(wildcards.decode),
        limits=REPLAY_LIMITS,
        block_sizes=SWEPT,
        prompts_per_domain=SWEEP["acceptance_prompts_per_domain"],
    message:
        "Replay every anchor of the test texts ({wildcards.decode})"
    script:
        "../scripts/replay_acceptance.py"


rule replay_grid:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        pair=PAIR_FILES,
    output:
        grid=f"{RUN}/grid/{{decode}}.parquet",
    log:
        f"{RUN}/logs/replay_grid/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/replay_grid/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: variant_sampling(wildcards.decode),
        limits=REPLAY_LIMITS,
        trained_block_size=DRAFT.block_size,
        prompts_per_domain=SWEEP["grid_prompts_per_domain"],
    message:
        "Replay every size from 1 to 2B, drafted and verified ({wildcards.decode})"
    script:
        "../scripts/replay_grid.py"


rule control_sweep:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        pair=PAIR_FILES,
    output:
        control=f"{RUN}/sweep_control/{{decode}}.parquet",
        cost=f"{RUN}/sweep_control/{{decode}}_cost.parquet",
    log:
        f"{RUN}/logs/control_sweep/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/control_sweep/{{decode}}.tsv"
    conda:
        ENVIRONMENT
    threads: MEASURING_THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        batch_size=DECODE["batch_size"],
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: variant_sampling(wildcards.decode),
        limits=REPLAY_LIMITS,
        block_sizes=SWEPT,
        prompts_per_domain=SWEEP["control_prompts_per_domain"],
        measured_with=MEASURED_WITH,
    message:
        "Label a sample live and by replay, alone on the device ({wildcards.decode})"
    script:
        "../scripts/control_sweep.py"


rule compare_schemes:
    input:
        prompts=PROMPTS,
        trajectories=f"{RUN}/trajectories/{{decode}}.parquet",
        pair=PAIR_FILES,
    output:
        schemes=f"{RUN}/schemes/{{decode}}.parquet",
    log:
        f"{RUN}/logs/compare_schemes/{{decode}}.log",
    benchmark:
        f"{RUN}/benchmarks/compare_schemes/{{decode}}.tsv"
    # The longest job: started late, it would keep the timed rules waiting.
    priority: 1
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=GPUS,
    params:
        loading=LOADING,
        max_new_tokens=DECODE["max_new_tokens"],
        variant=lambda wildcards: variant_sampling(wildcards.decode),
        limits=REPLAY_LIMITS,
        trained_block_size=DRAFT.block_size,
        prompts_per_domain=SWEEP["schemes"]["prompts_per_domain"],
        draft_temperatures=SWEEP["schemes"]["draft_temperatures"],
    message:
        "Compare match, coupled and rejection ({wildcards.decode})"
    script:
        "../scripts/compare_schemes.py"


rule state_latency:
    output:
        latency=f"{RUN}/latency/{DEVICE['name']}.parquet",
    log:
        f"{RUN}/logs/state_latency.log",
    benchmark:
        f"{RUN}/benchmarks/state_latency.tsv"
    conda:
        ENVIRONMENT
    params:
        latency=CONFIG["latency"],
        dtype=DECODE["dtype"],
    message:
        "Write down the configured latencies of one pass"
    script:
        "../scripts/state_latency.py"


rule tabulate_replay:
    input:
        prompts=PROMPTS,
        trajectories=expand(f"{RUN}/trajectories/{{decode}}.parquet", decode=REPLAYED),
        pairs=expand(f"{RUN}/pairs/{{decode}}.parquet", decode=REPLAYED),
        grids=expand(f"{RUN}/grid/{{decode}}.parquet", decode=REPLAYED),
        acceptances=expand(f"{RUN}/acceptance/{{decode}}.parquet", decode=REPLAYED),
        controls=expand(f"{RUN}/sweep_control/{{decode}}.parquet", decode=REPLAYED),
        costs=expand(f"{RUN}/sweep_control/{{decode}}_cost.parquet", decode=REPLAYED),
        latency=f"{RUN}/latency/{DEVICE['name']}.parquet",
    output:
        findings=f"{RUN}/tables/findings.csv",
        distribution=f"{RUN}/tables/finding_distribution.csv",
        draft_verify=f"{RUN}/tables/draft_verify.csv",
        bounds=f"{RUN}/tables/bounds.csv",
        agreement=f"{RUN}/tables/replay_agreement.csv",
        pairs_control=f"{RUN}/tables/replay_pairs.csv",
        cost=f"{RUN}/tables/replay_cost.csv",
    log:
        f"{RUN}/logs/tabulate_replay.log",
    benchmark:
        f"{RUN}/benchmarks/tabulate_replay.tsv"
    conda:
        ENVIRONMENT
    params:
        variants=REPLAYED,
        trained_block_size=DRAFT.block_size,
        block_sizes=SWEPT,
        max_new_tokens=DECODE["max_new_tokens"],
        out_of_domain=CONFIG["prompts"]["out_of_domain"],
        resamples=CONFIG["evaluate"]["resamples"],
        seed=CONFIG["evaluate"]["seed"],
    message:
        "Tabulate findings, bounds and the control of replay"
    script:
        "../scripts/tabulate_replay.py"


rule tabulate_schemes:
    input:
        prompts=PROMPTS,
        schemes=expand(f"{RUN}/schemes/{{decode}}.parquet", decode=COMPARED),
    output:
        schemes=f"{RUN}/tables/schemes.csv",
        draft_temperatures=f"{RUN}/tables/draft_temperatures.csv",
    log:
        f"{RUN}/logs/tabulate_schemes.log",
    benchmark:
        f"{RUN}/benchmarks/tabulate_schemes.tsv"
    conda:
        ENVIRONMENT
    params:
        variants=COMPARED,
        draft_temperatures={name: draft_temperature(name) for name in COMPARED},
        trained_block_size=DRAFT.block_size,
        out_of_domain=CONFIG["prompts"]["out_of_domain"],
        resamples=CONFIG["evaluate"]["resamples"],
        seed=CONFIG["evaluate"]["seed"],
    message:
        "Tabulate the verification schemes and the draft's temperature"
    script:
        "../scripts/tabulate_schemes.py"
