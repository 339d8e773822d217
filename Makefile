# One command each on a fresh machine: `make demo`, `make test`.
#
# PYTHON       the interpreter that makes the virtual environment
# TORCH_INDEX  a package index with a CPU build of torch, as https://download.pytorch.org/whl/cpu; empty: PyPI's build

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
INSTALLED := $(VENV)/installed
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: demo test lint format snapshots clean

demo: $(INSTALLED)
	$(VENV)/bin/pytest --probe-dump=cases/gpt

test: $(INSTALLED)
	$(VENV)/bin/pytest -n 2 --dist worksteal

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

snapshots: $(INSTALLED)
	$(VENV)/bin/pytest tests/plugin --snapshot-update

clean:
	rm -rf $(VENV)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet $(INDEX) -c constraints.txt -e '.[torch,parallel,dev]'
	touch $@
