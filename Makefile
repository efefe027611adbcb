# A fresh clone needs nothing but Python 3.10 or newer and make: each target sets itself up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RESULTS ?= results
LOWEST ?= train report tensorboard
LOWEST_TESTS ?= tests/cli tests/rules tests/report tests/results tests/recipe tests/training tests/run \
	tests/datasets/test_fractals.py

# Files of tests beside each other, in the order that tests/conftest.py gives them: three also on two
# cores, since tests wait for processes a third of their time. A worker that crashes ends the run
# with its test's name, and no new one takes its place, which may hang.
PARALLEL := --numprocesses=$(if $(filter 1 2 3,$(shell nproc)),3,4) --dist=loadfile \
	--no-loadscope-reorder --max-worker-restart=0

# The tests start hundreds of processes: each module is compiled once, whatever the user's shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test coverage test-slow test-lowest golden fuzz bench-validate bench-two-hosts check format docs release clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,report,dev]'
	touch $(INSTALLED)

install: $(INSTALLED)  ## a virtual environment with everything

demo: $(INSTALLED)  ## the main job: a campaign of 5 runs on this machine, checked and reported
	$(BIN)/fourmin run --results-dir $(RESULTS)
	$(BIN)/fourmin validate $(RESULTS)
	$(BIN)/fourmin report $(RESULTS)

test: $(INSTALLED)  ## the tests, without the slow ones
	$(BIN)/pytest $(PARALLEL) -m 'not slow' --durations=20

coverage: $(INSTALLED)  ## which lines the tests reach of what never imports torch: at least 90%
	$(BIN)/pytest $(PARALLEL) -m 'not slow and not untraced' --cov --cov-report=term \
		--cov-fail-under=90

test-slow: $(INSTALLED)  ## the slow tests alone
	$(BIN)/pytest -m slow

test-lowest: $(INSTALLED)  ## with the lowest versions of what pyproject.toml names (LOWEST: extras)
	$(PYTHON) -m venv $(VENV)-lowest
	$(BIN)/python tools/lowest.py $(LOWEST) > $(VENV)-lowest/lowest.txt
	$(VENV)-lowest/bin/pip install --quiet --requirement $(VENV)-lowest/lowest.txt
	$(VENV)-lowest/bin/pip install --quiet --no-deps --editable .
	$(VENV)-lowest/bin/pip install --quiet --constraint $(VENV)-lowest/lowest.txt hypothesis \
		pytest pytest-timeout pytest-xdist psutil
	$(VENV)-lowest/bin/pytest -m 'not slow' $(LOWEST_TESTS)

golden: $(INSTALLED)  ## write the golden files of tests anew, for a change that is meant
	$(BIN)/pytest --update-golden

fuzz: $(INSTALLED)  ## 200,000 mutated files and 2,000 hostile folders
	FOURMIN_FUZZ_INPUTS=200000 $(BIN)/pytest tests/fuzz --timeout 0

bench-validate: $(INSTALLED)  ## validation against json.loads on real logs (FOURMIN_CORPUS)
	$(BIN)/python benchmarks/validate_corpus.py

check: $(INSTALLED)  ## linters, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)  ## put the source in form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## write what is generated anew: pages, schemas, pictures, golden presets
	$(BIN)/python docs/tools/recipe_pages.py
	$(BIN)/pytest --quiet --update-golden tests/presets
	$(BIN)/python -m fourmin.rules.pages
	$(BIN)/python docs/tools/model_shapes.py
	$(BIN)/python docs/tools/estimate_page.py
	$(BIN)/python docs/tools/readme_tables.py
	$(BIN)/python docs/tools/command_pages.py
	$(BIN)/python docs/tools/page_pictures.py
	$(BIN)/python docs/tools/log_page.py
	$(BIN)/python docs/tools/json_page.py
	$(BIN)/python docs/tools/map_picture.py
	$(BIN)/fourmin report submissions --format svg --output docs/time-to-train.svg
	$(BIN)/python benchmarks/ablation_page.py benchmarks/results/ablation-*.json

release: $(INSTALLED)  ## for maintainers: check, note the package digest, commit, tag (VERSION=1.0.0)
	$(BIN)/python tools/release.py make $(VERSION)

bench-two-hosts: $(INSTALLED)  ## all-reduce on two simulated hosts (root, ip and tc)
	$(BIN)/python benchmarks/two_hosts.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV)-lowest .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
