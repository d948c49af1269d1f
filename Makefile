# The commands of this repository. Each calls `setup`, which installs what is missing and otherwise does nothing.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
include versions.env

export SALLYPORT_CACHE ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/sallyport
export GOTOOLCHAIN := local
tools := $(SALLYPORT_CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin:$(SALLYPORT_CACHE)/cargo-shear-$(CARGO_SHEAR_VERSION)/bin
release := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help setup demo test bench lint unit

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (apt, cargo, go); nothing on a second run
	@scripts/setup

demo: setup ## raise a tailnet on this machine and run every posture and failure on it
	@cargo build --quiet --release --bin sallyport
	@$(release)/sallyport lab demo --report target/demo/report.json

test: lint unit ## everything: lint, unit, property, namespace and lab tests

unit: setup
	cargo test --workspace --no-fail-fast
	cd lab/control && CGO_ENABLED=0 go vet ./... && CGO_ENABLED=0 go test ./...

bench: setup ## one benchmark: make bench BENCH=guard-start; writes target/bench/NAME.json
	@test -n "$(BENCH)" || { echo "which one? type: make bench BENCH=NAME, NAME one of:" $$(sed -n 's/^name = "\(.*\)" # bench$$/\1/p' crates/*/Cargo.toml) >&2; exit 2; }
	cargo build --quiet --release --bin sallyport
	cargo bench --quiet --bench $(BENCH) -- $(ARGS)

lint: ## fmt, clippy, doc links, deny, unused dependencies, crate arrows, promises, pins
	@scripts/setup lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --quiet
	PATH="$(tools):$$PATH" cargo deny --log-level error check bans licenses sources
	PATH="$(tools):$$PATH" cargo shear
	cargo xtask arrows
	cargo xtask promises
	cargo xtask pins
	test -z "$$(gofmt -l lab/control)"
