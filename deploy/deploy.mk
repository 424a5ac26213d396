NFPM_VERSION := v2.43.0
NFPM := $(GOBIN_DIR)/nfpm-$(NFPM_VERSION)

# Where packages are made, from which version, and as of when: all three may be given, so that the same commit gives the
# same bytes anywhere.
DIST ?= bin/dist
PKG_VERSION ?= $(shell deploy/version)
PKG_ARCH ?= $(shell $(GO) env GOARCH)
# A binary that runs here, whatever the packages are for.
PKG_RUN = $(if $(filter $(PKG_ARCH),$(shell $(GO) env GOHOSTARCH)),$(DIST)/patchbay,$(GO) run ./cmd/patchbay)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

$(NFPM):
	CGO_ENABLED=0 GOBIN=$(GOBIN_DIR)/nfpm.d $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv $(GOBIN_DIR)/nfpm.d/nfpm $@ && rmdir $(GOBIN_DIR)/nfpm.d

.PHONY: packages package-reproducible package-test package-boot-test release release-reproducible

packages: $(NFPM) ## deb and rpm of this commit with bill of materials, in bin/dist/
	@mkdir -p $(DIST) && rm -f $(DIST)/*.deb $(DIST)/*.rpm
	CGO_ENABLED=0 GOARCH=$(PKG_ARCH) $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(PKG_VERSION)' -o $(DIST)/patchbay ./cmd/patchbay
	$(GO) run ./deploy/sbom -version '$(PKG_VERSION)' -o $(DIST)/patchbay.cdx.json $(DIST)/patchbay
	$(GO) run ./deploy/sbom -notices -o $(DIST)/NOTICES $(DIST)/patchbay
	$(PKG_RUN) completion bash >$(DIST)/completion.bash
	$(PKG_RUN) completion zsh >$(DIST)/completion.zsh
	rm -rf $(DIST)/man && mkdir $(DIST)/man && $(PKG_RUN) man $(DIST)/man && gzip -9n $(DIST)/man/*.1
	@set -e; export DIST='$(DIST)' PKG_VERSION='$(PKG_VERSION)' PKG_ARCH='$(PKG_ARCH)' SOURCE_DATE_EPOCH='$(SOURCE_DATE_EPOCH)'; \
	for name in patchbay patchbay-openvswitch-agent; do for kind in deb rpm; do \
		$(NFPM) package --config deploy/package/$$name.yaml --packager $$kind --target $(DIST)/; \
	done; done
	@cd $(DIST) && sha256sum patchbay *.deb *.rpm patchbay.cdx.json | tee SHA256SUMS

package-reproducible: $(NFPM) ## the same commit, built in two directories, gives the same bytes
	deploy/test/reproducible

# RELEASE_KEY=FILE signs the checksums, RELEASE_DIR is where the files go.
release: $(NFPM) ## a release of this commit in bin/release/: binaries and packages for amd64 and arm64, sources, bills of materials, provenance, checksums
	RELEASE_DIR='$(RELEASE_DIR)' RELEASE_KEY='$(RELEASE_KEY)' GO='$(GO)' deploy/release/build

release-reproducible: $(NFPM) ## the release of the same commit, made from two clones and signed with a test key, has the same bytes (10 minutes)
	deploy/test/release

package-test: $(NFPM) ## install, upgrade and remove the packages in a clean Debian (root, apt)
	deploy/test/packages

package-boot-test: build $(NFPM) ## the same under a real systemd on a host of the lab, with VMs that ping (root, apt)
	deploy/test/boot
