# `make` lists the targets. Each brings up what it needs first (deploy/bootstrap.sh:
# Java, .venv, locked packages, what the tests drive) and does no set-up work when that is there.
#
#   PYTHON=/path/to/python3.12   makes .venv with that interpreter (3.11, 3.12 or 3.13)
#   ARGS="..."                   goes to pytest (test), to the benchmark (bench) or to both
#                                runs of chaos (--store s3, --seed N)
#   MINUTES=10                   is how long chaos is around a source
#   UPGRADE=1                    lets `make lock` move to newer versions

RUNTIME := @deploy/bootstrap.sh runtime --
DEV := @deploy/bootstrap.sh dev --
ARGS ?=
MINUTES ?= 10
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --custom-compile-command "make lock" \
	$(if $(UPGRADE),--upgrade)
CODE := blizzard_core blizzard_py penguin_py tests benchmarks demo

export PYTHON
# Who sets it has every process of the tests compile the product anew, a third of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-dev demo demo-tables demo-keyed demo-units demo-event-time test test-archives check bench-ingest bench-formats bench-light bench-discovery bench-penguin bench-tables bench-units bench-keyed bench-event-time chaos chaos-groups chaos-keyed simulate fuzz soak audit dist sbom pins image image-test docs docs-site lock clean kernel fuzz-fast chaos-event-time

help: ## this list
	@echo "Blizzard + Penguin: NDJSON files that keep arriving become a Delta table."
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		awk -F'|' '{ printf "%-24s %s\n", $$1, $$2 }'

setup: ## bring up Java and .venv with blizzard and penguin: all that running them takes
	$(RUNTIME) true

setup-dev: ## the same with what tests, checks and benchmarks take; those targets do it themselves
	$(DEV) true

demo: ## real events through both daemons, in two rounds, into a Delta table
	$(RUNTIME) .venv/bin/blizzard demo "$${DEMO_DIR:-.demo}"

demo-tables: ## a PostgreSQL table that changes while both daemons run, into a Delta table
	$(DEV) python -m demo.tables

demo-keyed: ## PostgreSQL rows and Debezium's files that change and go, into tables of current rows
	$(DEV) python -m demo.keyed

demo-units: ## thirteen months of an API that corrects its past, a day a run (ARGS="--days 40")
	$(DEV) python -m demo.units $(ARGS)

demo-event-time: ## edits per five minutes and channel, arriving out of order, beside duckdb
	$(DEV) python -m demo.event_time

test: test-archives ## the whole test suite, in random order, by two processes; seconds in build/junit.xml
	$(DEV) pytest -n 2 --dist worksteal --junitxml=build/junit.xml --durations=25 $(ARGS)

# What Spark's processes start from, written once; `make check` may run meanwhile.
test-archives:
	$(DEV) python -m tests.support.compiled_pyspark
	$(DEV) python -m blizzard_py.app.class_archive

check: ## format, lint, types, import layers, names, generated files
	$(DEV) ruff format --check $(CODE)
	$(DEV) ruff check $(CODE)
	$(DEV) mypy
	$(DEV) lint-imports
	$(DEV) python -m tests.repository.vocabulary
	$(DEV) python -m tests.repository.settings_reference --check
	$(DEV) python -m tests.repository.layers --check
	$(DEV) python -m tests.repository.cli_reference --check

bench-ingest: ## one batch in five shapes, beside bare processes, Spark, duckdb and polars
	$(DEV) python -m benchmarks.ingest $(ARGS)

bench-formats: ## files of each format to Parquet, beside duckdb, polars and Spark
	$(DEV) python -m benchmarks.formats $(ARGS)

bench-light: ## starts, small work and idle memory (ARGS="--before ../older-checkout")
	$(DEV) python -m benchmarks.light $(ARGS)

bench-discovery: ## LIST requests, keys and seconds of a poll, beside listing everything
	$(DEV) python -m benchmarks.discovery $(ARGS)
	$(DEV) python -m benchmarks.notifications

bench-penguin: ## what a commit and an idle poll cost, beside delta-rs alone
	$(DEV) python -m benchmarks.penguin $(ARGS)

bench-tables: ## PostgreSQL and SQLite into Parquet, beside ADBC, connectorx and Spark's JDBC
	$(DEV) python -m benchmarks.tables $(ARGS)

bench-units: ## planning units, replacing and rewriting beside appending and copying, idle polls
	$(DEV) python -m benchmarks.units $(ARGS)

bench-keyed: ## a merge into 20 million keyed rows beside delta-rs and dlt
	$(DEV) python -m benchmarks.keyed $(ARGS)

bench-event-time: ## settles, rows a second, many keys and batches of event time (ARGS=--quick)
	$(DEV) python -m benchmarks.event_time $(ARGS)

chaos: ## deaths, pauses, lost answers, rivals: MINUTES around a source, 200 rounds around a table
	$(DEV) python -m tests.chaos.blizzard --minutes $(MINUTES) $(ARGS)
	$(DEV) python -m tests.chaos.penguin --rounds 200 $(ARGS)

chaos-groups: ## groups that replace: 150 random histories of a table, with deaths at every request
	$(DEV) python -m tests.chaos.replacing --histories 150 $(ARGS)

chaos-keyed: ## random histories of changes to keys beside a dict: in memory, on disk, on S3, with deaths
	$(DEV) python -m tests.chaos.keyed --histories 20000
	$(DEV) python -m tests.chaos.keyed --store local --histories 1000 $(ARGS)
	$(DEV) python -m tests.chaos.keyed --store s3 --histories 100 $(ARGS)
	$(DEV) python -m tests.chaos.keyed --store local --deaths
	$(DEV) python -m tests.chaos.keyed --store local --large

kernel: ## compile the fast path from blizzard_py/formats/ndjson/fast/scan.c into what is shipped
	$(DEV) python -m tests.blizzard_py.formats.ndjson.fast.build

fuzz-fast: ## the fast path against the exact one (ARGS="--lines 10000000 --seed 1000000")
	$(DEV) python -m tests.blizzard_py.formats.ndjson.fast.fuzz $(ARGS)

chaos-event-time: ## random streams over event time with deaths, against brute force (ARGS="--streams 300")
	$(DEV) python -m tests.chaos.event_time $(ARGS)

simulate: ## both daemons against an adversary, seed by seed (ARGS="--seeds 10000", ARGS="--guards", ARGS="--markers 1000000")
	$(DEV) python -m tests.simulation $(ARGS)

fuzz: ## bytes that coverage leads on, for all that reads foreign ones (ARGS="--minutes 10")
	$(DEV) python -m tests.fuzz $(ARGS)

soak: ## ten minutes of arrivals and restarts: flat memory, bounded lag, exact counts
	$(DEV) python -m benchmarks.soak $(ARGS)

image: ## the container image, with docker, podman or buildah (ARGS="--build-arg BASE=...")
	@case '$(ARGS)' in *BASE=*@sha256:*) ;; *) \
		echo "image: BASE is a tag, which may move; docs/guides/kubernetes.md, What runs" >&2;; esac
	@for tool in docker podman buildah; do \
		$$tool info >/dev/null 2>&1 && exec $$tool build -t blizzard-penguin $(ARGS) .; \
	done; echo "image: none of docker, podman and buildah works here (TOOL info says why)" >&2; exit 1

image-test: ## build the image offline on a Debian made here, and run both daemons in it (root)
	$(DEV) python -m tests.repository.image_check

audit: ## what is known against the locked packages (ARGS="--advisories FOLDER" without a network)
	$(DEV) python -m tests.repository.audit $(ARGS)

dist: ## wheel and sdist in dist/, checked as a package index does it
	rm -rf dist build *.egg-info
	$(DEV) python -m uv build --quiet --no-build-isolation --out-dir dist
	$(DEV) twine check --strict dist/*.whl dist/*.tar.gz

sbom: ## the image's Python packages as CycloneDX, in sbom.json
	$(DEV) python -m uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements \
		--pyproject pyproject.toml --spec-version 1.6 --output-reproducible -o sbom.json \
		requirements-image.lock

pins: ## every image of your manifests has a digest (ARGS=FOLDER, your copy of deploy/kubernetes)
	$(DEV) python -m tests.repository.pins $(ARGS)

# The runtime set takes its versions from the development set, so that installing one
# over the other changes nothing.
lock: ## compile pyproject.toml into the requirements*.lock files
	$(DEV) python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > .build-requires.in
	$(DEV) $(COMPILE) .build-requires.in -o requirements-build.lock
	@rm -f .build-requires.in
	$(DEV) $(COMPILE) pyproject.toml --extra all --extra dev -c requirements-build.lock -o requirements-dev.lock
	$(DEV) $(COMPILE) pyproject.toml --extra spark --extra s3 --extra gcs -c requirements-dev.lock -o requirements.lock
	$(DEV) $(COMPILE) pyproject.toml --extra all -c requirements-dev.lock -o requirements-image.lock

docs: ## write the pages and the example that are generated from the code
	$(DEV) python -m tests.repository.settings_reference
	$(DEV) python -m tests.repository.layers
	$(DEV) python -m tests.repository.cli_reference

# The variable turns off an announcement of the theme's makers.
docs-site: ## build the documentation as a site with search, in build/site
	$(DEV) env NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

clean: ## remove .venv and everything generated
	rm -rf .venv .tools .demo .demo-tables .demo-keyed .demo-units .bench .fuzz .build-requires.in sbom.json build dist spark-warehouse artifacts .coverage
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis ./*.egg-info
	rm -rf tests/azurite/node_modules
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +
