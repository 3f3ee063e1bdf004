# Only Python (3.11 or later) and make are assumed. PYTHON=python3.12 make test picks another.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

.PHONY: help demo test coverage slow bench docs format data system clean

help:
	@echo "make demo    install, run the main job, write consequential-report.html"
	@echo "make test    install, then lint, types, layers and tests"
	@echo "make coverage  the tests, and the share of lines they run (at least 95 %)"
	@echo "make slow    the long statistical and paper-scale checks"
	@echo "make bench   compare the engines, print and store the ratios"
	@echo "make docs    build the documentation site in docs/_build/html"
	@echo "make format  format the code"
	@echo "make data    check the shipped data against their sources"
	@echo "make system  install what tests of the service start, where that is possible"
	@echo "make clean   remove the environment and caches"

# the core and the lab: what the demo needs
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) ".[lab]"
	touch $(VENV)/.demo

# all parts, and the tools of developers
$(INSTALLED): $(VENV)/.demo
	$(PIP) ".[dev]"
	touch $(INSTALLED)

demo: $(VENV)/.demo
	$(BIN)/consequential demo

test: $(INSTALLED) system
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/compile_kernels.py
	$(BIN)/python -m pytest -n auto --dist worksteal

# counting lines takes a third of the time again, so it is not part of `make test`
coverage: $(INSTALLED) system
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term:skip-covered

slow: $(VENV)/.docs system
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal

bench: $(INSTALLED) system
	$(BIN)/python benchmarks/run.py

$(VENV)/.docs: $(INSTALLED)
	$(PIP) ".[docs]"
	touch $(VENV)/.docs

docs: $(VENV)/.docs
	$(BIN)/python tools/compile_kernels.py
	$(BIN)/python tools/transcript.py docs/ten-minutes.md
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

data: $(INSTALLED)
	$(BIN)/python tools/build_data.py --check

system:
	$(PYTHON) tools/system_packages.py

clean:
	rm -rf $(VENV) docs/_build docs/examples docs/api/generated .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage*
