# make demo | demo-telemetry | test | test-core | lint | docs | bench | dist: each first makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo demo-telemetry test test-core test-rare test-slow coverage versions dist release-notes lint lint-style lint-mypy lint-pyright lint-imports warm format docs bench clean

# One stamp per set of extras; a changed pyproject.toml installs anew.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/stamp-%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

test_extras := test,notebook,telemetry,docs,distributed

demo: $(VENV)/stamp
	$(BIN)/flowlex generate gpu-testbed --seed 1 -o demo-output/gpu-testbed.json --force
	$(BIN)/flowlex show demo-output/gpu-testbed.json
	$(BIN)/flowlex solve demo-output/gpu-testbed.json --compare -o demo-output/solutions
	$(BIN)/flowlex plot demo-output/gpu-testbed.json -o demo-output/gpu-testbed.png --force
	@echo 'Picture: demo-output/gpu-testbed.png   Solution: demo-output/solutions/'

demo-telemetry: $(VENV)/stamp-telemetry
	rm -rf demo-output/telemetry
	PATH="$(abspath $(BIN)):$$PATH" docs/telemetry-demo.sh demo-output/telemetry

# Where it is set, every process of pytest rewrites all test modules anew: 15 s of processor instead of 7.
unexport PYTHONDONTWRITEBYTECODE
pytest := $(BIN)/python -m pytest -n auto --dist worksteal
coverage_of = @for package in $(1); do \
  printf '%-14s %3s %%\n' $$package "$$($(BIN)/python -m coverage report --include="$$package/*" --format=total)"; done

# COVERAGE=1 measures the packages where that is cheap and RARE=1 runs the rare tests too, as CI does.
measured := formulations instances
chosen := $(if $(RARE),-m 'not slow' -o faulthandler_timeout=3600)

test: $(VENV)/stamp-$(test_extras)
ifdef COVERAGE
	$(pytest) $(chosen) --durations=10 --cov --cov-report= $(addprefix tests/,$(measured))
	$(pytest) $(chosen) --durations=40 $(addprefix --ignore=tests/,$(measured))
	$(call coverage_of,$(measured))
else
	$(pytest) $(chosen)
endif

# The core alone: its tests pass in a copy that has no systems.
test-core: $(VENV)/stamp-$(test_extras)
	.ci/core $(BIN)/python

# What takes long and seldom fails alone: notebooks, the site, fresh environments, killed services. CI runs it too.
test-rare: $(VENV)/stamp-$(test_extras)
	$(pytest) -m 'rare and not slow' -o faulthandler_timeout=3600

# What the default run leaves out: slow tests, and random cases drawn anew, forty times as many.
test-slow: $(VENV)/stamp-$(test_extras)
	$(BIN)/python -m pytest -m 'slow or rare' -o faulthandler_timeout=3600
	$(BIN)/python -m pytest -m hypothesis -n auto --dist worksteal -o faulthandler_timeout=3600 --hypothesis-profile=search

# The default run, measured; then small tests of the compiled loops with the compiler off, which coverage sees into. A
# failing test ends it, a report that cannot be made does not.
packages := $(filter-out __pycache__,$(notdir $(patsubst %/,%,$(wildcard src/flowlex/*/))))

coverage: $(VENV)/stamp-$(test_extras)
	$(pytest) --cov --cov-report= --durations=40
	NUMBA_DISABLE_JIT=1 $(pytest) --cov --cov-append --cov-report= -m 'loops and not slow'
	$(call coverage_of,$(packages))

# Four checks that need nothing of each other: `make -j2 lint` runs them side by side.
lint: lint-style lint-mypy lint-pyright lint-imports

lint-style: $(VENV)/stamp-$(test_extras)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-mypy: $(VENV)/stamp-$(test_extras)
	$(BIN)/mypy -p flowlex

lint-pyright: $(VENV)/stamp-$(test_extras)
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python tests/typing

lint-imports: $(VENV)/stamp-$(test_extras)
	$(BIN)/lint-imports --no-cache

# Compile all numerical loops now, once, instead of in whichever tests come first, in two processes and measured.
warm: $(VENV)/stamp-$(test_extras)
	$(BIN)/flowlex warm-up

format: $(VENV)/stamp-$(test_extras)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, without warnings; notebooks and gallery are run, and again only when they change.
docs: $(VENV)/stamp-$(test_extras)
	PYTHONPATH=docs/extensions $(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo 'Site: docs/_build/html/index.html'

# Solve, verify, plot and check once with the lowest declared versions, and with the newest on newer Pythons.
versions:
	.ci/versions

# The source distribution, and the wheel that is made from it.
dist: $(VENV)/stamp-$(test_extras)
	rm -rf dist build
	$(BIN)/python -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")' >/dev/null
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist dist/*.tar.gz
	@ls dist

# What CHANGELOG.md says of a version: make release-notes TAG=v0.2.0
release-notes:
	@sed -n '/^## $(TAG:v%=%) /,/^## /{/^## /!p;}' CHANGELOG.md

bench: $(VENV)/stamp-bench,telemetry
	$(BIN)/python -m benchmarks --write

clean:
	rm -rf $(VENV) build dist *.egg-info demo-output docs/_build
