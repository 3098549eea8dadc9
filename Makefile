# Everything is set up by the targets that need it: `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What the tests and demos start, hundreds of processes, compiles our modules once, even where Python is told not to.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo demo-spot demo-cluster test tests lint format soak golden checkov live bench clean image-tools image-test
.DEFAULT_GOAL := help

help: ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv and install everything (the CUDA build of fbgemm where there is a GPU)

$(STAMP): pyproject.toml constraints.txt scripts/setup_env.py
	$(PYTHON) scripts/setup_env.py $(VENV)
	@touch $@

demo: $(STAMP) ## the main job, end to end, on this machine
	$(BIN)/python scripts/demo.py

demo-spot: $(STAMP) ## kill one run, resume another with fewer processes, beside an undisturbed one
	$(BIN)/python -m scripts.demo_spot

demo-cluster: $(STAMP) ## a cloud's whole flow on stand-ins: up, train in pods, lose a node, resume, down
	$(BIN)/python -m scripts.demo_cluster

lint: $(STAMP) ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff lay out and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(STAMP) ## lint, types, layers and every test but the soak tests
	$(MAKE) --no-print-directory --jobs 2 lint tests

tests: $(STAMP) ## every test but the soak tests
	$(BIN)/python -m pytest -m "not soak" -n 4 --dist loadfile --no-loadscope-reorder

soak: $(STAMP) ## slow endurance tests
	$(BIN)/python -m pytest -m soak --timeout 1800

golden: $(STAMP) ## write the manifests' golden files anew, to be read before they are committed
	CLOUDREC_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/unit/manifests/test_golden.py

checkov: $(STAMP) ## look for weak points in every manifest (checkov, in a virtual environment of its own)
	$(BIN)/python -m pytest -m soak tests/unit/manifests/test_checkov.py -rs --timeout 1800

image-tools: ## buildah and debootstrap by apt, for the test of the image (as root)
	$(PYTHON) scripts/image_tools.py

image-test: $(STAMP) image-tools ## build the image's CPU target for real, and train in it
	$(BIN)/python -m pytest -m soak --timeout 1800 -s tests/e2e/test_image.py

live: $(STAMP) ## PROVIDER=aws: a cluster of the cheapest GPU node in a real account, up and down; asks first
	PROVIDER=$(PROVIDER) $(BIN)/python scripts/live.py

bench: $(STAMP) ## measure, side by side with named references
	$(BIN)/python -m benchmarks

clean: ## remove what was built
	rm -rf $(VENV) .checkov build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
