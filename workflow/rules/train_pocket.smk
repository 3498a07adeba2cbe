# Makes the embedded pair. Nothing in the default run depends on these rules:
# `make ship-pocket` copies their result into workflow/resources/pocket/ once.
POCKET = "results/train_pocket"


rule generate_corpus:
    output:
        corpus=f"{POCKET}/corpus.parquet",
        tokenizer=directory(f"{POCKET}/tokenizer"),
    log:
        "logs/train_pocket/generate_corpus.log",
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
        "logs/train_pocket/train_target.log",
    threads: 2
    params:
        target=TRAIN["target"],
        checkpoint=f"{POCKET}/checkpoints/target.safetensors",
    message:
        "Train the pocket target on {threads} threads (resumes from its checkpoint)"
    script:
        "../scripts/train_target.py"
