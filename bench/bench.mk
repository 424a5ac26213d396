# Included by the Makefile.
.PHONY: bench-wiring

bench-wiring: build ## wiring beside the Python agent and the floor, in one run, as one table (root)
	@$(GO) test -count 1 -timeout 60m -tags bench -run TestWiring $(TESTFLAGS) -v ./bench/
