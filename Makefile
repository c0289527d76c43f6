# All that a person needs: `make demo` and `make test`. Both set up a virtual environment first.
#
# The suite under another Python, beside .venv:  make test-python PYTHON=/path/to/python3.12
# Fewer test workers:                            make test WORKERS=2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# Two more than there are cores, since tests wait a third of the time.
WORKERS ?= $(shell $(BIN)/python -c "import os; print(len(os.sched_getaffinity(0)) + 2)" \
	2>/dev/null || echo auto)
# All tests of a file in one worker: a cluster, service or store of a module is started once.
IN_PARALLEL = -n $(WORKERS) --dist loadfile
# The first of these that starts: a name on the path may be a shim of a Python that is not there.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	$$name -c "" 2>/dev/null && echo $$name && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The oldest versions of what daskprs needs exist for the oldest Python only.
OLDEST := .venv-oldest
OLDEST_PYTHON ?= python3.11
# What the suite skips for want of a package: some bring dozens of others.
EXTRAS := .venv-extras
EXTRA_TESTS := tests/azure/mltable/test_mltable_delta.py tests/azure/test_mlflow_model.py \
	tests/report/test_exporters.py tests/report/test_metrics_file.py tests/report/test_notebook.py \
	tests/serve/test_openapi.py tests/serve/test_sdk_client.py tests/test_notebooks.py
# One environment for each Python that `make test-python` is given.
OTHER = .venv-$(shell $(PYTHON) -c "import sys; print('%d.%d' % sys.version_info[:2])")
# What `pip install` of the built wheel gives a user today: nothing in it is locked.
WHEEL := .venv-wheel
# The tests that the wheel is tried with; without the package, which is the installed one.
UNPACKED := $(WHEEL)/source
# The clone without the packages at its edge, which are plugins of the core.
CORE := .core
CORE_TESTS ?= tests/*/ tests/test_errors.py
# What looks at the project from outside, and is no part of it.
TOOLS := .venv-tools
LOCKS := locks/development.txt locks/image.txt
# One lock for each Python and system. Hashes make a file that was replaced on its way be refused.
LOCK ?= --upgrade
LOCK_FORM = --quiet $(LOCK) --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"
# Each test worker compiles all tests anew where Python may not keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE
# Arguments for pytest:   make suite ARGS="-k lock"
ARGS ?=
# Arguments for chaos:    make chaos CHAOS="--cell 'agent killed | run | append_row | frame | 1' 1 1"
CHAOS ?=
# Seeds of simulated jobs; the options of tests/simulation/simulate.py:
#                         make sim SEEDS=1000 SIM="--first 5000"
SEEDS ?= 1000
REPLAY ?=
SIM ?=
# For the benchmarks:     make bench PEERS=joblib BENCH="--peers joblib,daskprs --workloads csv"
PEERS ?=
BENCH ?=
# Arguments for faults:   make faults FAULTS="order_of_commits --any tests/output/test_store.py"
#                         make faults FAULTS=--simulation
FAULTS ?=
# The size of the result: make test-large LARGE_MB=1000
LARGE_MB ?= 10000

.DEFAULT_GOAL := help
.PHONY: help demo test test-core test-azure test-serve test-gpu test-long test-large test-python test-oldest test-extras test-wheel
.PHONY: attack chaos sim faults style docs suite package sbom lint-package audit lock bench bench-full bench-gpu clean

help:  ## Show what there is
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(READY)  ## Two jobs on real data: see what they show, and where everything is
	@$(BIN)/python examples/demo.py

test: style docs  ## Style and documentation, then the whole suite
	@$(MAKE) --no-print-directory suite

suite: $(READY)  ## The tests alone
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not long" $(ARGS)

test-core: $(READY)  ## The core's tests, in a copy without the packages at its edge
	@rm -rf $(CORE) && mkdir $(CORE)
	@$(BIN)/python -m tests.support.core_copy $(CORE)
	@cd $(CORE) && PYTHONPATH="$(abspath $(CORE))" $(abspath $(BIN))/python -m pytest \
	    $(IN_PARALLEL) -m "not long" $(CORE_TESTS) $(ARGS)

test-azure: $(READY)  ## The tests of Azure's files and classes, and of MLTable
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not long" tests/azure $(ARGS)

test-serve: $(READY)  ## The tests of the HTTP service
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not long" tests/serve $(ARGS)

test-gpu: $(READY)  ## On a machine with a GPU and PyTorch: jobs on the card
	@$(BIN)/python -m pytest tests/gpu tests/agent/test_handed_on.py tests/inputs/test_tables.py \
	    tests/output/test_typed_rows.py $(ARGS)

test-long: $(READY)  ## The tests that take minutes, and properties on many more examples
	@DASKPRS_TESTS_COLD=1 HYPOTHESIS_PROFILE=long LARGE_RESULT_MB=2500 \
	    $(BIN)/python -m pytest -n $(WORKERS) --timeout 1800 $(ARGS)

test-large: $(READY)  ## A result of 10 GB: minutes, and 35 GB of room where TMPDIR is
	@LARGE_RESULT_MB=$(LARGE_MB) $(BIN)/python -m pytest tests/output/test_large_results.py $(ARGS)

attack: $(READY)  ## All attacks on folders, agents and the service, the long ones too: minutes
	@$(BIN)/python -m pytest -n $(WORKERS) -m attack --timeout 1800 $(ARGS)

chaos: $(READY)  ## Whatever can die, at every moment, and 200 deaths at random: an hour
	@$(BIN)/python tests/chaos/everything.py $(CHAOS)

sim: $(READY)  ## Jobs on a virtual clock, each under a seed: make sim SEEDS=10000, or REPLAY=84
	@$(BIN)/python -m tests.simulation.simulate $(SIM) \
	    $(if $(REPLAY),--replay $(REPLAY),$(SEEDS) --counts tests/simulation/counts.jsonl)

faults: $(READY)  ## Faults in the package, one at a time: does the test that is to find each fail?
	@$(BIN)/python tests/faults/seeded.py $(FAULTS)

test-python:  ## The suite under another Python: make test-python PYTHON=python3.13
	@$(MAKE) --no-print-directory suite VENV=$(OTHER)

test-oldest: $(OLDEST)/ready  ## The suite with the lowest versions that pyproject.toml allows
	@$(OLDEST)/bin/python -m pytest $(IN_PARALLEL) -m "not long" $(ARGS)

test-extras: $(EXTRAS)/ready  ## What the suite skips for want of a package: delta, MLflow, notebooks, SDK
	@PATH="$(CURDIR)/$(EXTRAS)/bin:$$PATH" $(EXTRAS)/bin/python -m pytest $(IN_PARALLEL) \
	    -p no:schemathesis $(EXTRA_TESTS) $(ARGS)

test-wheel: package $(WHEEL)/ready  ## The suite of the sdist against the installed wheel
	@rm -rf $(UNPACKED) && mkdir $(UNPACKED)
	@tar --extract --file dist/daskprs-*.tar.gz --strip-components 1 --directory $(UNPACKED)
	@rm -r $(UNPACKED)/daskprs
	@cd $(UNPACKED) && PATH="$(abspath $(WHEEL))/bin:$$PATH" PYTHONPATH="$(abspath $(UNPACKED))" \
	    python -m pytest $(IN_PARALLEL) \
	    -m "not long" $(ARGS)

package: $(READY)  ## Wheel and sdist into dist/: of the same files, the same bytes
	@rm -rf dist
	@$(BIN)/python -m hatchling build

sbom: $(TOOLS)/ready  ## What the image holds, with versions and hashes, into dist/: CycloneDX
	@mkdir -p dist
	@PYTHONWARNINGS=ignore $(TOOLS)/bin/cyclonedx-py requirements locks/image.txt --pyproject pyproject.toml --mc-type library \
	    --output-reproducible --output-format JSON --output-file dist/daskprs-sbom.json
	@echo "The list is dist/daskprs-sbom.json."

lint-package: $(TOOLS)/ready  ## Workflows, templates, CITATION.cff; public types by pyright
	@$(TOOLS)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(TOOLS)/bin/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(TOOLS)/bin/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms \
	    .github/ISSUE_TEMPLATE/fault.yml .github/ISSUE_TEMPLATE/wish.yml
	@$(TOOLS)/bin/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	@$(TOOLS)/bin/zizmor --offline --quiet --no-progress .github/workflows
	@$(TOOLS)/bin/pyright --pythonpath $(BIN)/python tests/typed_calls.py

style: $(READY)  ## Lint, format and types
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy

docs: $(READY)  ## Build the documentation into site/; a warning is an error
	@$(BIN)/python -m tests.support.site
	@echo "The documentation is in site/."

audit: $(TOOLS)/ready  ## Known faults of what is locked, and a search of our own code for insecure calls
	@$(TOOLS)/bin/bandit --quiet --recursive daskprs examples deploy --configfile pyproject.toml
	@for lock in $(LOCKS); do \
	    $(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --requirement $$lock || exit 1; done

lock: $(TOOLS)/ready  ## Lock the newest versions that pyproject.toml allows; LOCK=--upgrade-package=dask: one
	@$(TOOLS)/bin/uv pip compile pyproject.toml $(LOCK_FORM) --group dev --output-file locks/development.txt
	@$(TOOLS)/bin/uv pip compile pyproject.toml $(LOCK_FORM) --group build --output-file locks/image.txt

bench: $(READY)  ## Speed beside peers: the quick set, minutes
	@$(BIN)/python -m benchmarks.environments $(or $(PEERS),joblib mpire dask)
	@$(BIN)/python -m benchmarks run $(BENCH)

bench-full: $(READY)  ## The full set: gigabytes, all peers, an hour or two on a quiet machine
	@$(BIN)/python -m benchmarks.environments $(PEERS)
	@$(BIN)/python -m benchmarks run --preset full $(BENCH)

bench-gpu: $(if $(GPU_PYTHON),,$(READY))  ## Jobs on a card beside hand-written loops; GPU_PYTHON=python3: without .venv
	@$(or $(GPU_PYTHON),$(BIN)/python) -m benchmarks.gpu $(BENCH)

clean:  ## Remove what all of these have made
	rm -rf .venv .venv-* .core site dist demo-output .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml locks/development.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 \
	    "daskprs needs Python 3.11 or newer; here is '$(PYTHON)'. Name one: make PYTHON=/path/to/python3.11"; \
	    exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): a minute or two, once."
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "  daskprs, its dependencies, and what tests, style and documentation need ..."
	@$(PIP) install --no-deps --require-hashes --requirement locks/development.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(OLDEST)/ready: pyproject.toml
	@echo "Setting up $(OLDEST) with $$($(OLDEST_PYTHON) --version): a minute or two, once."
	@$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@sed -n '/^dependencies/,/^]/s/^ *"\([^>"]*\)>=\([0-9.]*\)".*/\1==\2.*/p' pyproject.toml > $(OLDEST)/lowest
	@$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install --editable . --group test --constraint $(OLDEST)/lowest
	@touch $@

$(WHEEL)/ready: package
	@echo "Setting up $(WHEEL) with $$($(PYTHON) --version): a minute or two."
	@$(PYTHON) -m venv --clear $(WHEEL)
	@$(WHEEL)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@$(WHEEL)/bin/python -m pip --disable-pip-version-check --quiet install dist/*.whl --group test
	@touch $@

$(TOOLS)/ready: pyproject.toml
	@echo "Setting up $(TOOLS) with $$($(PYTHON) --version): a minute, once."
	@$(PYTHON) -m venv --clear $(TOOLS)
	@$(TOOLS)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@$(TOOLS)/bin/python -m pip --disable-pip-version-check --quiet install --group tools
	@touch $@

$(EXTRAS)/ready: pyproject.toml
	@echo "Setting up $(EXTRAS) with $$($(PYTHON) --version): some minutes, once."
	@$(PYTHON) -m venv --clear $(EXTRAS)
	@$(EXTRAS)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@$(EXTRAS)/bin/python -m pip --disable-pip-version-check --quiet install --editable ".[delta,mlflow,otel,serve]" \
	    --group test --group extras
	@touch $@
