# Patchbay's contract with people and CI. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
export CGO_ENABLED ?= 0

VERSION ?= $(shell deploy/version 2>/dev/null || echo unknown)
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

.PHONY: help build check fmt vet lint test lab-up lab-down lab-status integration histories crashes unkind fuzz bench-openflow ci tools

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

build: ## static bin/patchbay and bin/lab, version stamped
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/patchbay ./cmd/patchbay
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/lab ./cmd/lab

check: fmt vet lint test ## format, vet, lint, import direction, docs, unit tests with -race

# `make test`, and with it `make check`, runs these tests too.
.PHONY: docs-check
docs-check: ## links and anchors of all pages, and every `patchbay`, `lab` and `make` command that they show
	$(GO) test -count 1 -run TestDocs ./internal/repo

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt -w these files:"; echo "$$out"; exit 1; fi

# Every file of the module is vetted and linted, whatever tag it needs. No file asks for the absence of a tag of these, so
# that one run sees them all; that packages compile without tags is seen by `make test`.
ALL_TAGS := integration,parity,e2e,bench

vet:
	$(GO) vet -tags $(ALL_TAGS) ./...

lint: $(GOLANGCI_LINT)
	$(GOLANGCI_LINT) run --build-tags $(ALL_TAGS) ./...

$(GOLANGCI_LINT):
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

tools: $(GOLANGCI_LINT) ## install the linter

# FLAKY=5 runs all of them five times in a row, none from the cache. Collecting garbage is a fifth of a run with -race, so it
# happens less often, within 3 GiB a process.
FLAKY ?=
TEST_ENV := CGO_ENABLED=1 GOGC=400 GOMEMLIMIT=3GiB
test:
	@set -o pipefail; for run in $$(seq $(or $(FLAKY),1)); do \
		$(TEST_ENV) $(GO) test -race -timeout 20m $(if $(FLAKY),-count 1) -json $(TESTFLAGS) $(PKGS) | $(TESTSUM) || exit 1; done

lab-up: build ## start the real cloud on this machine: RabbitMQ, MariaDB, neutron-server, HOSTS=2 switches (root)
	bin/lab up --hosts $(HOSTS)

lab-down: build ## stop it and leave nothing behind
	bin/lab down

lab-status: build ## what runs, where, and which agents neutron-server sees
	bin/lab status

integration: build ## tests against real RabbitMQ, Open vSwitch, neutron-server and Python peers (root)
	@set -o pipefail; CGO_ENABLED=1 $(GO) test -race -p 1 -count 1 -timeout 20m -tags integration -json \
		-run "$$(tools/integration-tests names)" $(TESTFLAGS) $(or $(INTEGRATION),$$(tools/integration-tests packages)) | $(TESTSUM)

# A fixed seed judges a change by what it changes; SEED=0 looks for new histories.
HISTORIES ?= 500
SEED ?= 1
histories: ## HISTORIES=500 random histories of events end in the same flows, meters and rows as a fresh start (SEED=0: new ones)
	@set -o pipefail; $(GO) test -count 1 -timeout 60m -json -run History ./internal/pipeline ./internal/extension ./internal/qos -rapid.checks=$(HISTORIES) -rapid.seed=$(SEED) | $(TESTSUM)

CRASHES ?= 500
PANICS ?= 1000
# What was injected, and how often, is in the output of a test that passed, of which TESTSUM shows nothing.
INJECTED := sed -u -nE 's/.*"Output":" *panic_test.go:[0-9]+: +([0-9]+  .*)\\n".*/  injected: \1/p'
crashes: ## CRASHES=500 crashes of an agent and PANICS=1000 panics in it, in random histories: flows end right, never empty or open in between (SEED=0: new ones)
	@set -o pipefail; $(GO) test -count 1 -timeout 60m -json -run TestCrashes ./internal/agent -crashes=$(CRASHES) -panics=$(PANICS) -crashseed=$(SEED) \
		| tee >($(INJECTED) >&2) | $(TESTSUM)

# The seed is in the output of a test that passed, of which TESTSUM shows nothing.
unkind: ## HISTORIES=500 random histories of an agent and an unkind server (late, reordered, twice, failing, lost, any release) end as a fresh start does (SEED=0: new ones)
	@set -o pipefail; $(GO) test -count 1 -timeout 60m -json -run TestUnkindServer ./internal/agent -unkind=$(HISTORIES) -unkindseed=$(SEED) \
		| tee >(sed -u -nE 's/.*"Output":" *[a-z_]+_test.go:[0-9]+: +(seed [0-9]+)\\n".*/  \1/p' >&2) | $(TESTSUM)

# The seed is in the output of a test that passed, of which TESTSUM shows nothing.
.PHONY: decisions
decisions: ## the decisions of HISTORIES=500 random histories with crashes, made again twice from the recorded events: effects are equal byte for byte (SEED=0: new ones)
	@set -o pipefail; $(GO) test -count 1 -timeout 60m -json -run TestDecisions ./internal/agent -decisions=$(HISTORIES) -decisionseed=$(SEED) \
		| tee >(sed -u -nE 's/.*"Output":" *[a-z_]+_test.go:[0-9]+: +(seed [0-9]+)\\n".*/  \1/p' >&2) | $(TESTSUM)

# Mutants are drawn with the same SEED. Their state is in bin/mutants; a run that was stopped goes on.
MUTANTS ?= 40
.PHONY: mutants
mutants: ## MUTANTS=40 small faults in the agent's packages, drawn at random: the unit tests find 90 % (SEED=0: new ones; MUTANTSFLAGS='-for 35m -json FILE')
	@mkdir -p bin && $(GO) build -o bin/mutants.tool ./tools/mutants && GOGC=400 bin/mutants.tool -n $(MUTANTS) -seed $(SEED) $(MUTANTSFLAGS)

fuzz: ## every fuzz target for FUZZTIME=10s
	@tools/fuzz-all $(FUZZTIME)

bench-openflow: ## the OpenFlow package beside ovs-ofctl, in one run (root)
	PATCHBAY_BENCH=1 $(GO) test -count 1 -tags integration -run TestBesideOfctl -v ./openflow/

.PHONY: map-screenshots
map-screenshots: ## the pictures of `patchbay map` in docs/images, anew, of generated hosts (chromium)
	tools/map-screenshots

.PHONY: try
try: ## the five-minute try of README.md to the letter, in a fresh clone, with the time of each step; TRIES=20 repeats it (root)
	tools/try

# Slices of a long verification: a call goes on where the last one stopped.
SLICE ?= 40m
ITEMS ?=
BESIDE ?= 1
.PHONY: verify verify-list verify-page
verify: ## all that is too long for CI, SLICE=40m of it, going on where the last call stopped; results in verification/ (root; ITEMS=regexp, BESIDE=3 at a time where figures are counts)
	@$(GO) run ./tools/verify run -slice $(SLICE) -items '$(ITEMS)' -beside $(BESIDE) $(if $(AGAIN),-again)

verify-list: ## what `make verify` runs, what is due, how long it took
	@$(GO) run ./tools/verify list -items '$(ITEMS)'

verify-page: ## docs/verification.md and the table of README.md, anew from the results
	@$(GO) run ./tools/verify page

.PHONY: matrix matrix-list matrix-page
matrix: ## the agent with packets on every release of Neutron, RabbitMQ and Open vSwitch, a cell at a time, SLICE=40m of it, going on where the last call stopped (root; ITEMS=regexp, AGAIN=1, BESIDE=3)
	@$(GO) run ./tools/verify matrix -slice $(SLICE) -items '$(ITEMS)' -beside $(BESIDE) $(if $(AGAIN),-again)

matrix-list: ## what `make matrix` runs, what is due, how long it took
	@$(GO) run ./tools/verify matrix-list -items '$(ITEMS)'

matrix-page: ## docs/reference/releases.md, anew from the results
	@$(GO) run ./tools/verify matrix-page

ci: ## exactly what CI does
	bash .ci/run

# Longer runs on the lab, kept beside what they run.
include parity/parity.mk e2e/e2e.mk bench/bench.mk deploy/deploy.mk lab/kernel/kernel.mk lab/fleet/fleet.mk
