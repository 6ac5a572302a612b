# Every target makes the environment it needs: Python >= 3.11 and make are enough.
# Another interpreter: make test PYTHON=python3.12 (remove .venv first if it was made with another).

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check

# One folder of compiled kernels per state of the sources: Numba's own cache looks at the file of a
# kernel only and misses a change in the kernels it calls.
SOURCE_HASH := import hashlib, pathlib; \
	files = sorted(pathlib.Path("skdgn").rglob("*.py")); \
	content = b"".join(f.as_posix().encode() + f.read_bytes() for f in files); \
	print(hashlib.sha256(content).hexdigest()[:16])
arrays bench coverage demo docs figures test test-all thorough: export NUMBA_CACHE_DIR = \
	$(CURDIR)/.numba_cache/$(shell $(PYTHON) -c '$(SOURCE_HASH)')

.DEFAULT_GOAL := help
.NOTPARALLEL: # two targets must not install into one environment at the same time
.PHONY: arrays bench clean coverage demo docs figures help lint test test-all thorough widths

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.stamp-plot ## run examples/plot_demo.py
	$(PY) examples/plot_demo.py

# First kernels as plain Python: compiled ones, with which these are compared, are then in the cache
# for both workers of all other tests.
test: $(VENV)/.stamp-test ## run tests and doctests
	NUMBA_DISABLE_JIT=1 $(PY) -m pytest -n 2 tests/test_uncompiled.py
	$(PY) -m pytest -n 2

test-all: $(VENV)/.stamp-extras test ## the same with every extra installed first

# Counting takes a third of the time of the tests, so that it is not a part of these.
coverage: $(VENV)/.stamp-extras ## the same with branch coverage, kernels included; fails below 95 %
	NUMBA_DISABLE_JIT=1 $(PY) -m pytest -n 2 tests/test_uncompiled.py \
		--cov --cov-report= --cov-fail-under=0
	$(PY) -m pytest -n 2 --cov --cov-append

thorough: $(VENV)/.stamp-test ## run the many random cases that `make test` takes a portion of
	$(PY) -m pytest -n 2 -m thorough tests

arrays: $(VENV)/.stamp-test ## run scikit-learn's array API checks, which need SciPy's switched on
	SCIPY_ARRAY_API=1 $(PY) -m pytest -k check_array_api tests/test_sklearn.py

lint: $(VENV)/.stamp-lint ## check style, types and the direction of imports
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

bench: $(VENV)/.stamp-test ## run the benchmarks
	$(PY) benchmarks/run.py

figures: $(VENV)/.stamp-plot ## print the figures of README.md
	$(PY) benchmarks/compare.py
	$(PY) benchmarks/growth.py
	$(PY) benchmarks/first_use.py

docs: $(VENV)/.stamp-docs ## build docs/_build/html; warnings and broken links are errors
	$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html
	$(PY) docs/check_links.py docs/_build/html

widths: ## measure the built pages at a phone's width, with Chromium
	$(PYTHON) docs/check_widths.py docs/_build/html

clean: ## remove what the other targets made, except .venv
	rm -rf .numba_cache .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	rm -rf .coverage .coverage.* build dist docs/_build docs/auto_examples docs/generated docs/sg_execution_times.rst
	rm -f *.png examples/*.png
	find . -path ./$(VENV) -prune -o -name __pycache__ -exec rm -rf {} +

# A stamp is newer than pyproject.toml once the environment has what that file asks for.

$(VENV)/.stamp-pip:
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade "pip>=25.1" # the first with --group
	@touch $@

$(VENV)/.stamp-plot: pyproject.toml $(VENV)/.stamp-pip
	$(PIP_INSTALL) --editable ".[plot]"
	@touch $@

$(VENV)/.stamp-lint: pyproject.toml $(VENV)/.stamp-pip
	$(PIP_INSTALL) --editable ".[plot]" --group lint
	@touch $@

# This version of PyTorch is a build for the CPU, of a reasonable size.
$(VENV)/.stamp-extras: pyproject.toml $(VENV)/.stamp-test
	$(PIP_INSTALL) --editable ".[cdd,dask,plot,torch]" torch==2.13.0
	@touch $@

$(VENV)/.stamp-%: pyproject.toml $(VENV)/.stamp-pip
	$(PIP_INSTALL) --editable . --group $*
	@touch $@
