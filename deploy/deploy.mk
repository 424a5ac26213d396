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

.PHONY: packages package-files install package-reproducible package-test package-source-test package-boot-test package-upgrade-test how-to release release-reproducible

# What is made of the sources, for the packages here and for those of distributions (deploy/debian, deploy/rpm).
package-files:
	@mkdir -p $(DIST)
	CGO_ENABLED=0 GOARCH=$(PKG_ARCH) $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(PKG_VERSION)' -o $(DIST)/patchbay ./cmd/patchbay
	$(GO) run ./deploy/sbom -version '$(PKG_VERSION)' -o $(DIST)/patchbay.cdx.json $(DIST)/patchbay
	$(GO) run ./deploy/sbom -notices -o $(DIST)/NOTICES $(DIST)/patchbay
	$(PKG_RUN) completion bash >$(DIST)/completion.bash
	$(PKG_RUN) completion zsh >$(DIST)/completion.zsh
	rm -rf $(DIST)/man && mkdir $(DIST)/man && $(PKG_RUN) man $(DIST)/man && gzip -9n $(DIST)/man/*.1

packages: $(NFPM) package-files ## deb and rpm of this commit with bill of materials, in bin/dist/
	@rm -f $(DIST)/*.deb $(DIST)/*.rpm
	@set -e; export DIST='$(DIST)' PKG_VERSION='$(PKG_VERSION)' PKG_ARCH='$(PKG_ARCH)' SOURCE_DATE_EPOCH='$(SOURCE_DATE_EPOCH)'; \
	for name in patchbay patchbay-openvswitch-agent; do for kind in deb rpm; do \
		$(NFPM) package --config deploy/package/$$name.yaml --packager $$kind --target $(DIST)/; \
	done; done
	@cd $(DIST) && sha256sum patchbay *.deb *.rpm patchbay.cdx.json | tee SHA256SUMS

# Where distributions keep completions of zsh; Debian has another place.
ZSH_DIR ?= /usr/share/zsh/site-functions
TO = $(DESTDIR)/usr
UNITS = $(TO)/lib/systemd/system
DOC = $(TO)/share/doc/patchbay
install: ## the files of both packages into DESTDIR, for those who make packages; make package-files first, with the same DIST and PKG_VERSION
	install -D -m 755 $(DIST)/patchbay $(TO)/bin/patchbay
	install -D -m 755 deploy/package/agent-args $(TO)/lib/patchbay/agent-args
	ln -sfn ../../bin/patchbay $(TO)/lib/patchbay/neutron-openvswitch-agent
	install -D -m 644 $(DIST)/completion.bash $(TO)/share/bash-completion/completions/patchbay
	install -D -m 644 $(DIST)/completion.zsh $(DESTDIR)$(ZSH_DIR)/_patchbay
	install -d $(TO)/share/man/man1 $(DOC)/examples && install -m 644 $(DIST)/man/*.1.gz $(TO)/share/man/man1/
	install -m 644 $(DIST)/NOTICES $(DIST)/patchbay.cdx.json $(DOC)/
	for d in how-to reference explanation; do install -d $(DOC)/$$d && install -m 644 docs/$$d/*.md $(DOC)/$$d/ || exit 1; done
	install -m 644 deploy/systemd/wait.conf deploy/systemd/hybrid.conf deploy/systemd/metadata.conf deploy/systemd/group.conf deploy/systemd/admin-group.conf deploy/monitoring/alerts.yaml deploy/monitoring/dashboard.json $(DOC)/examples/
	install -D -m 644 deploy/systemd/50-patchbay.conf $(UNITS)/neutron-openvswitch-agent.service.d/50-patchbay.conf
	install -m 644 deploy/systemd/patchbay-controller.socket deploy/systemd/patchbay-controller.service $(UNITS)/
	install -d $(UNITS)/sockets.target.wants && ln -sfn ../patchbay-controller.socket $(UNITS)/sockets.target.wants/patchbay-controller.socket

package-reproducible: $(NFPM) ## the same commit, built in two directories, gives the same bytes
	deploy/test/reproducible

# RELEASE_KEY=FILE signs the checksums, RELEASE_DIR is where the files go.
release: $(NFPM) ## a release of this commit in bin/release/: binaries and packages for amd64 and arm64, sources, bills of materials, provenance, checksums
	RELEASE_DIR='$(RELEASE_DIR)' RELEASE_KEY='$(RELEASE_KEY)' GO='$(GO)' deploy/release/build

release-reproducible: $(NFPM) ## the release of the same commit, made from two clones and signed with a test key, has the same bytes (10 minutes)
	deploy/test/release

package-test: $(NFPM) ## install, upgrade and remove the packages in a clean Debian (root, apt)
	deploy/test/packages

package-source-test: $(NFPM) ## source packages of Debian and rpm, built with the distributions' own tools: their binary packages have the files, modes and scripts of ours (debhelper, rpm)
	deploy/test/source-packages

package-upgrade-test: build $(NFPM) ## from the packages of commit 90d824e to those of this tree and back, on a host of the lab with VMs that ping (root, apt)
	deploy/test/upgrade

# PAGES=install follows one page.
PAGES ?=
how-to: build $(NFPM) ## pages of docs/how-to, followed to the letter on hosts of the lab, with the time of each (root, apt; PAGES=install)
	deploy/test/how-to $(PAGES)

package-boot-test: build $(NFPM) ## the same under a real systemd on a host of the lab, with VMs that ping (root, apt)
	deploy/test/boot
