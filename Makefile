# Two commands do everything on a machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: setup demo test lint soak mutants bench bench-gpu reproduce docs clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/phvae demo --output demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 -m "not soak"

soak: setup
	$(BIN)/python -m pytest -n 2 -m soak

# Changes one thing at a time and sees whether the tests notice: an hour or two.
mutants: setup
	$(BIN)/python -m tools.mutants kernels distributions risk metrics modelfile persistence $(ARGS)

bench: setup
	for name in likelihood training columns fitting generators; do $(BIN)/python -m benchmarks.$$name || exit 1; done

# Runs from the source tree with whatever torch and triton the GPU machine has: nothing is installed.
bench-gpu:
	PYTHONPATH=src $(PYTHON) -m benchmarks.likelihood_gpu --output benchmarks/results/likelihood-gpu.json
	PYTHONPATH=src $(PYTHON) -m benchmarks.training_gpu --output benchmarks/results/training-gpu.json

reproduce: setup
	$(BIN)/python -m experiments $(ARGS)

docs: setup
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 docs build/docs

clean:
	rm -rf build demo $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
