# Makes the embedded pair. Nothing in the default run depends on these rules:
# `make ship-pocket` copies their result into workflow/resources/pocket/ once.
POCKET = "results/train_pocket"


rule train_pocket:
    input:
        f"{POCKET}/target",
        f"{POCKET}/draft",
        f"{POCKET}/cards",


rule generate_corpus:
    output:
        corpus=f"{POCKET}/corpus.parquet",
        tokenizer=directory(f"{POCKET}/tokenizer"),
    log:
        f"{POCKET}/logs/generate_corpus.log",
    benchmark:
        f"{POCKET}/benchmarks/generate_corpus.tsv"
    conda:
        ENVIRONMENT
    params:
        corpus=TRAIN["corpus"],
    message:
        "Draw training conversations from the three grammars and train the tokenizer"
    script:
        "../scripts/generate_corpus.py"


rule train_target:
    input:
        corpus=f"{POCKET}/corpus.parquet",
        tokenizer=f"{POCKET}/tokenizer",
    output:
        model=directory(f"{POCKET}/target"),
    log:
        f"{POCKET}/logs/train_target.log",
    benchmark:
        f"{POCKET}/benchmarks/train_target.tsv"
    conda:
        ENVIRONMENT
    threads: 2
    params:
        target=TRAIN["target"],
        checkpoint=f"{POCKET}/checkpoints/target.safetensors",
    message:
        "Train the pocket target on {threads} threads (resumes from its checkpoint)"
    script:
        "../scripts/train_target.py"


rule regenerate_responses:
    input:
        corpus=f"{POCKET}/corpus.parquet",
        target=f"{POCKET}/target",
    output:
        responses=f"{POCKET}/responses.parquet",
    log:
        f"{POCKET}/logs/regenerate_responses.log",
    benchmark:
        f"{POCKET}/benchmarks/regenerate_responses.tsv"
    conda:
        ENVIRONMENT
    threads: 2
    params:
        responses=TRAIN["responses"],
    message:
        "Let the target answer the training prompts: the draft learns its text, not the corpus"
    script:
        "../scripts/regenerate_responses.py"


rule train_draft:
    input:
        responses=f"{POCKET}/responses.parquet",
        target=f"{POCKET}/target",
    output:
        model=directory(f"{POCKET}/draft"),
    log:
        f"{POCKET}/logs/train_draft.log",
    benchmark:
        f"{POCKET}/benchmarks/train_draft.tsv"
    conda:
        ENVIRONMENT
    threads: 2
    params:
        draft=TRAIN["draft"],
        checkpoint=f"{POCKET}/checkpoints/draft.safetensors",
    message:
        "Train the pocket draft on {threads} threads (resumes from its checkpoint)"
    script:
        "../scripts/train_draft.py"


rule assess_pair:
    input:
        target=f"{POCKET}/target",
        draft=f"{POCKET}/draft",
    output:
        cards=directory(f"{POCKET}/cards"),
    log:
        f"{POCKET}/logs/assess_pair.log",
    benchmark:
        f"{POCKET}/benchmarks/assess_pair.tsv"
    conda:
        ENVIRONMENT
    threads: 2
    params:
        train=TRAIN,
    message:
        "Measure the pair against its quality goals and write the model cards"
    script:
        "../scripts/assess_pair.py"
