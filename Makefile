# `make` lists the targets. Variables can be set on the command line: make run EXPERIMENT=smoke CORES=4

VENV := .venv
PY := $(VENV)/bin/python
SNAKEMAKE := $(VENV)/bin/snakemake
PIP := $(PY) -m pip --disable-pip-version-check install --quiet $(PIP_ARGS)

CORES ?= $(shell nproc 2>/dev/null || echo 2)
EXPERIMENT ?= pocket
RUN ?= $(EXPERIMENT)
ARGS ?=
OVERRIDES ?=
PROFILE ?=
PYTEST_ARGS ?=

# OVERRIDES='a.b=1 c=2' becomes 'overrides=["a.b=1","c=2"]', the list that the Snakefile reads.
comma := ,
empty :=
space := $(empty) $(empty)
overrides_list = $(subst $(space),$(comma),$(foreach item,$(strip $(OVERRIDES)),"$(item)"))
CONFIG_ARGS = --config experiment=$(EXPERIMENT) $(if $(strip $(OVERRIDES)),'overrides=[$(overrides_list)]')
PROFILE_ARGS = $(if $(PROFILE),--workflow-profile workflow/profiles/$(PROFILE))
FLOW = $(SNAKEMAKE) --cores $(CORES) --rerun-incomplete $(PROFILE_ARGS) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup run report lint test test-full bench bench-replay train-pocket ship-pocket publish readme notebooks clean

help: ## List the targets and variables
	@echo "Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "Variables:"
	@echo "  CORES         cores for the workflow (now $(CORES))"
	@echo "  EXPERIMENT    name of a file in conf/experiment/ (now $(EXPERIMENT))"
	@echo "  OVERRIDES     config overrides, e.g. OVERRIDES='selector.width=512 selector.depth=1'"
	@echo "  PROFILE       a folder of workflow/profiles/, e.g. PROFILE=workstation for several GPUs"
	@echo "  ARGS          more snakemake options or targets, e.g. ARGS=--dry-run"
	@echo "  RUN           directory under results/ to report, publish or show in notebooks (now $(RUN))"
	@echo "  PIP_ARGS      more pip options for setup, e.g. an index that serves CPU builds of torch"
	@echo "  PYTEST_ARGS   more pytest options, e.g. PYTEST_ARGS='-k layers'"

setup: $(VENV)/.installed ## Create .venv with the exact versions of requirements.lock

$(VENV)/bin/python:
	@set -e; \
	for candidate in python3.11 python3; do \
	  if command -v $$candidate >/dev/null 2>&1 && \
	    $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$${python:-}" ]; then \
	  echo "setup: found neither python3.11 nor a python3 of version 3.11 or newer;" \
	    "install one, or use conda: conda env create -f environment.yml" >&2; exit 1; \
	fi; \
	echo "Creating $(VENV) with $$python"; \
	$$python -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "setup: $$python cannot create a virtual environment; install its venv module" \
	    "(Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.installed: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the versions of requirements.lock (the first time: some minutes, mostly torch)"
	@$(PIP) -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# The public drafter, against which the tests compare ours. Without its dependencies: it pins other versions.
$(VENV)/.oracle: $(VENV)/.installed
	@$(PIP) --no-deps dflash==0.1.0
	@touch $@

run: setup ## Run the whole experiment: labels, selector, evaluation, tables, figures
	@$(FLOW) $(CONFIG_ARGS)
	@echo "tables:  results/$(RUN)/tables"
	@echo "figures: results/$(RUN)/figures"
	@echo "report:  make report (with the same variables) writes results/$(RUN)/report.html"

report: setup ## Put figures and tables of RUN into one page, results/RUN/report.html
	@if [ ! -f "results/$(RUN)/manifest.json" ]; then \
	  echo "report: results/$(RUN) is not finished; run: make run EXPERIMENT=$(EXPERIMENT)" >&2; exit 1; \
	fi
	@$(SNAKEMAKE) --cores $(CORES) --report "results/$(RUN)/report.html" \
	  --report-stylesheet workflow/report/report.css $(CONFIG_ARGS)
	@echo "report: results/$(RUN)/report.html"

lint: setup ## Check style of Python and Snakemake files
	@$(VENV)/bin/ruff check workflow tests
	@$(VENV)/bin/ruff format --check workflow tests
	@$(VENV)/bin/snakefmt --check Snakefile workflow/rules
	@$(SNAKEMAKE) --lint

test: $(VENV)/.oracle lint ## Lint, then run the tests (minutes)
	@$(PY) -m pytest -m "not full" $(PYTEST_ARGS)

test-full: $(VENV)/.oracle ## Run every test, with the whole invariant grid
	@$(PY) -m pytest -m "full or not full" $(PYTEST_ARGS)

bench: $(VENV)/.oracle ## Measure decoding of the embedded pair against transformers and the public package
	@$(PY) tests/benchmarks/bench_pocket.py

bench-replay: $(VENV)/.oracle ## Measure labelling by replay against live sweeps and the public package (half an hour)
	@$(PY) tests/benchmarks/bench_replay.py

train-pocket: setup ## Train the embedded pair from scratch into results/train_pocket (hours)
	@$(FLOW) train_pocket

ship-pocket: setup ## Copy the trained pair into workflow/resources/pocket
	@$(PY) -m blockpilot.cli ship-pocket

publish: setup ## Copy figures, tables and bench files of RUN to docs/RUN, and refresh README.md
	@for part in figures tables; do \
	  if [ ! -d "results/$(RUN)/$$part" ]; then \
	    echo "publish: results/$(RUN)/$$part is missing; run: make run EXPERIMENT=$(RUN)" >&2; exit 1; \
	  fi; \
	done
	@mkdir -p "docs/$(RUN)"
	@for part in figures tables; do \
	  rm -rf "docs/$(RUN)/$$part" && cp -R "results/$(RUN)/$$part" "docs/$(RUN)/$$part" || exit 1; \
	done
	@for file in results/bench/*.csv results/bench/*.svg results/bench/*.png; do \
	  if [ -f "$$file" ]; then mkdir -p "docs/$(RUN)/bench" && cp "$$file" "docs/$(RUN)/bench/" || exit 1; fi; \
	done
	@cp "results/$(RUN)/manifest.json" "docs/$(RUN)/manifest.json"
	@echo "published to docs/$(RUN)"
	@$(PY) -m blockpilot.cli readme --run "$(RUN)"

readme: setup ## Fill README.md again with the numbers of docs/
	@$(PY) -m blockpilot.cli readme

notebooks: setup ## Execute the notebooks on RUN, into results/RUN/notebooks
	@if [ ! -f "results/$(RUN)/manifest.json" ]; then \
	  echo "notebooks: results/$(RUN)/manifest.json is missing; run: make run EXPERIMENT=$(RUN)" >&2; exit 1; \
	fi
	@mkdir -p "results/$(RUN)/notebooks"
	@BLOCKPILOT_RUN="$(RUN)" $(VENV)/bin/jupyter execute notebooks/*.ipynb \
	  --output="../results/$(RUN)/notebooks/{notebook_name}"
	@echo "notebooks: results/$(RUN)/notebooks"

clean: ## Delete the runs under results/, but not the training of the pair
	@find results -mindepth 1 -maxdepth 1 ! -name README.md ! -name train_pocket -exec rm -rf {} +
