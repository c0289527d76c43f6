# Everything a person needs: make demo, make test. Each sets up its own virtual environment.
PYTHON ?= $(firstword $(foreach version,3.13 3.12 3.11,$(shell command -v python$(version) 2>/dev/null)) $(shell command -v python3))
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto

.PHONY: demo test test-long style docs clean
.DEFAULT_GOAL := test

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "daskprs needs Python 3.11 or newer; $(PYTHON) is older. Say: make PYTHON=/path/to/python3.11")'
	@echo "Setting up $(VENV) (a minute or so) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group test --group style --group docs
	@touch $@

demo: $(VENV)/ready  ## The main job on real data: see what it shows
	@$(BIN)/python examples/demo.py

test: style docs $(VENV)/ready  ## Style, documentation and the whole suite
	$(BIN)/python -m pytest -n $(WORKERS) -m "not long"

test-long: $(VENV)/ready  ## The long forms
	$(BIN)/python -m pytest -n $(WORKERS) -m long

style: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/ready
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site dist demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
