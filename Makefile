# `make demo` on an empty machine: builds .venv, then trains and evaluates an arbiter on the bundled pair.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: install demo test lint format clean

install: $(STAMP)

# Rebuilt when the requirements change; the stamp comes last, so an interrupted installation is done again.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(VENV)/bin/cospec demo --out runs/demo

# A file's tests stay in one process, as they share models.
test: $(STAMP)
	$(VENV)/bin/python -m pytest -m "not slow and not gpu" -n auto --maxprocesses 4 --dist loadfile

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy cospec

format: $(STAMP)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
