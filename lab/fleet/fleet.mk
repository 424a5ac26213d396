# Included by the Makefile. Needs RabbitMQ, as `bin/lab install` installs it.
N ?= 200
RATE ?= 5
STORM ?=
FLEETFLAGS ?=
.PHONY: fleet
fleet: build ## N=200 agents, real code on one real RabbitMQ, with RATE=5 messages to all of them a second for a minute: costs, change to flow, and all flows compared in the end (STORM=broker, restart, server, group or boots: 10 s of changes and then the storm; FLEETFLAGS='--for 20s')
	@bin/lab fleet --n $(N) --rate $(RATE) --seed $(SEED) $(if $(STORM),--storms $(STORM) --idle 0 --for 10s) $(FLEETFLAGS)
