# make demo | test | lint | format | bench | docs | clean. Each target creates the environment it needs.

PYTHON      ?= python3
VENV        ?= .venv
# Where torch comes from. The default holds builds for the CPU; on a machine with GPUs use
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cu130
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH       := torch==2.13.0
DEMO        ?= runs/demo
# Of pytest; a file of tests stays in one. Files run in order: by number of tests, the slowest would come last.
TEST_PROCESSES ?= 2
DATASET     := datasets/cpu-gloo
# The first run of the embedded data set that training never sees.
HELD_OUT    := import json; print(json.load(open("$(DATASET)/splits.json"))["demo"]["test"][0])

BIN   := $(VENV)/bin
PINS  := $(shell cat pyproject.toml research/pyproject.toml | cksum | tr -c '0-9\n' '-')
STAMP := $(VENV)/.installed-$(PINS)

# The tools of the environment come first on PATH, for the processes that the tests start, too. These processes and the
# next run of the tests load modules as they were compiled before, whatever the shell says of byte code.
export PATH := $(abspath $(BIN)):$(PATH)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test pytest lint format bench docs environment clean
.DEFAULT_GOAL := test

demo: $(STAMP)
	$(BIN)/python train.py experiment=demo out=$(DEMO)/train
	$(BIN)/python predict.py trace=$(DATASET)/$$($(BIN)/python -c '$(HELD_OUT)') \
	  checkpoint=$(DEMO)/train/checkpoint.pt evidence=none out=$(DEMO)/predict
	@echo
	@echo "The report: $(abspath $(DEMO))/predict/report.html"

# Both at once: tests wait for their processes, and the type checker takes that time.
test: $(STAMP)
	$(MAKE) --no-print-directory -j2 lint pytest

pytest: $(STAMP)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m research.benchmarks

# The variable silences an advertisement of the theme, which is no warning about these pages.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site: $(abspath site)/index.html"

environment: $(STAMP)

# The stamp carries the checksum of both pyproject.toml: a changed pin installs again, an unchanged one asks no network.
$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gnnperf needs Python 3.11 or newer; '$(PYTHON)' is older or missing. Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "Could not create $(VENV). On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) (once; about a gigabyte) ..."
	@{ $(BIN)/python -m pip install --quiet --retries 1 --extra-index-url $(TORCH_INDEX) $(TORCH) && \
	   $(BIN)/python -m pip install --quiet --editable '.[dev]' --editable './research[baselines]'; } || \
	  { echo "Installing the packages that pyproject.toml names failed; pip says why above. A network or a package mirror is needed once; then run make again." >&2; exit 1; }
	@echo "Compiling loops and modules (once) ..."
	@$(BIN)/python -m compileall -q gnnperf research tests
	@$(BIN)/python predict.py trace=$(DATASET)/$$($(BIN)/python -c '$(HELD_OUT)') evidence=none quiet=true \
	  out=$(VENV)/compiled
	@$(BIN)/python -c 'from gnnperf.trace.scanner import Scanner; Scanner(bytes(99)).scanned(0, 9)'
	@rm -rf $(VENV)/compiled $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf $(VENV) site build dist *.egg-info runs outputs multirun lightning_logs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache
