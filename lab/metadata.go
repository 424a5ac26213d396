// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"path/filepath"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

const metadataAgentType = "Metadata agent"

func (h *Host) metadataDir() string { return filepath.Join(h.Dir(), "metadata") }

func (h *Host) metadata() *daemon.Daemon { return daemon.Open("metadata", h.metadataDir()) }

func (h *Host) metadataSocket() string {
	return "metadata_proxy_socket = " + filepath.Join(h.metadataDir(), "proxy.sock")
}

// StartMetadata starts Debian's metadata agent on the host, which asks Nova at the address and port given, and returns once the server has heard from it.
func (h *Host) StartMetadata(ctx context.Context, nova, port string) error {
	dir := h.metadataDir()
	neutron, metadata := serviceConfig(h.name, dir, "metadata.ini", h.lab.TransportURL(),
		h.metadataSocket(), "nova_metadata_host = "+nova, "nova_metadata_port = "+port, "metadata_proxy_shared_secret = secret")
	return h.startService(ctx, service{"metadata", "neutron-metadata-agent", metadataAgentType, "metadata.ini"}, dir, map[string]string{"neutron.conf": neutron, "metadata.ini": metadata})
}

// MetadataOptions are those with which a DHCP agent has a haproxy for each of its networks, in front of the metadata agent of the host.
func (h *Host) MetadataOptions() []string {
	return []string{"enable_isolated_metadata = true", "force_metadata = true", h.metadataSocket()}
}

// StopMetadata ends the metadata agent.
func (h *Host) StopMetadata(ctx context.Context) error { return h.metadata().Stop(ctx, h.lab.grace()) }
