# On a machine with Python 3.11+ (venv, pip) and make: `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PEER   ?= $(VENV)-diffprivlib
OPACUS ?= $(VENV)-opacus
FLOWER ?= $(VENV)-flower
PFL    ?= $(VENV)-pfl
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo check test lint types layers wheel docs docs-execute audit mutants bench experiments clean

help:                  ## list the targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /	/' | expand -t 14

demo: $(VENV)/demo.stamp  ## train private models on real medical records
	$(BIN)/privet demo

check: lint types  ## style, types, layers and the fast tests: under 90 seconds, for the inner loop
	$(ONE_THREAD) $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --fast

# Compiled tests are kept whatever the environment says: compiling them takes nine seconds per process.
test: $(VENV)/dev.stamp  ## run all tests, in two processes of one thread each
	$(ONE_THREAD) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/dev.stamp  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp  ## mypy, strict on src
	$(BIN)/mypy

layers: $(VENV)/dev.stamp  ## imports point down the layers, noise is drawn in one place
	$(BIN)/python -m pytest tests/test_layers.py

wheel: $(VENV)/dev.stamp  ## build the wheel, install it into a clean environment without constraints, and use it
	$(BIN)/python tools/wheel.py

docs: $(VENV)/dev.stamp  ## the documentation site, into docs/_build; a warning or a broken internal link is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs 2 --builder html docs docs/_build
	$(BIN)/python tools/site_links.py docs/_build

docs-execute: $(VENV)/dev.stamp  ## runs the tutorials and all code of the documents, and draws the pictures of docs/accounting.md
	$(BIN)/python tools/tutorials.py
	$(BIN)/python tools/pictures.py
	PRIVET_DOCS=long $(ONE_THREAD) $(BIN)/python -m pytest tests/test_docs.py tests/docs

audit: $(VENV)/dev.stamp  ## attack every solver and estimator, at length
	PRIVET_AUDIT=long $(BIN)/python -m pytest -s tests/audit tests/multiparty/protocol/test_coalition_majority.py \
		tests/multiparty/protocol/test_many_owners.py tests/multiparty/protocol/test_no_leaks.py \
		tests/privacy/test_ledger_processes.py

mutants: $(VENV)/dev.stamp  ## put small bugs into the core, which the tests must notice
	$(ONE_THREAD) $(BIN)/python tools/mutants.py

bench: $(VENV)/dev.stamp $(VENV)/experiments.stamp $(PEER)/stamp $(OPACUS)/stamp $(FLOWER)/stamp $(PFL)/stamp  ## privet against its peers, as ratios, and replays of theirs
	$(BIN)/python benchmarks/smoothing.py
	$(BIN)/python benchmarks/noise.py --json
	PEER_PYTHON=$(PEER)/bin/python $(BIN)/python benchmarks/linear.py
	$(OPACUS)/bin/python benchmarks/deep.py --json
	PFL_PYTHON=$(PFL)/bin/python $(FLOWER)/bin/python benchmarks/federated.py --json
	$(OPACUS)/bin/python -W ignore experiments/replay_peers.py opacus
	$(PEER)/bin/python -W ignore experiments/replay_peers.py diffprivlib

experiments: $(VENV)/experiments.stamp  ## the papers' tables and figures, into docs/results (needs their data)
	$(BIN)/python experiments/efficient_erm_table3.py
	$(BIN)/python experiments/dp_lssgd_table2.py
	$(BIN)/python experiments/dp_srm_table42.py
	$(BIN)/python experiments/dp_srm_table43.py
	$(BIN)/python experiments/iteration_curves.py
	$(BIN)/python experiments/methods_table.py
	$(BIN)/python experiments/dp_lssgd_cnn.py
	$(BIN)/python experiments/dp_lssgd_rates.py
	$(BIN)/python experiments/dp_srm_cnn.py
	$(BIN)/python experiments/cifar_cnn.py
	$(BIN)/python experiments/dp_lssgd_rates.py --images cifar10
	$(BIN)/python experiments/mnist_recipe.py
	$(BIN)/python experiments/sparse_synthetic.py
	$(BIN)/python experiments/sparse_text.py
	$(BIN)/python experiments/multiparty.py
	$(BIN)/python experiments/multiparty_processes.py
	$(BIN)/python experiments/multiparty_servers.py --full
	$(BIN)/python experiments/multiparty_penalty.py
	$(BIN)/python experiments/smoothing_constants.py
	$(BIN)/python experiments/fed_logistic.py
	$(BIN)/python experiments/fed_smoothing.py
	$(BIN)/python experiments/fed_cnn.py
	$(BIN)/python experiments/fed_lstm.py
	$(BIN)/python experiments/fed_membership.py
	$(BIN)/python experiments/fed_frequency.py

clean:                 ## remove the environment and all caches
	rm -rf $(VENV) $(PEER) $(OPACUS) $(FLOWER) $(PFL) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants

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

$(VENV)/experiments.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[deep,multiparty,experiments]'
	@touch $@

# diffprivlib does not import on current scikit-learn: it gets an environment of its own.
$(PEER)/stamp: pyproject.toml
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip --disable-pip-version-check --quiet install --editable . diffprivlib==0.6.6 \
	  scikit-learn==1.7.2
	@touch $@

# Opacus is no dependency of privet, in no extra: it gets an environment of its own, where both can be timed in turns. Hugging Face's
# libraries are for one of the models.
$(OPACUS)/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OPACUS)
	$(OPACUS)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt \
	  --editable '.[deep]' opacus==1.6.0 transformers==5.23.0 peft==0.21.2
	@touch $@

# Flower's simulation engine needs Ray, which nothing else does.
$(FLOWER)/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt \
	  --editable '.[deep]' 'flwr[simulation]==1.41.*'
	@touch $@

# pfl-research needs an older dp-accounting than privet. Without torch's exact version, gigabytes would be installed.
$(PFL)/stamp: constraints.txt
	$(PYTHON) -m venv $(PFL)
	$(PFL)/bin/python -m pip --disable-pip-version-check --quiet install 'pfl[pytorch]==0.6.*' \
	  $$(grep '^torch==' constraints.txt) $$(grep '^numpy==' constraints.txt)
	@touch $@
