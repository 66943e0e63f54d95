# Every target sets up what it needs: a fresh clone and `make demo` is all there is to it.
.DEFAULT_GOAL := help
FIRESTEEL := .venv/bin/firesteel
DEMO := FIRESTEEL_DATA_DIR=$(CURDIR)/.demo
JOBS ?= 2
# Tests start hundreds of Python processes, and pytest rewrites every module with tests: once is enough.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := .venv/bin/python -m pytest -n $(JOBS) --dist loadgroup --durations=30
# Two suites that share no test and leave none out; CONTRIBUTING.md explains the marks.
QUICK := not integration and (sample or not slow)
REST := integration or (slow and not sample)

.PHONY: help setup dashboard archive demo test test-rest test-all integration check fmt bench docs lock clean

help:
	@echo "make demo    run a batch and a streaming pipeline on a cluster that wakes up on this machine"
	@echo "make test    run the quick tests, and one of each slow kind (minutes)"
	@echo "make test-rest     run all other tests (half an hour); what needs more than Python and Java is skipped where that is missing"
	@echo "make test-all      run both, as CI does"
	@echo "make integration   run only the tests that need more (scripts/fetch-test-jars, scripts/fetch-flink-cli)"
	@echo "make check   linters and types"
	@echo "make fmt     format the code"
	@echo "make dashboard     build the dashboard that nodes serve (needs Node 20.19 or newer)"
	@echo "make bench   print the benchmark table (minutes)"
	@echo "make lock    write requirements.lock anew, with hashes"
	@echo "make docs    write the generated reference pages"

setup:
	@scripts/setup

demo: setup
	@$(DEMO) $(FIRESTEEL) engine train || echo "The demo goes on without a class archive; engines start slower."
	@echo
	@$(DEMO) $(FIRESTEEL) run examples/orders/pipeline.yaml --show 5
	@echo
	@rm -rf examples/late_events/out
	@.venv/bin/python examples/late_events/generate.py
	@$(DEMO) $(FIRESTEEL) run examples/late_events/pipeline.yaml --show 5
	@$(DEMO) $(FIRESTEEL) cluster stop

dashboard: setup
	.venv/bin/python hatch_build.py

# Made once for this Java and this Spark; every engine of the tests starts in half the time then.
archive: setup
	-@$(DEMO) $(FIRESTEEL) engine train

test: setup archive
	$(PYTEST) -m "$(QUICK)"

test-rest: setup archive
	$(PYTEST) -m "$(REST)"

test-all:
	$(MAKE) test
	$(MAKE) test-rest

integration: setup archive
	$(PYTEST) -m integration

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
	.venv/bin/python -m firesteel.metrics.reference > docs/reference/metrics.md
	.venv/bin/python -m firesteel.jobgraph.schema
	.venv/bin/python scripts/cli_reference.py > docs/reference/cli.md
	.venv/bin/python scripts/flink_schemas.py
	.venv/bin/python -m firesteel.flink_rest.coverage_page > docs/reference/flink-rest.md

clean:
	rm -rf .venv .demo build dist .pytest_cache .mypy_cache .ruff_cache
