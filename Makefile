# make demo, make test, make lint: each sets up what it needs, once.
PYTHON ?= python3
VENV ?= .venv
DEMO_ARGS ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# Named by what it depends on, so that a new checkout or an old timestamp installs nothing twice.
INSTALLED := $(VENV)/installed-$(shell { pwd; cat pyproject.toml; } | cksum | cut -d ' ' -f 1)

.PHONY: demo test lint install
.DEFAULT_GOAL := test

demo: $(INSTALLED)
	@$(BIN)/python -m sglang_sparse.demo $(DEMO_ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py
	$(BIN)/mypy benchmarks/*.py

install: $(INSTALLED)

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'PYTHON: got $(PYTHON); need Python 3.11 or newer; run make PYTHON=python3.11'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): $(BIN)/pip
	$(BIN)/python -m pip install -e '.[server,test]'
	@rm -f $(VENV)/installed-*
	@touch $@
