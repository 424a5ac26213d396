# Included by the Makefile.
.PHONY: bench-wiring

bench-wiring: build ## wiring beside the Python agent and the floor, in one run, as one table (root)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestWiring $(TESTFLAGS) -v ./bench/

.PHONY: bench-extensions
bench-extensions: build ## the agent with quality of service, distributed routing and trunks, and without, in one run, as one table (root)
	@$(GO) test -count 1 -timeout 30m -tags bench -run TestExtensions $(TESTFLAGS) -v ./bench/

.PHONY: bench-groups
bench-groups: build ## what one member of a security group costs, at 10 to 10,000 members, beside the Python agent (root)
	@$(GO) test -count 1 -timeout 120m -tags bench -run TestGroups $(TESTFLAGS) -v ./bench/

.PHONY: bench-hybrid
bench-hybrid: build ## what one rule, one member and a start cost with 10, 100 and 500 ports behind Linux bridges, beside the Python agent (root)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestHybrid $(TESTFLAGS) -v ./bench/

.PHONY: bench-peers
bench-peers: build ## filtered ports beside the Python agent and Debian's ovn-controller, in one run, as one table (root)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestPeers $(TESTFLAGS) -v ./bench/

.PHONY: bench-before
bench-before: build ## this Patchbay beside that of the commit BEFORE=90d824e, in turns in one run: a start, one member, a restart, as one table (root)
	@test -n "$(BEFORE)" || { echo "BEFORE= names a commit" >&2; exit 2; }
	@d=$$(mktemp -d) && trap 'rm -rf $$d' EXIT && git archive $(BEFORE) | tar -x -C $$d && (cd $$d && $(GO) build -trimpath -ldflags '-s -w' -o $$d/patchbay ./cmd/patchbay) && \
		PATCHBAY_BENCH_BEFORE=$$d/patchbay $(GO) test -count 1 -timeout 60m -tags bench -run TestBefore $(TESTFLAGS) -v ./bench/

.PHONY: bench-workers
bench-workers: build ## 100 ports at once on servers with 1, 2 and 4 rpc_workers: Patchbay, that of the commit BEFORE=90d824e, the Python agent and bare calls, as one table (root)
	@test -n "$(BEFORE)" || { echo "BEFORE= names a commit" >&2; exit 2; }
	@d=$$(mktemp -d) && trap 'rm -rf $$d' EXIT && git archive $(BEFORE) | tar -x -C $$d && (cd $$d && $(GO) build -trimpath -ldflags '-s -w' -o $$d/patchbay ./cmd/patchbay) && \
		PATCHBAY_BENCH_BEFORE=$$d/patchbay $(GO) test -count 1 -timeout 60m -tags bench -run TestWorkers $(TESTFLAGS) -v ./bench/

.PHONY: bench-crowd
bench-crowd: build ## all ports of many hosts at once on neutron-server, by agents over switches in memory and by bare calls with one report at a time; then 200 random storms: forwarding entries (root; PATCHBAY_CROWD_AGENTS=100, PATCHBAY_CROWD_PORTS=2, PATCHBAY_CROWD_STORMS=200)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestCrowd $(TESTFLAGS) -v ./bench/

.PHONY: e2e-dhcp-storm
e2e-dhcp-storm: build ## 1,000 guests of one host ask for their address at once, a DHCP agent's dnsmasq and then Patchbay: answered, times, CPU, as one table (root; PATCHBAY_STORM_GUESTS=1000; PATCHBAY_LAB_SERVER=sim for Patchbay alone)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestDHCPStorm $(TESTFLAGS) -v ./bench/

.PHONY: bench-services
bench-services: build ## a compute node with 50 networks, DHCP and metadata: processes, memory, ports, namespaces, RPC and connections of the Python agents and of Patchbay, as one table (root; PATCHBAY_BENCH_NETWORKS=50)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestServices $(TESTFLAGS) -v ./bench/
