# Mooring's commands. `make install && make run` is all that a first look needs.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first interpreter that is new enough; override with `make install PYTHON=/path/to/python`.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST_ARGS ?=
ARGS ?=
CASES ?=
SECONDS ?= 600
SEED ?=

.PHONY: help install run test coverage lint format bench conformance soak faults kernels test-deps lock clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP)  ## a virtual environment in .venv with the locked dependencies and Mooring itself

$(STAMP): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "Mooring needs Python 3.11 or newer, and none was found on PATH."; \
		echo "On Debian and Ubuntu: apt-get install python3 python3-venv"; exit 1; fi
	@if [ ! -x $(BIN)/python ] && ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing the Debian package python3-venv ..."; \
			apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes python3-venv >/dev/null; \
		else \
			echo "This Python ($(PYTHON)) cannot make virtual environments."; \
			echo "On Debian and Ubuntu: apt-get install python3-venv, then run make install again."; exit 1; fi; fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@echo "Installing the locked dependencies into .venv ..."
	@if command -v uv >/dev/null; then \
		uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		&& uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
		$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock \
		&& $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@touch $@
	@echo "Installed. Next: make run"

run: install  ## everything on this machine: API, scheduler, five simulated nodes, SQLite
	$(BIN)/mooring up --simulate 5

test: install test-deps lint kernels  ## lint, then every test; pytest's closing line comes last
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

coverage: install test-deps kernels  ## every test, with the lines that none of them runs; it takes twice as long
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

lint: install  ## ruff, mypy --strict, and the doors between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@! grep --extended-regexp --line-number 'https?://' requirements.lock \
		|| { echo "requirements.lock names a registry; make it anew with: make lock"; exit 1; }

format: install  ## what ruff can put right by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## the benchmarks; ARGS="..." goes to them
	$(BIN)/python -m benchmarks $(ARGS)

conformance: install  ## Kubernetes' cases for its scheduler; CASES=FOLDER runs those of another folder
	$(BIN)/python -m tests.conformance $(CASES)

soak: install test-deps kernels  ## the long tests that `make test` leaves out
	$(BIN)/pytest -m soak --timeout 1800 $(PYTEST_ARGS)

faults: install test-deps kernels  ## a whole cluster under faults: SECONDS=600 SEED=a number, both optional
	$(BIN)/python -m tests.system.faults --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Before the tests, whose processes would each compile them, and in the time of a test.
kernels: install
	@$(BIN)/python -c 'from mooring.scheduling import compilation; compilation.wait()'

test-deps:  ## PostgreSQL, etcd, podman and a registry for the tests, where they are missing
	@bash scripts/test-servers.sh

lock:  ## requirements.lock anew from pyproject.toml; needs uv
	uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-header --quiet $(ARGS) --output-file requirements.lock

clean:  ## everything that these commands made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.* .hypothesis build dist
