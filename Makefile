# Two commands on a fresh machine: `make serve` and `make test`. Everything else is made on the way.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CUDA build of ONNX Runtime where there is an NVIDIA driver, the plain one elsewhere.
RUNTIME ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)
PIP := $(BIN)/python -m pip --disable-pip-version-check
HOST ?= 127.0.0.1
PORT ?= 8000
DATA ?= ../shared/data

.PHONY: serve test test-system lint types format bench clean train-bundled
.DEFAULT_GOAL := serve

serve: $(VENV)/.serve-$(RUNTIME)
	$(BIN)/uepnet serve --host $(HOST) --port $(PORT)

test: lint types
	$(BIN)/python -m pytest

test-system: $(VENV)/.dev-$(RUNTIME)
	PYTHON="$(abspath $(BIN))/python" deploy/install-system-tests
	$(BIN)/python -m pytest -m system

lint: $(VENV)/.dev-$(RUNTIME)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev-$(RUNTIME) .typecheck/uepnet
	$(BIN)/mypy -p uepnet

format: $(VENV)/.dev-$(RUNTIME)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev-$(RUNTIME)
	$(BIN)/uepnet bench runtime

train-bundled: $(VENV)/.dev-$(RUNTIME)
	training/train-bundled "$(DATA)"

clean:
	rm -rf $(VENV) build dist *.egg-info .typecheck .mypy_cache .ruff_cache .pytest_cache .hypothesis .odd-images

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve-$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable ".[serve,$(RUNTIME)]"
	touch $@

$(VENV)/.dev-$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev,$(RUNTIME)]"
	touch $@ $(VENV)/.serve-$(RUNTIME)

# mypy cannot follow setuptools' package-dir: show it the mapped tree through links.
.typecheck/uepnet: $(wildcard uepnet/*)
	rm -rf .typecheck && mkdir -p .typecheck/uepnet
	for entry in uepnet/*; do ln -s "../../$$entry" .typecheck/uepnet/; done
	for part in model training service bench deploy; do ln -s "../../$$part" .typecheck/uepnet/; done
	rm -rf .typecheck/uepnet/__pycache__
