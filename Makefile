# Each verb sets itself up. `make demo` and `make test` work on a fresh machine with Python >= 3.12, make and git.
PYTHON ?= $(shell sh deploy/find-python)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
PORT_BASE ?= 8000

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-engine test-vllm bench demo lock clean

help: ## list the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## create .venv and install what requirements.lock names

$(READY): requirements.lock
	@test -n "$(PYTHON)" || { sh deploy/find-python --explain; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages into $(VENV) (about two minutes the first time)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@touch $(READY)

check: $(READY) ## format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## rewrite the code as `check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY) ## every test but those that need a vLLM (WORKERS=2)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not vllm"

test-engine: $(READY) ## the engine's tests alone: seconds, no I/O
	$(BIN)/python -m pytest tests/engine

test-vllm: $(READY) ## against a real vLLM named by HALCYON_TEST_VLLM_URL
	$(BIN)/python -m pytest -m vllm

bench: $(READY) ## every benchmark, into bench/results
	$(BIN)/python -m bench all

demo: $(READY) ## the whole system on this machine: Ctrl-C stops it (PORT_BASE=8000)
	$(BIN)/python manage.py up --fleet fleet/demo.yaml --port-base $(PORT_BASE)

lock: $(READY) ## compile requirements.lock anew
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
		--python-version 3.12 --all-extras --upgrade pyproject.toml -o requirements.lock

clean: ## remove .venv and var/
	rm -rf $(VENV) var
