# Everything that a user or a developer of Sluice does from the shell. `make help` lists it.
# Needs Python 3.11 or newer, git and make; everything else is made below .venv and .sluice.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install up down clean check format test scenarios bench lock

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

install: ## make .venv from requirements.lock (does nothing when it is up to date)
	@$(PYTHON) -I ops/sluice_ops/local/install.py

up: install ## install and start everything; prints Airflow's address and password
	@$(BIN)/sluice up

down: ## stop everything; the data stays
	@if [ -x $(BIN)/sluice ]; then $(BIN)/sluice down; fi

clean: down ## stop everything and remove the data
	@if [ -x $(BIN)/sluice ]; then $(BIN)/sluice clean; fi

check: install ## ruff, formatting, mypy, import contracts: under a minute
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: install ## put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

test: install ## unit and integration tests, then the short scenarios; LONG_PART=N adds a part of the long tests
	@timeout --kill-after=1m 20m $(BIN)/python -m pytest --numprocesses 2 tests/unit
	@timeout --kill-after=2m 70m $(BIN)/python -m pytest tests/integration tests/scenarios \
		$(if $(LONG_PART),-m "not endurance" --long-part $(LONG_PART))

scenarios: install ## the long ones too: each runbook and each fault under load, more than an hour on 2 cores
	@$(BIN)/python -m pytest tests/integration tests/scenarios -m "long or endurance or not long"

bench: install ## measure: hand-overs, kills, latency, Flink and Storm beside, for some hours; results go to .sluice/bench
	@$(BIN)/python -m pytest tests/bench -s

lock: ## choose newer versions within pyproject.toml and write requirements.lock
	@$(PYTHON) -I ops/sluice_ops/local/install.py lock
