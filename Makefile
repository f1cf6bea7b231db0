# Every target sets itself up: a virtual environment in .venv with the pinned versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
QUICK := admission clusters/model clusters/scheduling component_base kube manager page policy preemption reconciler registration serving

.PHONY: install quick test oldest tools lint fmt bench demo fuzz soak judges lock image schema clean

install: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "giveway needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing the pinned packages into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The packages' own tests without those that take long or play a whole cluster: for the minute between two edits. They
# hardly wait, so there is one process for each core.
quick: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -q -m 'not slow' $(addprefix tests/,$(QUICK))

# What starts processes waits for them, so four share two cores; the tests of a file stay together.
test: $(STAMP)
	$(BIN)/python -m pytest -n 4 --dist loadfile

# What works with each package, with the oldest version that pyproject.toml allows, laid over the pinned ones.
OLDEST := $(CURDIR)/$(VENV)/oldest
AT_LEAST := $(shell sed -n '/^dependencies/,/^]/s/^  "\(.*\)>=\(.*\)",$$/\1==\2/p' pyproject.toml)
WITH_OLDEST := certs/test_files.py certs/test_rotation.py cli/test_compile.py cli/test_lint.py component_base kube/test_client.py \
	kube/test_endpoint.py kube/test_informer.py page/test_app.py policy/cel/test_program.py policy/files/test_files.py policy/model \
	preemption/snapshot serving/test_dear_reviews.py serving/test_hostile.py serving/test_http.py serving/test_reviews.py serving/test_tls.py

oldest: $(OLDEST)/.installed
	PYTHONPATH=$(OLDEST) $(BIN)/python -m pytest -n auto -q -m 'not slow' $(addprefix tests/,$(WITH_OLDEST))

$(OLDEST)/.installed: $(STAMP)
	@rm -rf $(OLDEST)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(OLDEST) $(AT_LEAST)
	@touch $@

# Programs that some tests need beside kubectl, fetched once into ~/.cache/giveway; without them those tests are skipped.
tools: $(STAMP)
	@$(BIN)/python -m tests.tools

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)
	@$(BIN)/giveway demo

bench: $(STAMP)
	$(BIN)/python -m tests.bench

fuzz: $(STAMP)
	$(BIN)/python -m tests.bench.mutated

# Random clusters of each kind and examples of each property, so many, on all processors; then what takes its time by the
# clock.
SEEDS ?= 600
soak: $(STAMP)
	SEEDS=$(SEEDS) $(BIN)/python -m pytest -n auto -m soak --run-soak tests/reconciler/test_clusters.py
	SEEDS=$(SEEDS) $(BIN)/python -m pytest -n auto -m hypothesis --hypothesis-profile soak
	$(BIN)/python -m pytest -m soak --run-soak --ignore tests/reconciler/test_clusters.py

# Before a release: the judges of random clusters find what some mechanisms are needed for, if those are taken away.
judges: $(STAMP)
	$(BIN)/python -m tests.reconciler.harness.taken_away

COMPILE := $(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# The image's lock has what runs there and what builds it, in the versions of the other.
lock: $(STAMP)
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --all-build-deps --constraint requirements.lock --no-annotate --output-file requirements.image.lock pyproject.toml

# For this machine's architecture. For both, in a registry: make image IMAGE=registry.example.com/giveway:0.1.0 PLATFORMS=linux/amd64,linux/arm64
IMAGE ?= giveway:0.1.0
PLATFORMS ?=
image:
	docker buildx build $(if $(PLATFORMS),--platform $(PLATFORMS) --push,--load) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) --tag $(IMAGE) .

schema: $(STAMP)
	$(BIN)/giveway schema > policies/schema.json
	$(BIN)/giveway schema --format markdown > docs/policy-reference.md
	$(BIN)/python -m tests.policy.cel.object_fields > webhook/policy/cel/object_fields.json

clean:
	rm -rf $(VENV) build dist *.egg-info
