# The commands for users and developers of Sluice; `make help` lists them.
# They need Python 3.11 or newer, git and make, and install everything else below .venv and .sluice.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install up down clean check docs format test test-rest scenarios bench bench-short lock wheel

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

install: ## create .venv from requirements.lock; does nothing if it is up to date
	@$(PYTHON) -I ops/sluice_ops/local/install.py

up: install ## install and start all services; prints Airflow's address and password
	@$(BIN)/sluice up

down: ## stop all services; the data stays
	@if [ -x $(BIN)/sluice ]; then $(BIN)/sluice down; fi

clean: ## stop all services and delete all data, after a question
	@if [ -x $(BIN)/sluice ]; then $(BIN)/sluice clean; fi

check: install docs ## ruff, formatting, mypy, import contracts, docs site: under a minute
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

docs: install ## build the docs site below .sluice/docs, and print its path; a warning fails
	@$(BIN)/python -m docs.site

format: install ## format the code, and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

test: install ## unit tests, then the runbooks and faults on a whole platform: about 20 minutes on 2 cores
	@timeout --kill-after=2m 50m $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder \
		tests/unit tests/scenarios $(if $(LONG_PART),-m "not endurance" --long-part $(LONG_PART))

test-rest: install ## integration tests; here and in `test`, LONG_PART=N adds part N of the long tests
	@timeout --kill-after=2m 40m $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder \
		tests/integration
	$(if $(LONG_PART),@timeout --kill-after=2m 25m $(BIN)/python -m pytest tests/integration \
		-m "not endurance and long" --long-part $(LONG_PART))

scenarios: install ## integration tests and all scenarios: each runbook and fault; over an hour on 2 cores
	@$(BIN)/python -m pytest tests/integration tests/scenarios -m "long or endurance or not long"

bench: install ## measure handovers, kills, latency; Flink and Storm, too; some hours; see .sluice/bench
	@$(BIN)/python -m pytest tests/bench -s

bench-short: install ## compare with Flink in 15 minutes; the last line of stdout is JSON; see docs/benchmarks.md
	@$(BIN)/python -m tests.bench.short

lock: ## choose the newest versions within pyproject.toml, and write requirements.lock
	@$(PYTHON) -I ops/sluice_ops/local/install.py lock

wheel: ## build the wheel into dist, to install Sluice without this checkout
	@$(PYTHON) -I ops/sluice_ops/local/install.py wheel
