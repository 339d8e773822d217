# One command each on a fresh machine: `make demo`, `make test`.
#
# PYTHON       the interpreter that makes the virtual environment
# TORCH_INDEX  a package index with a CPU build of torch, as https://download.pytorch.org/whl/cpu; empty: PyPI's build

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
DEMO := $(VENV)/installed-demo
INSTALLED := $(VENV)/installed
PADDLE := $(VENV)/installed-paddle
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

# One of each minor release that is supported; an environment takes 5 GB with PyPI's build, 1 GB with TORCH_INDEX's.
TORCH_RELEASES ?= 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
# And of Paddle, each with torch: 1.7 GB.
PADDLE_RELEASES ?= 3.0.0 3.1.1 3.2.2 3.3.1
# And MindSpore as the extra gives it: 6 GB. PYTHON must be 3.10 to 3.12 for it.
RELEASES := $(TORCH_RELEASES:%=$(VENV)-torch-%/installed) $(PADDLE_RELEASES:%=$(VENV)-paddle-%/installed) $(VENV)-extra-mindspore/installed

MSPROBE := 1.0.4 1.2.2 8.3.3 26.2.0
PEERS := $(MSPROBE:%=$(VENV)-msprobe-%/installed)

# Hundreds of processes import the same modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit docs release-check demo demo-paddle test test-fast evidence test-paddle test-mindspore lint format snapshots mapping mapping-mindspore conformance conformance-mindspore conformance-paddle compat verdict-quality wheel-demo test-without-torch test-without-kernel clean

# In `cases`: tests/conftest.py needs what only the tests need.
demo: $(DEMO)
	cd cases && ../$(VENV)/bin/pytest --probe-dump=gpt

# A step of Paddle's, recorded by PaddleAPEX. It adds Paddle, 720 MB, to the environment, and so its tests to `make test`.
demo-paddle: $(PADDLE)
	$(VENV)/bin/pytest --probe-dump=cases/paddle-gpt

test: $(INSTALLED)
	$(VENV)/bin/pytest -n 2 --dist worksteal --tenth

# The unit tests: for each change, and for a first one.
SLOW := $(addprefix --ignore=tests/,acceptance browser device evidence)
test-fast: $(INSTALLED)
	$(VENV)/bin/pytest -n 2 --dist worksteal --tenth -m "not slow" $(SLOW)

# What judges many calls, all of it, and what the checks said. For a change of a rule. Not in CI.
evidence: $(INSTALLED)
	$(VENV)/bin/pytest -n 2 --dist worksteal -m evidence

# With Paddle in the environment: the tests that need it. All others do the same without it.
NEEDS_PADDLE := (importorskip|unavailable)\("paddle"|needs_paddle|\(kit: Any
test-paddle: $(PADDLE)
	$(VENV)/bin/pytest -n 2 --dist worksteal --tenth -m paddle tests/frameworks/paddle tests/capture/paddle \
		$$(grep -rlE '$(NEEDS_PADDLE)' tests --include='test_*.py' --exclude-dir=paddle)

# With MindSpore, in an environment of its own of 3.5 GB: the tests that need it. PYTHON must be 3.10 to 3.12.
MINDSPORE := $(VENV)-mindspore
test-mindspore: $(MINDSPORE)/installed
	$(MINDSPORE)/bin/pytest -n 2 -m mindspore tests/frameworks/mindspore tests/capture/mindspore \
		tests/acceptance/test_mindspore_replay.py tests/acceptance/test_mindspore_capture.py

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy kernel docs/prose.py
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python docs/prose.py

# The site of docs/, in $(SITE)/site. A link or an anchor that leads nowhere fails.
SITE := $(VENV)-docs
docs: $(SITE)/installed
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --site-dir $(SITE)/site

# All that a release needs but the tests and the upload: dist/ has the sdist, the wheel of this machine, which the workflow
# builds for manylinux, and the wheel without kernels. Each wheel is installed and asked for its version.
RELEASE := $(VENV)-release
release-check: lint docs $(RELEASE)/installed
	rm -rf dist
	$(RELEASE)/bin/python -m build
	CC=false $(RELEASE)/bin/python -m build --wheel
	$(RELEASE)/bin/twine check --strict dist/*
	grep -q "^## $$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) " CHANGELOG.md
	test -z "$$(find changes -name '*.md' ! -name README.md)" || (echo "changes/ has fragments: towncrier build" && false)
	for wheel in dist/*.whl; do \
		$(RELEASE)/bin/pip install --quiet --force-reinstall --no-deps "$$wheel" && $(RELEASE)/bin/pytest-probe --version || exit 1; \
	done

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

snapshots: $(INSTALLED)
	$(VENV)/bin/pytest tests/acceptance --snapshot-update

# Each entry of the map between Paddle and torch proved, and docs/mapping/paddle-torch.csv. For a change of
# the map. PADDLEAPEX is a checkout of PaddleAPEX, whose own map is put through the same proof; without one it is not.
mapping: $(PADDLE)
	$(VENV)/bin/python -W ignore -m benchmarks.mapping --write
	$(if $(PADDLEAPEX),$(VENV)/bin/python -W ignore -m benchmarks.mapping.paddleapex $(PADDLEAPEX))

# The same for docs/mapping/mindspore-torch.csv.
mapping-mindspore: $(MINDSPORE)/installed
	$(MINDSPORE)/bin/python -W ignore -m benchmarks.mapping --of mindspore --write

# How good the verdicts are: faults found and healthy cases flagged, on samples, dumps and drawn calls. Not in CI.
verdict-quality: $(INSTALLED)
	$(VENV)/bin/python benchmarks/verdict_quality.py

# What users get: the wheel, in a fresh environment of its own, checks the demo.
wheel-demo:
	rm -rf dist $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip wheel --quiet --no-deps --wheel-dir dist .
	$(VENV)-wheel/bin/pip install --quiet $(INDEX) -c constraints.txt "$$(ls dist/*.whl)[torch]"
	cd cases && ../$(VENV)-wheel/bin/pytest --probe-dump=gpt

# Without torch: what needs none works, what needs it says so. Warnings are errors, also with PYTHON=python3.10 to 3.14.
test-without-torch:
	$(PYTHON) -m venv $(VENV)-without-torch
	$(VENV)-without-torch/bin/pip install --quiet -c constraints.txt -e '.[parallel]' hypothesis syrupy setuptools
	$(VENV)-without-torch/bin/pytest -q -W error --tenth --ignore=tests/system/tensor_files/test_torch_zip.py \
		tests/without_torch tests/numerics tests/system tests/reports tests/model

# Without the compiled kernels: captures and large inputs with a wheel that was built where the compiler fails.
PLAIN := $(VENV)-without-kernel
PACKAGES = $$("$(1)/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
test-without-kernel: $(INSTALLED)
	$(PYTHON) -m venv --clear $(PLAIN)
	CC=false $(PLAIN)/bin/pip install --quiet --no-deps .
	echo "import site; site.addsitedir('$(call PACKAGES,$(CURDIR)/$(VENV))')" > "$(call PACKAGES,$(PLAIN))/packages.pth"
	$(PLAIN)/bin/pytest-probe --version | grep "without the compiled kernel"
	$(PLAIN)/bin/python -I -m pytest -q --tenth -m "not slow" --ignore=tests/capture/paddle tests/capture tests/inputs
	$(PLAIN)/bin/python -I -m pytest -q tests/acceptance/test_capture.py -k "first_step or disk_that_fills"

# The real tools beside ours. Not in CI: each release of MSPROBE gets an environment of its own, of 1.4 GB.
conformance: $(INSTALLED) $(PEERS)
	$(VENV)/bin/python -m tests.conformance.live $(PEERS:installed=bin/python)

# The same for MindSpore: each release gets an environment of its own, of 4 GB.
MINDSPORE_PEERS := $(MINDSPORE)-msprobe-26.2.0/installed $(MINDSPORE)-msprobe-1.2.2/installed
conformance-mindspore: $(MINDSPORE)/installed $(MINDSPORE_PEERS)
	$(MINDSPORE)/bin/python -m tests.conformance.mindspore $(MINDSPORE_PEERS:installed=bin/python)

# PaddleAPEX's own replay of what our Tracer writes. PADDLEAPEX is a checkout of it; without one this is skipped.
PADDLEAPEX ?=
conformance-paddle: $(PADDLE)
	$(VENV)/bin/python -W ignore -m tests.conformance.paddleapex $(PADDLEAPEX)

# The demo and some tests with each release of torch and of Paddle, and with MindSpore's extra: what docs/findings.md says of versions. Not in CI.
compat: $(RELEASES)
	$(PYTHON) benchmarks/compat.py $(RELEASES:installed=bin/python)

# Known holes in the oldest releases that are allowed, and in those of CI. It asks PyPI: before a release, not in CI.
AUDIT := $(VENV)-audit
audit:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet pip-audit
	$(AUDIT)/bin/python benchmarks/audit.py

clean:
	rm -rf $(VENV) $(AUDIT) $(SITE) $(RELEASE) $(MINDSPORE) $(PEERS:/installed=) $(MINDSPORE_PEERS:/installed=) $(RELEASES:/installed=)

$(DEMO): pyproject.toml constraints.txt $(wildcard kernel/*.c kernel/*.h kernel/*.py kernel/numerics/*)
	@echo "Making a virtual environment in $(VENV). This is done once and takes one to three minutes."
	$(PYTHON) -m venv $(VENV)
	@echo "Installing pytest-probe and torch"
	$(VENV)/bin/pip install $(INDEX) -c constraints.txt -e '.[torch,parallel]'
	touch $@

$(INSTALLED): $(DEMO)
	@echo "Installing what the tests need"
	$(VENV)/bin/pip install --quiet $(INDEX) -c constraints.txt -e '.[torch,parallel,dev]'
	touch $@

$(SITE)/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet "$$(sed -n 's/^docs = \["\(.*\)"\]/\1/p' pyproject.toml)"
	touch $@

$(RELEASE)/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet build twine 'pytest>=8.3' 'numpy>=1.26' 'ml_dtypes>=0.5' 'msgspec>=0.19' 'pyyaml>=6'
	touch $@

$(PADDLE): $(INSTALLED)
	$(VENV)/bin/pip install --quiet -c constraints.txt -e '.[paddle]'
	touch $@

$(MINDSPORE)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(MINDSPORE)
	grep -vE "^(numpy|ml_dtypes)==" constraints.txt > $(MINDSPORE)/constraints.txt
	$(MINDSPORE)/bin/pip install --quiet $(INDEX) -c $(MINDSPORE)/constraints.txt -e '.[mindspore,parallel]' hypothesis expecttest syrupy lxml jinja2
	touch $@

$(MINDSPORE)-msprobe-%/installed: tests/conformance/needs-msprobe-%.txt constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $(INDEX) mindstudio-probe==$* mindspore==2.10.0 $(shell grep ^torch== constraints.txt) -r $<
	touch $@

$(VENV)-msprobe-%/installed: tests/conformance/needs-msprobe-%.txt constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $(INDEX) mindstudio-probe==$* $(shell grep ^torch== constraints.txt) -r $<
	touch $@

# Without constraints, as users install it.
$(VENV)-extra-%/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $(INDEX) -e '.[$*,parallel]' hypothesis expecttest syrupy
	touch $@

$(VENV)-paddle-%/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $(INDEX) paddlepaddle==$* $(shell grep ^torch== constraints.txt) -e '.[parallel]' hypothesis expecttest syrupy
	touch $@

$(VENV)-torch-%/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $(INDEX) torch==$* -e '.[parallel,report]' hypothesis expecttest syrupy lxml
	touch $@
