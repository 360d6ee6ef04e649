# A fresh machine needs Python 3.11 or newer and make; every target creates the environment it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CUDA build of ONNX Runtime where there is an NVIDIA driver, the plain one elsewhere.
RUNTIME ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The faster CPU engine, where it has a wheel; without it ONNX Runtime counts alone.
OPENVINO = $(PIP) install --quiet --constraint constraints.txt --only-binary openvino --editable ".[openvino]" \
	|| echo "OpenVINO has no wheel for this machine: ONNX Runtime counts alone."
HOST ?= 127.0.0.1
PORT ?= 8000
DATA ?= ../shared/data
# The share of lines that the tests must run, in percent; raise it when coverage rises.
COVERAGE ?= 90
# Seconds of `make fuzz` for each parser.
FUZZ ?= 60
# Seconds of `make soak` for all attacks at once.
SOAK ?= 120
# The tests of what attacks have found before.
FINDINGS := $(addprefix tests/service/http/test_,bounded_cost.py connections.py admission.py auth.py life_cycle.py odd_images.py) \
	tests/service/core tests/model/test_image_cost.py

.PHONY: help serve demo test test-system soak fuzz coverage lint types format bench train-bundled lock sbom licences advisories clean
.DEFAULT_GOAL := serve

help:  ## list the targets
	@echo "Targets (variables with their defaults: PYTHON=$(PYTHON) VENV=$(VENV) RUNTIME=$(RUNTIME) HOST=$(HOST) PORT=$(PORT)):"
	@awk -F ':.*## *' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

serve: $(VENV)/.serve-$(RUNTIME)  ## install and start the service with its page on http://HOST:PORT
	$(BIN)/uepnet serve --host $(HOST) --port $(PORT)

demo: $(VENV)/.serve-$(RUNTIME) ## the control room with drawn cameras, to look at
	$(BIN)/python -m uepnet.deploy.demo --port $(PORT)

test: lint types  ## lint, check types and run all tests that need no system packages
	$(BIN)/python -m pytest

test-system: $(VENV)/.dev-$(RUNTIME)  ## install Debian packages (as root) and run the tests that need them
	PYTHON="$(abspath $(BIN))/python" deploy/install-system-tests
	$(BIN)/python -m pytest -m system

soak: $(VENV)/.dev-$(RUNTIME)  ## attack the service in every known way for SOAK seconds, and each finding's test
	$(BIN)/python -m pytest $(FINDINGS)
	SOAK_SECONDS=$(SOAK) $(BIN)/python -m pytest -m soak -o log_cli=true --log-cli-level=INFO tests/soak

fuzz: $(VENV)/.fuzz-$(RUNTIME)  ## search for inputs that break a parser, FUZZ seconds for each parser
	for target in image form zones tensors annotations; do \
		$(BIN)/python tests/fuzz/fuzz.py $$target build/fuzz/$$target -max_total_time=$(FUZZ) -max_len=65536 || exit 1; \
	done

coverage: $(VENV)/.dev-$(RUNTIME)  ## run the tests of `make test` and fail below COVERAGE percent of lines
	rm -rf .coverage && mkdir .coverage
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under $(COVERAGE)

lint: $(VENV)/.dev-$(RUNTIME)  ## check style and formatting with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev-$(RUNTIME) .typecheck/uepnet  ## check types with mypy in strict mode
	$(BIN)/mypy -p uepnet

format: $(VENV)/.dev-$(RUNTIME)  ## fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev-$(RUNTIME)  ## measure the inference backends on this machine
	$(BIN)/uepnet bench runtime

train-bundled: $(VENV)/.dev-$(RUNTIME)  ## train the bundled model again from the data in DATA (hours)
	training/train-bundled "$(DATA)"

lock: $(VENV)/.dev-$(RUNTIME)  ## record the hashes of all wheels that constraints.txt pins, in deploy/hashes.txt
	$(BIN)/python deploy/lock.py

sbom: $(VENV)/.serve-$(RUNTIME)  ## write what the service consists of to build/uepnet.cdx.json (CycloneDX)
	mkdir -p build
	$(BIN)/python -m uepnet.deploy.sbom serve $(RUNTIME) > build/uepnet.cdx.json

licences: $(VENV)/.serve-$(RUNTIME)  ## list the licences of all packages that the service needs
	@$(BIN)/python -m uepnet.deploy.sbom --licences serve $(RUNTIME)

# In an environment of its own: the scanner and its packages are no part of the project.
advisories: build/audit/bin/pip-audit  ## compare all pinned packages with the known vulnerabilities
	build/audit/bin/pip-audit --requirement deploy/hashes.txt --disable-pip --require-hashes --strict

build/audit/bin/pip-audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip --disable-pip-version-check install --quiet pip-audit==2.10.1

clean:  ## remove the environment and everything that was generated
	rm -rf $(VENV) build dist *.egg-info .typecheck .mypy_cache .ruff_cache .pytest_cache .hypothesis .odd-images .coverage

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve-$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable ".[serve,$(RUNTIME)]"
	$(OPENVINO)
	touch $@

$(VENV)/.dev-$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev,$(RUNTIME)]"
	$(OPENVINO)
	touch $@ $(VENV)/.serve-$(RUNTIME)

$(VENV)/.fuzz-$(RUNTIME): $(VENV)/.dev-$(RUNTIME)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[fuzz]"
	touch $@

# mypy cannot follow setuptools' package-dir: show it the mapped tree through links.
.typecheck/uepnet: Makefile $(wildcard uepnet/*)
	rm -rf .typecheck && mkdir -p .typecheck/uepnet
	for entry in uepnet/*; do ln -s "../../$$entry" .typecheck/uepnet/; done
	for part in model training service client video bench deploy; do ln -s "../../$$part" .typecheck/uepnet/; done
	rm -rf .typecheck/uepnet/__pycache__
