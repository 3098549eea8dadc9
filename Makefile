# Everything is set up by the targets that need it: `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Four workers on two cores: most tests wait for a process or a stand-in.
# A failed test is run once more and reported as RERUN; tests/conftest.py fails the whole if that were many.
SHARED := -n 4 --dist loadfile --no-loadscope-reorder --reruns 1 --reruns-delay 5
# What the tests and demos start, hundreds of processes, compiles our modules once, even where Python is told not to.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup docs demo demo-spot demo-cluster quick unit test fast slow test-all all lint format soak golden checkov policies live gpu bench clean prometheus-tools image-tools image-test
.DEFAULT_GOAL := help

help: ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv and install everything (the CUDA build of fbgemm where there is a GPU)

$(STAMP): pyproject.toml cloudrec_sandbox/pyproject.toml constraints.txt scripts/setup_env.py
	$(PYTHON) scripts/setup_env.py $(VENV)
	@touch $@

demo: $(STAMP) ## the main job, end to end, on this machine
	$(BIN)/python scripts/demo.py

demo-spot: $(STAMP) ## kill one run, resume another with fewer processes, beside an undisturbed one
	$(BIN)/python -m scripts.demo_spot

demo-cluster: $(STAMP) ## a cloud's whole flow on stand-ins: up, train in pods, lose a node, resume, down
	$(BIN)/python -m scripts.demo_cluster

lint: $(STAMP) ## ruff, mypy, import-linter, the boundary of foreign data, plain words in the prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/boundary.py
	$(BIN)/python scripts/prose.py

docs: $(STAMP) ## build the documentation as a site, build/site/index.html; a warning is an error
	$(BIN)/python -m scripts.site
	$(BIN)/python -m mkdocs build --strict

format: $(STAMP) ## let ruff lay out and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

quick: $(STAMP) ## the edit loop: lint, types, layers and the short unit tests, in a minute
	$(MAKE) --no-print-directory --jobs 2 lint unit

unit: $(STAMP)
	$(BIN)/python -m pytest tests/unit -m "not long and not slow and not soak" -n 2 --dist loadfile --no-loadscope-reorder --durations=3

test: $(STAMP) ## what every change must pass: lint, types, layers and all tests except the slow ones
	$(MAKE) --no-print-directory --jobs 2 lint fast

fast: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not soak" $(SHARED)

slow: $(STAMP) ## the slow rest: conformance, launchers, kills, whole runs
	$(BIN)/python -m pytest -m "slow and not soak" $(SHARED)

test-all: $(STAMP) ## test and slow in one go
	$(MAKE) --no-print-directory --jobs 2 lint all

all: $(STAMP)
	$(BIN)/python -m pytest -m "not soak" $(SHARED)

soak: $(STAMP) ## endurance tests, hours; a second call continues; the report: build/soak/report.md
	$(BIN)/python -m scripts.soak --report build/soak/report.md

golden: $(STAMP) ## rewrite the manifests' golden files; read the change before you commit it
	CLOUDREC_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/unit/kubernetes_manifests/test_golden.py

checkov: $(STAMP) ## look for weak points in every manifest (checkov, in a virtual environment of its own)
	$(BIN)/python -m pytest -m soak tests/unit/kubernetes_manifests/test_checkov.py -rs --timeout 1800

policies: $(STAMP) ## look for ways to become an administrator in infra/aws (cloudsplaining, parliament; likewise)
	$(BIN)/python -m pytest -m slow tests/unit/providers_aws/test_policies_linted.py -rs --timeout 1800

prometheus-tools: ## Prometheus and promtool by apt, for the tests of metrics (as root)
	$(PYTHON) scripts/prometheus_tools.py

image-tools: ## buildah and debootstrap by apt, for the test of the image (as root)
	$(PYTHON) scripts/image_tools.py

image-test: $(STAMP) image-tools ## build the image's CPU target for real, and train in it
	$(BIN)/python -m pytest -m soak --timeout 1800 -s tests/e2e/test_image.py

live: $(STAMP) ## PROVIDER=aws: up, data push, train, logs, down in a real account; asks first (SANDBOX=1: on a stand-in)
	PROVIDER=$(PROVIDER) SANDBOX=$(SANDBOX) $(BIN)/python -m scripts.live

gpu: $(STAMP) ## on a machine with an NVIDIA GPU: the tests on it, and what has no result of today yet
	$(BIN)/python -m pytest tests/gpu -n 0 --timeout 480
	$(BIN)/python -m benchmarks.gpu --page

bench: $(STAMP) ## measure, side by side with named references
	$(BIN)/python -m benchmarks

clean: ## remove what was built
	rm -rf $(VENV) .checkov .policies build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
