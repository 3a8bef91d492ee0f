# make demo    set everything up and chat with a small model
# make test    set up what the tests need and run them
# make check   format, lint, types, strict C, tests: what a change must pass

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SETUP  := pyproject.toml setup.py
FOR_TESTS := [mlx,dev]
# Compiled at install, so that the first start is no slower than the next, also where Python may not write there.
PACKAGES := localinfer formats models tui
KERNEL_SOURCES := $(wildcard cpu_kernels/*.c cpu_kernels/*.h cpu_kernels/*.inc)
# Real models for the tests marked `model`; `make test-models` fills it.
MODELS := $(abspath local/test-models)

.PHONY: demo test check kernels test-models format lint types strict-c kernel-table pictures clean

demo: $(VENV)/.installed
	@$(BIN)/localinfer pull demo > /dev/null
	@if [ -t 0 ] && [ -t 1 ]; then exec $(BIN)/localinfer chat demo; else \
	  $(BIN)/localinfer fit demo --ctx 4k && \
	  $(BIN)/localinfer run demo -p "What is the capital of France?" --temp 0 -n 128 --stats 2>&1; fi

test: $(VENV)/.tested-with
	LOCALINFER_TEST_MODELS=$${LOCALINFER_TEST_MODELS:-$(MODELS)} $(BIN)/python -m pytest $(ARGS)

check: format lint types strict-c test

# Once, and again when the project's files say so. The kernels are part of the install, so they are compiled once; without
# a C compiler it still succeeds and `localinfer doctor` says what is missing.
define install
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '$(1)'
@$(BIN)/python -m compileall -q $(PACKAGES)
@touch $@
endef

$(VENV)/.installed: $(SETUP) $(KERNEL_SOURCES)
	$(call install,.)

$(VENV)/.tested-with: $(SETUP) $(KERNEL_SOURCES)
	$(call install,.$(FOR_TESTS))
	@touch $(VENV)/.installed

kernels: $(VENV)/.tested-with
	$(BIN)/python setup.py --quiet build_ext --inplace

test-models: $(VENV)/.tested-with
	$(BIN)/python -m tests.fetch_models $(MODELS)

format: $(VENV)/.tested-with
	$(BIN)/ruff format --check .

lint: $(VENV)/.tested-with
	$(BIN)/ruff check .

# Type checkers want the package as one folder; its top folders are gathered by links.
types: $(VENV)/.tested-with
	@rm -rf build/types && mkdir -p build/types/localinfer
	@ln -s $(abspath localinfer)/* $(abspath formats models tui cpu_kernels metal_kernels) build/types/localinfer/
	cd build/types && MYPYPATH=. $(abspath $(BIN))/mypy --config-file $(abspath pyproject.toml) --python-executable $(abspath $(BIN))/python --cache-dir ../.mypy_cache

strict-c:
	@for f in cpu_kernels/*.c; do $(CC) -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -Wno-psabi -ffp-contract=off -fsyntax-only $$f || exit 1; done

# docs/kernels.md; registers and instructions come from nvcc, where it is installed.
kernel-table: $(VENV)/.tested-with
	$(BIN)/python -m tests.metal_kernels.table

pictures: $(VENV)/.tested-with
	$(BIN)/python -m tests.tui.gallery docs/pictures

clean:
	rm -rf build $(VENV) *.egg-info cpu_kernels/*.so
