// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

const networkdBinary = "/lib/systemd/systemd-networkd"

// ownRun gives a client a /run of its own.
const ownRun = "mount -t tmpfs none /run && "

// dhcpcdConf asks for what udhcpc asks for. One server leases an address to one DUID and IAID only: all clients have that of the MAC.
const dhcpcdConf = `noipv6rs
noarp
timeout 15
ia_na
define 150 array ipaddress tftp_servers
option subnet_mask, broadcast_address, routers, classless_static_routes, ms_classless_static_routes, interface_mtu, ntp_servers
option domain_name_servers, domain_name, host_name, tftp_server_name, bootfile_name, tftp_servers, dhcp6_name_servers, dhcp6_domain_search
`

// dhcpcd asks with dhcpcd, and returns what it tells its script.
func (x *leased) dhcpcd(t *testing.T, v *lab.VM, version string) (map[string]string, error) {
	t.Helper()
	x.bare(t, v, "eth0")
	dir := t.TempDir()
	conf, hook, env := filepath.Join(dir, "conf"), filepath.Join(dir, "hook"), filepath.Join(dir, "env")
	identity := "clientid\n"
	if version == "-6" {
		identity = "duid ll\n"
	}
	for path, text := range map[string]string{conf: identity + dhcpcdConf, hook: "#!/bin/sh\ncase $reason in BOUND*) env > " + env + ";; esac\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(x.ctx, 30*time.Second)
	defer cancel()
	out, err := v.Command(ctx, "unshare", "--mount", "sh", "-c", ownRun+"mount -t tmpfs none /var/lib/dhcpcd && exec dhcpcd -B -1 "+version+" -f "+conf+" -c "+hook+" eth0").CombinedOutput()
	got := map[string]string{}
	for k, value := range values(env) {
		if name, ok := strings.CutPrefix(k, "new_"); ok {
			got[name] = value
		}
	}
	if len(got) == 0 {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return got, nil
}

// networkdConf has systemd-networkd ask for both addresses; no router tells it to.
const networkdConf = `[Match]
Name=eth0
[Network]
DHCP=yes
IPv6AcceptRA=no
[DHCPv4]
ClientIdentifier=mac
RequestOptions=26 66 67 150
[DHCPv6]
WithoutRA=solicit
DUIDType=link-layer
IAID=%d
`

// networkd asks with systemd-networkd, and returns its lease, the IPv6 address and the name servers of the link.
func (x *leased) networkd(t *testing.T, v *lab.VM) (map[string]string, error) {
	t.Helper()
	x.bare(t, v, "eth0")
	file, mac := filepath.Join(t.TempDir(), "eth0.network"), hw(v.MAC)
	if err := os.WriteFile(file, fmt.Appendf(nil, networkdConf, binary.BigEndian.Uint32(mac[2:])), 0o644); err != nil {
		t.Fatal(err)
	}
	// It waits for udev unless /sys is read-only.
	cmd := v.Command(x.ctx, "unshare", "--mount", "sh", "-c", "mount -o remount,ro /sys && "+ownRun+"mkdir -p /run/systemd/network /run/systemd/netif/leases /run/systemd/netif/links /run/systemd/netif/lldp && "+
		"cp "+file+" /run/systemd/network/ && chown -R systemd-network /run/systemd/netif && exec "+networkdBinary)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // not SIGTERM, at which it gives its lease back
	var got map[string]string
	if !x.eventually(25*time.Second, func() bool {
		got = values(fmt.Sprintf("/proc/%d/root/run/systemd/netif/leases/*", cmd.Process.Pid)) // the commands before it are replaced by it
		for k, value := range values(fmt.Sprintf("/proc/%d/root/run/systemd/netif/links/*", cmd.Process.Pid)) {
			if k == "DNS" || k == "NTP" || k == "DOMAINS" {
				got["link "+k] = value
			}
		}
		addresses, _ := v.Command(x.ctx, "ip", "-6", "-o", "address", "show", "dev", "eth0", "scope", "global").Output()
		if f := strings.Fields(string(addresses)); len(f) > 3 {
			got["ADDRESS6"] = f[3]
		}
		return got["ADDRESS"] != "" && got["ADDRESS6"] != ""
	}) {
		return nil, fmt.Errorf("it has %v: %s", got, out.String())
	}
	return got, nil
}

// values reads the lines key=value of files.
func values(pattern string) map[string]string {
	got := map[string]string{}
	names, _ := filepath.Glob(pattern)
	for _, name := range names {
		text, _ := os.ReadFile(name)
		for line := range strings.Lines(string(text)) {
			if k, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				got[k] = value
			}
		}
	}
	return got
}
