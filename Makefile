# Development tasks; `make help` lists them. Environments are made when first needed, inside the checkout.

PYTHON ?= $(or $(shell command -v python3.11),python3)
BIN := .venv/bin
PROTOC := .venv-protoc/bin/python
# Tests wait more than they compute: three workers keep two cores busy.
WORKERS ?= 3
PARALLEL = --numprocesses $(WORKERS) --dist worksteal

# Tests start hundreds of processes, of which each would compile the code again.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.PHONY: help demo needs test test-long test-board check docs check-docs site check-site screenshot protos check-protos bench soak soak-flight week bench-growth bench-lake fuzz pins clean

help: ## list the tasks
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: .venv/ready ## show the whole way on a simulated board
	@$(BIN)/profagent demo

needs: # programs that both suites use
	@tools/need openssl openssl
	@tools/need sshd openssh-server
	@tools/need systemd-nspawn systemd-container
	@tools/need busybox busybox
	@tools/need toybox toybox
	@tools/need mksh mksh
	@tools/need mkfs.vfat dosfstools
	@tools/need mcopy mtools
	@tools/need gcc build-essential

test: .venv/ready needs ## run the suite in WORKERS workers (3); beside it the board's side on Python 3.9
	@tools/need zsh zsh
	@tools/need fish fish
	@tools/need chromium chromium
	@tools/need tmux tmux
	@tools/need promtool prometheus
	@tools/unsynced tools/test_both $(PARALLEL)

test-long: .venv/ready needs ## run what the suite has no time for: bundles, boards that boot, more of the faults; half an hour
	@tools/need aarch64-linux-gnu-gcc crossbuild-essential-arm64
	@tools/unsynced $(BIN)/python -m pytest -m long $(PARALLEL)
	@LINK_MACHINE_EXAMPLES=200 PROFAGENT_ORDERS=200 tools/unsynced $(BIN)/python -m pytest --timeout=0 $(PARALLEL) \
		tests/property/test_link_machine.py tests/property/test_figures_of_any_order.py

test-board: .venv/ready ## try a bundle on an emulated aarch64 board without Python; some minutes, 2 GB of TMPDIR
	@tools/need qemu-system-aarch64 qemu-system-arm
	@tools/need mmdebstrap mmdebstrap
	@tools/need mkfs.ext4 e2fsprogs
	@tools/need depmod kmod
	@tools/need cpio cpio
	@tools/need ssh openssh-client
	@$(BIN)/python -m pytest tests/board/emulated/whole_way.py --capture=no --timeout=0

check: .venv/ready check-protos check-docs check-site ## check style, types, layers, the generated code, pages and links
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy agent tests tools
	@$(BIN)/mypy --python-version 3.9 protos daemon
	@$(BIN)/lint-imports --no-logo

docs: .venv/ready ## generate docs/reference, the manual pages and the README's picture of the screen anew
	@$(BIN)/python -m tools.make_reference
	@$(BIN)/python tools/publish_schemas.py
	@$(BIN)/python tools/make_man.py
	@$(BIN)/python tools/draw_screen.py

check-docs: .venv/ready ## fail when these pages are not what the code gives, or a translation is older than its page
	@$(BIN)/python -m tools.make_reference --check
	@$(BIN)/python tools/publish_schemas.py --check
	@$(BIN)/python tools/make_man.py --check
	@$(BIN)/python tools/draw_screen.py --check
	@$(BIN)/python tools/check_translations.py

site: .venv/ready .venv-site/ready ## build the documentation site anew: build/site/index.html
	@rm -rf build/site build/site-doctrees build/site-extra
	@tools/make_site
	@echo "$(CURDIR)/build/site/index.html"

check-site: .venv/ready .venv-site/ready ## build the site from what changed; fail when a link leads nowhere
	@tools/make_site

screenshot: .venv/ready ## take the README's picture of a report anew
	@tools/need chromium chromium
	@$(BIN)/python tools/make_screenshot.py

protos: .venv-protoc/ready ## generate the wire's code anew
	@$(PROTOC) tools/generate_protos.py

check-protos: .venv-protoc/ready ## fail when the wire's code is not what its contract gives
	@$(PROTOC) tools/generate_protos.py --check

bench: .venv/ready .venv-bench/ready ## measure, and print the figures; AGAINST=CLONE: in turns with another clone
	@$(BIN)/python -m pytest tests/bench --capture=no --timeout=0 $(if $(AGAINST),--against $(AGAINST))

bench-growth: .venv/ready ## measure with up to 50 million rows stored; takes 9 GB of TMPDIR
	@$(BIN)/python -m pytest tests/bench/growth_of_rows.py --capture=no --timeout=0

bench-lake: .venv/ready ## kill writers of a lake, and ask 50 million rows; takes 3 GB of TMPDIR
	@$(BIN)/python -m pytest tests/bench/lake.py --capture=no --timeout=0

soak: .venv/ready ## run at full rate under faults for SOAK_S seconds (600)
	@PYTHONPATH=protos:daemon:agent:. $(BIN)/python -m tests.soak.soak --seconds $(or $(SOAK_S),600)

soak-flight: .venv/ready ## kill a flight recorder over FLIGHT_N inferences (100000)
	@PYTHONPATH=protos:daemon:agent:. $(BIN)/python -m tests.soak.flight --inferences $(or $(FLIGHT_N),100000)

week: .venv/ready ## record seven nights of three simulated boards, and read what their pages say; some minutes
	@PYTHONPATH=protos:daemon:agent:. $(BIN)/python -m tests.soak.week $(if $(WEEK_DIR),--folder $(WEEK_DIR))

fuzz: .venv-fuzz/ready ## fuzz the formats for FUZZ_S seconds (60)
	@mkdir -p .fuzz/corpus && find tests/data -type f -size -64k -exec cp --backup=numbered -t .fuzz/corpus {} +
	@PYTHONPATH=protos:agent .venv-fuzz/bin/python tests/fuzz/formats.py .fuzz/corpus \
		-max_total_time=$(or $(FUZZ_S),60) -max_len=65536 -timeout=10 -rss_limit_mb=1024 -artifact_prefix=.fuzz/

pins: ## pin the requirements anew
	@tools/pin $(PYTHON) $$(tools/find_python39)

clean: ## remove environments, caches and build output
	@rm -rf .venv .venv39 .venv-bench .venv-site .venv-protoc .venv-fuzz .fuzz build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed: requirements/dev.txt tools/make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the agent needs Python 3.11: make PYTHON=…")'
	@tools/make_venv $(PYTHON) .venv requirements/dev.txt
	@touch $@

.venv/ready: .venv/installed pyproject.toml
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@$(BIN)/pip check --disable-pip-version-check >/dev/null || { $(BIN)/pip check; exit 1; }
	@touch $@

.venv-protoc/ready: requirements/protoc.txt tools/make_venv
	@tools/make_venv $(PYTHON) .venv-protoc requirements/protoc.txt
	@touch $@

.venv-bench/ready: requirements/bench.txt requirements/bench-otava.txt tools/make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the benchmarks need Python 3.11: make PYTHON=…")'
	@tools/make_venv $(PYTHON) .venv-bench requirements/bench.txt
	@.venv-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bench-otava.txt
	@touch $@

.venv-site/ready: requirements/site.txt tools/make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the site needs Python 3.11: make PYTHON=…")'
	@tools/make_venv $(PYTHON) .venv-site requirements/site.txt
	@touch $@

.venv-fuzz/ready: requirements/fuzz.txt tools/make_venv
	@tools/make_venv $(PYTHON) .venv-fuzz requirements/fuzz.txt
	@touch $@
