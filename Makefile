# A short front for CMake and the scripts in tools/. `make help` lists the targets.
BUILD ?= build
CMAKE_FLAGS ?=
PREFIX ?= /usr/local

.PHONY: help build demo test bench format lint asan tsan check-models check-long install uninstall deb check-deb portable fuzz clean
.DEFAULT_GOAL := build

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo "Variables: BUILD=$(BUILD) (the folder), CMAKE_FLAGS=$(CMAKE_FLAGS), PREFIX=$(PREFIX), DESTDIR=$(DESTDIR)"

build: ## build the program and the library in $(BUILD)
	@tools/install-deps build
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) >/dev/null
	@said=$$(ninja -C $(BUILD) --quiet megadecode-cli); status=$$?; \
	case "$$said" in "" | "ninja: no work to do.") ;; *) printf '%s\n' "$$said" ;; esac; exit $$status

demo: build ## let the shipped model tell a fairy tale with the resident kernel
	$(BUILD)/megadecode run -p "Once upon a time" -n 200 --temp 0.7 --seed 7 --echo -v

test: ## build and run every test (gcc and clang, sanitizers, linters)
	@tools/install-deps test
	@tools/test

bench: build ## measure this machine: full-size synthetic models (PEER=, GGUF= to compare)
	@tools/bench $(BUILD)/megadecode

format: ## format the sources in place
	@git ls-files '*.c' '*.h' | xargs clang-format -i

lint: ## formatting, the folder rule, cppcheck
	@tools/lint

asan: ## the tests under AddressSanitizer and UBSan
	@tools/test asan

tsan: ## the tests that use threads under ThreadSanitizer
	@tools/test tsan

check-models: ## explore every state of the models of the waits (spin)
	@tools/install-deps models
	@tools/check-models

check-long: ## half an hour of long runs and faults, with memory watched (docs/RELIABILITY.md)
	@tools/install-deps long
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) >/dev/null
	@ninja -C $(BUILD) --quiet
	@tools/check-long $(BUILD)

install: build ## install into PREFIX (/usr/local), below DESTDIR
	@ninja -C $(BUILD) --quiet docs
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

uninstall: ## remove what the last install put there
	@DESTDIR=$(DESTDIR) ninja -C $(BUILD) --quiet uninstall

deb: ## a Debian package in build-deb/
	@tools/install-deps deb
	@cmake -S . -B build-deb -G Ninja -DCMAKE_INSTALL_PREFIX=/usr $(CMAKE_FLAGS) >/dev/null
	@ninja -C build-deb --quiet megadecode-cli docs
	@cd build-deb && cpack --config CPackConfig.cmake | tail -1

check-deb: deb ## install, run and remove the package in a fresh Debian (as root; debootstrap)
	@tools/check-deb build-deb/*.deb

portable: ## a folder dist/ with the program and the libraries it needs
	@tools/make-portable

fuzz: ## a folder dist-fuzz/ with all fuzz targets and run-fuzz
	@tools/install-deps test
	@tools/make-fuzz

clean: ## remove the build folders
	rm -rf build build-* dist dist-*
