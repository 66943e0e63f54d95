# Every target sets up what it needs: a fresh clone and `make demo` is all there is to it.
.DEFAULT_GOAL := help
FIRESTEEL := .venv/bin/firesteel
DEMO := FIRESTEEL_DATA_DIR=$(CURDIR)/.demo
JOBS ?= 2

.PHONY: help setup demo test integration check fmt bench docs lock clean

help:
	@echo "make demo    run a batch and a streaming pipeline on a cluster that wakes up on this machine"
	@echo "make test    run the tests"
	@echo "make integration   run the tests that need more (scripts/fetch-test-jars, scripts/fetch-flink-cli); what is missing is skipped"
	@echo "make check   linters and types"
	@echo "make fmt     format the code"
	@echo "make bench   print the benchmark table (minutes)"
	@echo "make lock    write requirements.lock anew, with hashes"
	@echo "make docs    write the generated reference pages"

setup:
	@scripts/setup

demo: setup
	@$(DEMO) $(FIRESTEEL) engine train
	@echo
	@$(DEMO) $(FIRESTEEL) run examples/orders/pipeline.yaml --show 5
	@echo
	@rm -rf examples/late_events/out
	@.venv/bin/python examples/late_events/generate.py
	@$(DEMO) $(FIRESTEEL) run examples/late_events/pipeline.yaml --show 5
	@$(DEMO) $(FIRESTEEL) cluster stop

test: setup
	.venv/bin/python -m pytest -n $(JOBS) --dist loadgroup -m "not integration"

integration: setup
	.venv/bin/python -m pytest -n $(JOBS) --dist loadgroup -m integration

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/python scripts/audit

fmt: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: setup
	.venv/bin/python benchmarks/run.py

lock: setup
	@command -v uv >/dev/null || { echo "make lock needs uv (pip install uv)" >&2; exit 1; }
	uv pip compile --quiet pyproject.toml --extra dev --extra java --generate-hashes --universal --python-version 3.11 --no-annotate --no-header -o requirements.lock

docs: setup
	.venv/bin/python -m firesteel.config.reference > docs/reference/configuration.md
	.venv/bin/python -m firesteel.jobgraph.schema
	.venv/bin/python scripts/cli_reference.py > docs/reference/cli.md
	.venv/bin/python scripts/flink_schemas.py
	.venv/bin/python -m firesteel.flink_rest.coverage_page > docs/reference/flink-rest.md

clean:
	rm -rf .venv .demo build dist .pytest_cache .mypy_cache .ruff_cache
