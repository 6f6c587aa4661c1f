# Mooring's commands. `make install && make run` is all that a first look needs.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first interpreter that is new enough; override with `make install PYTHON=/path/to/python`.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
BIN := .venv/bin
DOCS_TOOLS := build/docs-tools
STAMP := .venv/.installed
WORKERS ?= 2
# Files with long tests go first, and the tests of a file stay together, since they share servers.
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
ALL_TESTS := -m "not soak" --hypothesis-profile full
UNIT_TESTS := tests/client tests/concurrency tests/conformance tests/extensions tests/model tests/scheduling tests/wire
PYTEST_ARGS ?=
ARGS ?=
CASES ?=
SECONDS ?= 600
SEED ?=

# Tests start hundreds of interpreters, each of which would compile every module again without cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run test test-all check coverage lint lint-ruff lint-types lint-imports lint-locks format bench \
	conformance soak faults schema kernels console test-deps docs reference release lock clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP)  ## create .venv with the locked dependencies and Mooring itself

# The lock lists every package, so nothing is resolved (--no-deps): pip rejects a pin without extras as soon as a newer
# release of the package exists.
$(STAMP): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "Mooring needs Python 3.11 or newer, and none was found on PATH."; \
		echo "On Debian and Ubuntu: apt-get install python3 python3-venv"; exit 1; fi
	@if [ ! -x $(BIN)/python ] && ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing the Debian package python3-venv ..."; \
			apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes python3-venv >/dev/null; \
		else \
			echo "This Python ($(PYTHON)) cannot create virtual environments."; \
			echo "On Debian and Ubuntu: apt-get install python3-venv, then run make install again."; exit 1; fi; fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@echo "Installing the locked dependencies into .venv ..."
	@if command -v uv >/dev/null; then \
		uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements.lock \
		&& uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
		$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements.lock \
		&& $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@touch $@
	@echo "Installed. Next: make run"

run: install  ## start Mooring on this machine with SQLite and five simulated nodes
	$(BIN)/mooring up --simulate 5

test: install test-deps lint kernels  ## lint, then the tests that are not slow; the summary of pytest is the last line
	@$(PYTEST) $(PYTEST_ARGS)

test-all: install test-deps lint kernels  ## lint, then every test, as in CI; the summary of pytest is the last line
	@$(PYTEST) $(ALL_TESTS) $(PYTEST_ARGS)

check: install lint kernels  ## lint, types and the tests that need no server, for the inner loop
	@$(PYTEST) $(UNIT_TESTS) $(PYTEST_ARGS)

coverage: install test-deps kernels  ## run every test and list the lines that none of them executes; takes twice as long
	@$(PYTEST) $(ALL_TESTS) --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

lint: install  ## run ruff, mypy --strict, the import contracts and the check of lock files, in parallel
	@$(MAKE) --no-print-directory --jobs 4 --output-sync=target lint-ruff lint-types lint-imports lint-locks

lint-ruff:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types:
	$(BIN)/mypy

lint-imports:
	$(BIN)/lint-imports

lint-locks:
	@! grep --extended-regexp --line-number 'https?://' requirements.lock requirements-docs.lock requirements-release.lock \
		|| { echo "a lock file names a registry; regenerate it with: make lock"; exit 1; }

format: install  ## fix and format what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## run the benchmarks; ARGS="..." is passed to them
	$(BIN)/python -m benchmarks $(ARGS)

conformance: install  ## run the cases of the Kubernetes scheduler; CASES=FOLDER selects another folder
	$(BIN)/python -m tests.conformance $(CASES)

soak: install test-deps kernels  ## run the tests that take minutes
	$(BIN)/pytest -m soak --timeout 1800 $(PYTEST_ARGS)

faults: install test-deps kernels  ## run a whole cluster under faults; SECONDS=600 and SEED=N are optional
	$(BIN)/python -m tests.system.faults --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

schema: install kernels  ## send generated API requests as every role; SECONDS=600 for each, SEED=N, ARGS="--role user --database postgresql"
	$(BIN)/python -m tests.system.schema --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Compile the kernels before the tests. Otherwise each process of the tests compiles them, within a test's time limit.
kernels: install
	@$(BIN)/python -c 'from mooring.scheduling.compiled import compilation; compilation.wait()'

console: install console/node_modules/.installed  ## check and build the web console; needs Node.js
	@$(BIN)/python scripts/generate_openapi.py console/openapi.json
	@cd console && npm run --silent types && npm run --silent check && npm run --silent test && npm run --silent build

console/node_modules/.installed: console/package-lock.json
	@cd console && npm ci --silent
	@touch $@

test-deps:  ## install missing packages for the tests: PostgreSQL, etcd, Podman, a registry, Chromium
	@bash scripts/test-servers.sh

reference: install  ## regenerate docs/reference/cli.md and configuration.md
	@$(BIN)/python scripts/generate_reference.py

docs: install $(DOCS_TOOLS)/.installed  ## build the documentation site in build/site; warnings and broken links are errors
	@$(BIN)/python scripts/generate_reference.py --check
	@$(DOCS_TOOLS)/bin/zensical build --clean --strict

$(DOCS_TOOLS)/.installed: requirements-docs.lock | install
	@$(BIN)/python -m venv --clear $(DOCS_TOOLS)
	@$(DOCS_TOOLS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.lock
	@touch $@

# The tools have their own environment: their dependencies are not those of the package that they describe and check.
release: install lint  ## build dist/: source, wheel, SBOM (CycloneDX), and an audit of the locked dependencies
	@$(BIN)/python scripts/release.py

lock:  ## regenerate the lock files from pyproject.toml; needs uv
	uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-header --quiet $(ARGS) --output-file requirements.lock
	uv pip compile --group release --universal --python-version 3.11 \
		--generate-hashes --no-header --quiet $(ARGS) --output-file requirements-release.lock
	uv pip compile --group docs --universal --python-version 3.11 \
		--generate-hashes --no-header --quiet $(ARGS) --output-file requirements-docs.lock

clean:  ## remove everything that these commands created
	rm -rf console/node_modules console/openapi.json console/src/api/schema.d.ts .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.* .hypothesis build dist
