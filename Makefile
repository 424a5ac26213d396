# Patchbay's contract with people and CI. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
export CGO_ENABLED ?= 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
GOLANGCI_LINT_VERSION := v2.11.4
GOBIN_DIR := $(shell $(GO) env GOPATH)/bin
GOLANGCI_LINT := $(GOBIN_DIR)/golangci-lint

HOSTS ?= 2
FUZZTIME ?= 10s
# Extra arguments for `go test`, such as TESTFLAGS='-run TestAgentRecord -v'.
TESTFLAGS ?=
# Packages of the unit tests; narrow it while working on one.
PKGS ?= ./...

# TESTSUM reads `go test -json`, shows failures and skips with their reasons, and closes with the counts.
TESTSUM := $(GO) run ./tools/testsum

.PHONY: help build check fmt vet lint test lab-up lab-down lab-status integration histories crashes fuzz bench-openflow ci tools

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

build: ## static bin/patchbay and bin/lab, version stamped
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/patchbay ./cmd/patchbay
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/lab ./cmd/lab

check: fmt vet lint test ## format, vet, lint, import direction, unit tests with -race

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt -w these files:"; echo "$$out"; exit 1; fi

# Every file of the module is vetted and linted, whatever tag it needs.
ALL_TAGS := integration,parity,e2e,bench

vet:
	$(GO) vet ./...
	$(GO) vet -tags $(ALL_TAGS) ./...

lint: $(GOLANGCI_LINT)
	$(GOLANGCI_LINT) run --build-tags $(ALL_TAGS) ./...

$(GOLANGCI_LINT):
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

tools: $(GOLANGCI_LINT) ## install the linter

test:
	@set -o pipefail; CGO_ENABLED=1 $(GO) test -race -json $(TESTFLAGS) $(PKGS) | $(TESTSUM)

lab-up: build ## start the real cloud on this machine: RabbitMQ, MariaDB, neutron-server, HOSTS=2 switches (root)
	bin/lab up --hosts $(HOSTS)

lab-down: build ## stop it and leave nothing behind
	bin/lab down

lab-status: build ## what runs, where, and which agents neutron-server sees
	bin/lab status

integration: build ## tests against real RabbitMQ, Open vSwitch, neutron-server and Python peers (root)
	@set -o pipefail; CGO_ENABLED=1 $(GO) test -race -p 1 -count 1 -timeout 20m -tags integration -json \
		-run "$$(tools/integration-tests names)" $(TESTFLAGS) $$(tools/integration-tests packages) | $(TESTSUM)

# A fixed seed judges a change by what it changes; SEED=0 looks for new histories.
HISTORIES ?= 500
SEED ?= 1
histories: ## HISTORIES=500 random histories of events end in the same flows, meters and rows as a fresh start (SEED=0: new ones)
	@set -o pipefail; $(GO) test -count 1 -timeout 60m -json -run History ./internal/pipeline ./internal/extension ./internal/qos -rapid.checks=$(HISTORIES) -rapid.seed=$(SEED) | $(TESTSUM)

CRASHES ?= 500
PANICS ?= 1000
# What was injected, and how often, is in the output of a test that passed, of which TESTSUM shows nothing.
INJECTED := sed -nE 's/.*"Output":" *panic_test.go:[0-9]+: +([0-9]+  .*)\\n".*/  injected: \1/p'
crashes: ## CRASHES=500 crashes of an agent and PANICS=1000 panics in it, in random histories: flows end right, never empty or open in between (SEED=0: new ones)
	@set -o pipefail; $(GO) test -count 1 -timeout 60m -json -run TestCrashes ./internal/agent -crashes=$(CRASHES) -panics=$(PANICS) -crashseed=$(SEED) \
		| tee >($(INJECTED) >&2) | $(TESTSUM)

fuzz: ## every fuzz target for FUZZTIME=10s
	@tools/fuzz-all $(FUZZTIME)

bench-openflow: ## the OpenFlow package beside ovs-ofctl, in one run (root)
	PATCHBAY_BENCH=1 $(GO) test -count 1 -tags integration -run TestBesideOfctl -v ./openflow/

.PHONY: map-screenshots
map-screenshots: ## the pictures of `patchbay map` in docs/images, anew, of generated hosts (chromium)
	tools/map-screenshots

.PHONY: try
try: ## the five-minute try of README.md to the letter, in a fresh clone, with the time of each step (root)
	tools/try

ci: ## exactly what CI does
	bash .ci/run

# Longer runs on the lab, kept beside what they run.
include parity/parity.mk e2e/e2e.mk bench/bench.mk deploy/deploy.mk lab/kernel/kernel.mk
