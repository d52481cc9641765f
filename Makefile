# On a machine with Python 3.11+ (venv, pip) and make: `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers bench clean

help:                  ## list the targets
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /	/' | expand -t 12

demo: $(VENV)/demo.stamp  ## train private models on real medical records
	$(BIN)/privet demo

test: $(VENV)/dev.stamp  ## run all tests
	$(BIN)/python -m pytest

lint: $(VENV)/dev.stamp  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp  ## mypy, strict on src
	$(BIN)/mypy

layers: $(VENV)/dev.stamp  ## imports point down the layers, noise is drawn in one place
	$(BIN)/python -m pytest tests/test_layers.py

bench: $(VENV)/dev.stamp  ## privet against its peers, as ratios
	$(BIN)/python benchmarks/smoothing.py

clean:                 ## remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "privet needs Python 3.11 or later; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	@touch $@
