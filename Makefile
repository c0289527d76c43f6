# All that a person needs: `make demo` and `make test`. Both set up a virtual environment first.
#
# Another Python:      make test PYTHON=/path/to/python3.12
# Fewer test workers:  make test WORKERS=2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
WORKERS ?= auto
# The first of these that starts: a name on the path may be a shim of a Python that is not there.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	$$name -c "" 2>/dev/null && echo $$name && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The oldest versions of what daskprs needs exist for the oldest Python only.
OLDEST := .venv-oldest
OLDEST_PYTHON ?= python3.11

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-large test-oldest chaos style docs suite bench bench-full clean

help:  ## Show what there is
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(READY)  ## Two jobs on real data: see what they show, and where everything is
	@$(BIN)/python examples/demo.py

test: style docs  ## Style and documentation, then the whole suite
	@$(MAKE) --no-print-directory suite

suite: $(READY)  ## The tests alone
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not long"

test-long: $(READY)  ## The tests that take minutes, and properties on many more examples
	@HYPOTHESIS_PROFILE=long LARGE_RESULT_MB=2500 \
	    $(BIN)/python -m pytest -n $(WORKERS) --timeout 1800

test-large: $(READY)  ## A result of 10 GB: minutes, and 35 GB of room where TMPDIR is
	@LARGE_RESULT_MB=10000 $(BIN)/python -m pytest tests/output/test_large_results.py

chaos: $(READY)  ## Whatever can die, at every moment, and 200 deaths at random: half an hour
	@$(BIN)/python tests/chaos/everything.py

test-oldest: $(OLDEST)/ready  ## The suite with the lowest versions that pyproject.toml allows
	@$(OLDEST)/bin/python -m pytest -n $(WORKERS) -m "not long"

style: $(READY)  ## Lint, format and types
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy

docs: $(READY)  ## Build the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in site/."

bench: $(READY)  ## Speed beside peers: the quick set, minutes
	@$(BIN)/python -m benchmarks.environments joblib mpire dask
	@$(BIN)/python -m benchmarks run

bench-full: $(READY)  ## The full set: gigabytes, all peers, an hour or two on a quiet machine
	@$(BIN)/python -m benchmarks.environments
	@$(BIN)/python -m benchmarks run --preset full

clean:  ## Remove what all of these have made
	rm -rf $(VENV) $(OLDEST) site dist demo-output .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 \
	    "daskprs needs Python 3.11 or newer; here is '$(PYTHON)'. Name one: make PYTHON=/path/to/python3.11"; \
	    exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): a minute or two, once."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --upgrade "pip>=25.1"
	@echo "  daskprs, its dependencies, and what tests, style and documentation need ..."
	@$(PIP) install --editable . --group dev
	@touch $@

$(OLDEST)/ready: pyproject.toml
	@echo "Setting up $(OLDEST) with $$($(OLDEST_PYTHON) --version): a minute or two, once."
	@$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@sed -n '/^dependencies/,/^]/s/^ *"\([^>"]*\)>=\([0-9.]*\)".*/\1==\2.*/p' pyproject.toml > $(OLDEST)/lowest
	@$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install --editable . --group test --constraint $(OLDEST)/lowest
	@touch $@
