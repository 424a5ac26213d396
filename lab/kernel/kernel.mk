.PHONY: kernel-smoke
kernel-smoke: build ## two hosts on the kernel datapath in one emulated machine: groups, revoked connections, restarts (root)
	$(GO) build -trimpath -o bin/kernel-guest ./lab/kernel/guest
	$(GO) build -trimpath -o bin/kernel-smoke ./lab/kernel/smoke
	bin/kernel-smoke
