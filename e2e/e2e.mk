.PHONY: e2e
e2e: build ## real packets between VMs on three hosts, every network type, DHCP and isolation; prints a table (root)
	CGO_ENABLED=1 $(GO) test -race -count 1 -timeout 30m -tags e2e -v $(TESTFLAGS) ./e2e/
