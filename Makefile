# make demo | test | lint | bench: each first makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint format bench clean

# One stamp per set of extras; a changed pyproject.toml installs anew.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/stamp-%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

test_extras := test,notebook,telemetry

demo: $(VENV)/stamp
	$(BIN)/flowlex generate gpu-testbed --seed 1 -o demo-output/gpu-testbed.json
	$(BIN)/flowlex show demo-output/gpu-testbed.json
	$(BIN)/flowlex solve demo-output/gpu-testbed.json --compare -o demo-output/solutions
	$(BIN)/flowlex plot demo-output/gpu-testbed.json -o demo-output/gpu-testbed.png
	@echo 'Picture: demo-output/gpu-testbed.png   Solution: demo-output/solutions/'

test: $(VENV)/stamp-$(test_extras)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(VENV)/stamp-$(test_extras)
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/stamp-$(test_extras)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p flowlex
	$(BIN)/pyright --pythonpath $(BIN)/python tests/typing
	$(BIN)/lint-imports --no-cache

format: $(VENV)/stamp-$(test_extras)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/stamp-bench,telemetry
	$(BIN)/python -m benchmarks --write

clean:
	rm -rf $(VENV) build dist *.egg-info demo-output
