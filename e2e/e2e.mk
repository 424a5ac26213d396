# Included by the Makefile.
E2E = CGO_ENABLED=1 $(GO) test -race -count 1 -timeout 45m -tags e2e -v

comma := ,

# What makes the parts of other releases, and has the lab use them.
OF_RELEASES = $(if $(RELEASE)$(BROKER)$(SWITCH),bin/lab release make $(RELEASE) $(BROKER) $(SWITCH) &&) \
	PATCHBAY_LAB_RELEASE=$(or $(RELEASE),$(PATCHBAY_LAB_RELEASE)) PATCHBAY_LAB_BROKER=$(or $(BROKER),$(PATCHBAY_LAB_BROKER)) PATCHBAY_LAB_SWITCH=$(or $(SWITCH),$(PATCHBAY_LAB_SWITCH)) \
	PATCHBAY_LAB_QUEUES=$(or $(QUEUES),$(PATCHBAY_LAB_QUEUES))

.PHONY: e2e e2e-groups e2e-qos e2e-blink faults soak explain-faults on-call alerts secrets admin-load

e2e: build ## real packets between VMs: wiring on three hosts, every network type, DHCP, isolation; then security groups; prints tables (root)
	$(E2E) -run 'TestWiring|TestGroups$$|TestQoS|TestTrunk' $(TESTFLAGS) ./e2e/

e2e-groups: build ## security groups alone: every rule kind, forged frames, fail closed, revoked connections (root; PATCHBAY_E2E_AGENT=python)
	$(E2E) -run 'TestGroups$$' $(TESTFLAGS) ./e2e/

.PHONY: e2e-groups-hybrid
e2e-groups-hybrid: build ## the same with VMs behind Linux bridges, filtered by iptables (root; PATCHBAY_E2E_AGENT=python)
	$(E2E) -run TestGroupsHybrid $(TESTFLAGS) ./e2e/

.PHONY: e2e-routers
e2e-routers: build ## distributed router (Debian's layer-3 agent, three hosts), trunk, limits and filters together; restarts, dead switches, broker away, hand-over (root; PATCHBAY_E2E_AGENT=python)
	$(E2E) -run TestRouters $(TESTFLAGS) ./e2e/

e2e-qos: build ## quality of service: marks in a capture, packet rates and bandwidth under load, a restart; prints a table (root; RELEASE=29)
	$(OF_RELEASES) $(E2E) -run TestQoS $(TESTFLAGS) ./e2e/

.PHONY: e2e-trunk
e2e-trunk: build ## a VM with a trunk: three networks by VLAN sub-interfaces, nothing else; restarts, a dead switch, re-plugged (root; PATCHBAY_E2E_AGENT=python)
	$(E2E) -run TestTrunk $(TESTFLAGS) ./e2e/

e2e-blink: build ## probes at 1 kHz through PATCHBAY_BLINK_UPDATES=200 updates, Patchbay and the Python agent (root; PATCHBAY_BLINK_AGENTS=patchbay, PATCHBAY_BLINK_NETWORK=vxlan)
	$(GO) test -count 1 -timeout 45m -tags e2e -v -run TestBlink $(TESTFLAGS) ./e2e/

faults: build ## restarts, crashes, a dead switch, broker, server and database away, drift, the Python agent and back, under traffic, also with router, trunk and limits; prints tables (root; PATCHBAY_FAULTS_OUTAGE=5m)
	$(GO) test -count 1 -timeout 120m -tags e2e -v -run 'TestFaults|TestRouters' $(TESTFLAGS) ./e2e/

soak: build ## updates and restarts of everything for SOAK=45m, checked after every round (root; on the simulated server with PATCHBAY_LAB_SERVER=sim)
	SOAK=$(or $(SOAK),45m) $(GO) test -count 1 -timeout 90m -tags e2e -v -run TestSoak $(TESTFLAGS) ./e2e/

.PHONY: plan
plan: build ## patchbay plan beside the Python agent: it touches nothing, and what it prints is what then happens (root)
	$(GO) test -count 1 -timeout 30m -tags e2e -v -run TestPlan $(TESTFLAGS) ./e2e/

explain-faults: build ## ten ways to break connectivity: `patchbay trace` and `explain` name the cause, real packets agree (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 20m -tags e2e -v -run TestExplain $(TESTFLAGS) ./e2e/

alerts: build ## a real Prometheus on an agent, each alert of deploy/monitoring fired by a fault and cleared, every query of the dashboard (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 20m -tags e2e -v -run TestAlerts $(TESTFLAGS) ./e2e/

secrets: build ## secrets planted on a host, looked for in everything that it says (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 20m -tags e2e -v -run TestSecrets $(TESTFLAGS) ./e2e/

admin-load: build ## 200 slow readers of the admin socket, scrapes and nonsense while ports are plugged in; prints a table (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 20m -tags e2e -v -run TestAdminLoad $(TESTFLAGS) ./e2e/

on-call: build ## the questions of docs/how-to/on-call.md, each answered by one command on a host with a fault (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 20m -tags e2e -v -run TestOnCall $(TESTFLAGS) ./e2e/

.PHONY: flood
flood: build ## 100,000 pushes at once and a body of 200 MB while ports are plugged in: times, memory, as a table (root)
	$(GO) test -count 1 -timeout 15m -tags e2e -v -run TestFlood $(TESTFLAGS) ./e2e/

.PHONY: e2e-ctlimit
e2e-ctlimit: build ## one VM opens 100,000 connections: its neighbour is refused without conntrack_limit_per_network, and not with it (root)
	PATCHBAY_LAB_SERVER=$(or $(PATCHBAY_LAB_SERVER),sim) $(GO) test -count 1 -timeout 15m -tags e2e -v -run TestConntrackLimit $(TESTFLAGS) ./e2e/

.PHONY: e2e-kept
e2e-kept: build ## pings that a rule with a remote group allows, while the agent starts again, is handed to the Python agent and back: what each loses (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 30m -tags e2e -v -run TestKept $(TESTFLAGS) ./e2e/

.PHONY: e2e-isolation
e2e-isolation: build ## a port in every state, both firewall drivers: what it hears of another tenant's network and of its own, what it sends; prints a table (root; PATCHBAY_E2E_AGENT=patchbay,python for both agents; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 60m -tags e2e -v -run TestIsolation $(TESTFLAGS) ./e2e/

.PHONY: e2e-hostile
e2e-hostile: build ## a VM that sends FRAMES=20000 generated frames of every kind with forged fields, in three rounds: nobody receives what it may not say (root; SEED=1, 0 for a new one; PATCHBAY_LAB_SERVER=sim)
	FRAMES=$(or $(FRAMES),20000) SEED=$(SEED) $(GO) test -count 1 -timeout 30m -tags e2e -v -run TestHostile $(TESTFLAGS) ./e2e/

.PHONY: e2e-dhcp
e2e-dhcp: build ## DHCP answered on the host: real clients at a DHCP agent's dnsmasq and at the extension, option for option; renewal over the change, trunk, iptables_hybrid, broker, server and database away (root)
	$(GO) test -count 1 -timeout 12m -tags e2e -v -run TestDHCP $(TESTFLAGS) ./e2e/

.PHONY: e2e-services-handover
e2e-services-handover: build ## a host whose Python agent answers DHCP, metadata and DNS given to Patchbay and back, twice: a lease that lasts, the same answers, with broker, server and database away, too, nothing of the other agent left (root; RELEASE=29, which is the first with dns_forwarder)
	PATCHBAY_LAB_RELEASE=$(or $(RELEASE),29) $(GO) test -count 1 -timeout 30m -tags e2e -v -run TestServicesHandover $(TESTFLAGS) ./e2e/

.PHONY: e2e-guests-hostile
e2e-guests-hostile: build ## REQUESTS=100000 malformed DHCP, DNS and metadata requests of guests to a running agent, then as many from one port as fast as it can: panics, memory, another tenant's answers, wiring meanwhile (root; SEED=1, 0 for a new one)
	PATCHBAY_LAB_SERVER=$(or $(PATCHBAY_LAB_SERVER),sim) REQUESTS=$(or $(REQUESTS),100000) SEED=$(SEED) $(GO) test -count 1 -timeout 15m -tags e2e -v -run TestGuestsHostile $(TESTFLAGS) ./e2e/

.PHONY: e2e-local-ip
e2e-local-ip: build ## local IPs of the real server: VMs of two hosts reach the port of their own host, or who has the address; associations go and come; broker and server away (root)
	$(GO) test -count 1 -timeout 6m -tags e2e -v -run TestLocalIP $(TESTFLAGS) ./e2e/

.PHONY: e2e-smoke
e2e-smoke: build ## the whole agent on the real server in three minutes: a rule opened and closed, restart, dead switch, tampered flows, broker away, a waiting port, trunk; packets and times as a table (root; RELEASE=29, BROKER=suite, SWITCH=suite, QUEUES=kolla,denied)
	$(OF_RELEASES) $(GO) test -count 1 -timeout 8m -tags e2e -v -run TestSmoke $(TESTFLAGS) ./e2e/

.PHONY: e2e-hybrid
e2e-hybrid: build ## VMs behind Linux bridges, filtered by iptables: a rule opened and closed, a member, restart and kill -9 with no rule touched, drift, br_netfilter off, the Python agent and back, firewall_driver openvswitch and back; packets as a table (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 12m -tags e2e -v -run 'TestHybrid$$' $(TESTFLAGS) ./e2e/

.PHONY: e2e-hybrid-drivers
e2e-hybrid-drivers: build ## two hosts with 40 VMs behind Linux bridges: firewall_driver from iptables_hybrid to openvswitch and back, with both back ends of iptables, under packets of all; as a table (root; PATCHBAY_LAB_SERVER=sim)
	$(GO) test -count 1 -timeout 12m -tags e2e -v -run TestHybridDrivers $(TESTFLAGS) ./e2e/

.PHONY: footprint
footprint: build ## connections, queues, start, restart and log of both agents while they idle; prints a line each (root)
	$(GO) test -count 1 -timeout 20m -tags e2e -v -run TestFootprint $(TESTFLAGS) ./e2e/

.PHONY: e2e-handover
e2e-handover: build ## the Python agent of RELEASE=29 wires filtered VMs, Patchbay takes over and gives back, twice, under packets: none is lost, nothing is left of the other agent, flows and rows as each makes them alone, differences explained (root; BROKER=suite, SWITCH=suite)
	$(OF_RELEASES) $(GO) test -count 1 -timeout 14m -tags e2e -v -run TestHandover $(TESTFLAGS) ./e2e/

.PHONY: e2e-tools
e2e-tools: build packages ## the agent as kolla, TripleO, openstack-helm, OpenStack-Ansible, RDO, the charm and Debian run it, in their containers and services: starts, registers, wires VMs, health check, log; as a table (root, podman, debootstrap; PATCHBAY_TOOLS=checkouts of the tools, TESTFLAGS='-run TestTools/21/kolla')
	$(GO) test -count 1 -timeout 30m -tags e2e -v -run TestTools $(TESTFLAGS) ./e2e/

.PHONY: examples
examples: build ## deploy/examples, made into containers, units and manifests by the templates of kolla-ansible, OpenStack-Ansible and openstack-helm (ansible-core; PATCHBAY_TOOLS=checkouts of the tools)
	$(GO) test -count 1 -timeout 10m -tags e2e -v -run TestExamples $(TESTFLAGS) ./e2e/

.PHONY: e2e-upgrade
e2e-upgrade: build ## neutron-server of RELEASE=26 is upgraded to UPGRADE=28,29 under running agents and packets: none is lost, no flow is touched, and rules, ports and restarts work after each; prints a table (root)
	bin/lab release make $(subst $(comma), ,$(UPGRADE)) && $(OF_RELEASES) PATCHBAY_LAB_UPGRADE=$(UPGRADE) $(GO) test -count 1 -timeout 16m -tags e2e -v -run TestUpgrade $(TESTFLAGS) ./e2e/

.PHONY: e2e-migrate
e2e-migrate: build ## live migrations between two hosts, with the Python agent of RELEASE=29 and with Patchbay in one run: for how long a peer on each host has no answer; prints a table (root; BROKER=suite, SWITCH=suite)
	$(OF_RELEASES) $(GO) test -count 1 -timeout 14m -tags e2e -v -run TestMigrate $(TESTFLAGS) ./e2e/

# The older Patchbay of the region is this commit under another version, or OLD=FILE.
.PHONY: e2e-fleet
e2e-fleet: build ## six hosts with ssh servers, Python agents and two versions of Patchbay, are switched with `patchbay fleet` under packets: a canary goes back by itself, then all; prints the terminal (root; OLD=older binary, TESTFLAGS=-update writes the recording into docs)
	$(if $(OLD),cp $(OLD) bin/patchbay-old,$(GO) build -trimpath -ldflags '-s -w -X main.version=0.9.0' -o bin/patchbay-old ./cmd/patchbay)
	$(GO) test -count 1 -timeout 14m -tags e2e -v -run TestFleet $(TESTFLAGS) ./e2e/
