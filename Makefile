# `make test` and `make demo` are all that a fresh clone needs; `make help` lists the rest.
PYTHON ?= python3
TESTED := trainers webdataset sources formats dali test
MUTANTS ?= 100000
SEED ?= 1
BIN := .venv/bin

.DELETE_ON_ERROR:
.PHONY: help demo test nightly check differential asan stub clean FORCE

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 8
	@echo "PYTHON=python3.12 chooses the interpreter; PIP_* variables reach pip."

demo: .venv/.installed  ## generate a data set, pack it, train on it, write a report
	$(BIN)/fastdata demo $(ARGS)

test: .venv/.tested  ## run the tests; ARGS='-k tar' selects some
	$(BIN)/pytest $(PARALLEL) $(ARGS)

nightly: .venv/.tested  ## every case of the tests that try a part of them each day
	$(BIN)/pytest -m long $(ARGS)

check: .venv/.tested .venv/.tools  ## lint, types, forbidden calls, the stub, wheel and sdist, benchmarks, examples
	$(BIN)/python tools/preflight.py --calls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	diff -u fastdata/_core.pyi "$$($(STUB))"
	$(BIN)/pytest -m check
	$(BIN)/python tools/differential.py $(IMAGES)

differential: .venv/.tested  ## compare pixels with Pillow's, of a few files or of IMAGES=DIR
	$(BIN)/python tools/differential.py $(IMAGES)

asan: .venv/.tested  ## damaged JPEGs, and resizing, under the sanitizers; MUTANTS=10000000 SEED=2 for more
	@if $(HAS_JPEG); then \
	  $(MAKE) --no-print-directory build/asan/fuzz && rm -rf build/asan/seeds && \
	  PYTHONPATH=tests/helpers $(BIN)/python tools/fuzz_seeds.py build/asan/seeds && \
	  cd build/asan && ./fuzz $(MUTANTS) $(SEED) seeds/*.jpg; \
	else \
	  echo 'make asan: skipped, the system has no libjpeg-turbo headers (libjpeg-dev) to build with'; \
	fi

stub: .venv/.installed  ## take over the native core's generated stub
	cp "$$($(STUB))" fastdata/_core.pyi

clean:  ## remove everything that make made
	rm -rf .venv build dist demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A process for each core, four at most: each imports torch. One where pytest talks with the user.
PARALLEL = $(if $(filter -s --capture=no --pdb --trace --sw --stepwise,$(ARGS)),,\
  -n logical --maxprocesses 4 --dist worksteal)

STUB = $(BIN)/python -c 'import sys; print(f"build/{sys.implementation.cache_tag}/_core.pyi")'

HAS_JPEG = echo 'int main() {}' | \
  $(CXX) -x c++ -include stdio.h -include jpeglib.h -ljpeg -o /dev/null - 2>/dev/null
SANITIZE = -std=c++17 -O1 -g -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all

build/asan/fuzz: csrc/fuzz.cpp $(wildcard csrc/base/*.h csrc/jpeg/* csrc/resize/*)
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) -Icsrc $(filter %.cpp,$^) -ljpeg -o $@

# Preflight says which interpreter this is and whether it can build the native core. A change of
# either makes .venv anew; otherwise this file keeps its time and nothing is installed again.
.venv/.state: FORCE
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	@state="$$($(PYTHON) tools/preflight.py)" || exit 1; \
	if [ "$$state" != "$$(cat $@ 2>/dev/null)" ]; then \
	  rm -rf .venv && $(PYTHON) -m venv .venv && echo "$$state" > $@; \
	fi

.venv/.installed: .venv/.state pyproject.toml CMakeLists.txt $(wildcard csrc/*/*)
	$(BIN)/python -m pip install --editable '.[train]'
	@$(BIN)/python -c 'from fastdata.native import load; load() or print("$(NO_CORE)")'
	@touch $@

NO_CORE = The native core was not built: OpenCV decodes, and packing probes in Python.

# What the tests compare with, and adapters are for, the demo does without.
.venv/.tested: .venv/.installed
	$(BIN)/python -c '$(PRINT_EXTRAS)' $(TESTED) | $(BIN)/python -m pip install -r /dev/stdin
	@touch $@

.venv/.tools: .venv/.installed
	$(BIN)/python -c '$(PRINT_EXTRAS)' dev | $(BIN)/python -m pip install -r /dev/stdin
	@touch $@

PRINT_EXTRAS = import sys, tomllib; \
  extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
  print(*(line for name in sys.argv[1:] for line in extras[name]), sep="\n")
