// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	netnsDir = "/run/netns"
	// commandTimeout bounds every short command; on an idle machine they take milliseconds.
	commandTimeout = 60 * time.Second
	// maxHosts is how many addresses are set aside for hosts.
	maxHosts = 200
)

// Bridges of the fabric namespace, which joins the hosts. Its links are named after the first letter and the host's number.
const (
	bridgeMgmt  = "mgmt"  // hosts, broker and server
	bridgeUnder = "under" // tunnels
	bridgeExt   = "ext"   // the physical network physnet1, tagged frames included
)

// run runs a short command, feeding it input, and returns what it printed.
func run(ctx context.Context, input string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		said := strings.TrimSpace(errOut.String())
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// batch runs lines of ip(8) commands in a namespace; empty means the root namespace.
func batch(ctx context.Context, netns string, lines ...string) error {
	args := []string{"-batch", "-"}
	if netns != "" {
		args = append([]string{"-n", netns}, args...)
	}
	_, err := run(ctx, strings.Join(lines, "\n")+"\n", "ip", args...)
	return err
}

// links lists the names of the links in a namespace.
func links(ctx context.Context, netns string) ([]string, error) {
	args := []string{"-json", "link", "show"}
	if netns != "" {
		args = append([]string{"-n", netns}, args...)
	}
	out, err := run(ctx, "", "ip", args...)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		Name string `json:"ifname"`
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return nil, fmt.Errorf("reading the links of %q: %w", netns, err)
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	return names, nil
}

// isNetns tells whether a namespace of that name exists, and whether a file of that name does: the second without the first
// is what a reboot leaves where /run is on disk.
func isNetns(name string) (live, file bool) {
	var fs syscall.Statfs_t
	err := syscall.Statfs(filepath.Join(netnsDir, name), &fs)
	const nsfs = 0x6e736673
	return err == nil && fs.Type == nsfs, err == nil
}

// alias is how the lab marks its links, the loopback link of each namespace included: so they can be told from others' even
// when the lab's directory has been removed.
func (l *Lab) alias() string { return "patchbay-lab:" + l.dir }

// ensureNetns makes a namespace of the lab unless it is there.
func (l *Lab) ensureNetns(ctx context.Context, name string) error {
	live, file := isNetns(name)
	known := slices.Contains(l.snapshot().Namespaces, name)
	if live && known {
		return nil
	}
	if live && !l.tagged(ctx, name) {
		return fmt.Errorf("the network namespace %s exists and is not this lab's; remove it with: ip netns del %s", name, name)
	}
	if err := l.update(func(s *state) error { s.addNamespace(name); return nil }); err != nil {
		return err
	}
	if file && !live {
		_ = os.Remove(filepath.Join(netnsDir, name))
	}
	if !live {
		if _, err := run(ctx, "", "ip", "netns", "add", name); err != nil {
			return err
		}
	}
	return batch(ctx, name, "link set dev lo up alias "+l.alias())
}

// tagged tells whether a namespace carries the mark of this lab.
func (l *Lab) tagged(ctx context.Context, name string) bool {
	out, err := run(ctx, "", "ip", "-n", name, "-json", "link", "show", "dev", "lo")
	return err == nil && strings.Contains(out, `"`+l.alias()+`"`)
}

// deleteNetns removes a namespace and, with it, its links.
func (l *Lab) deleteNetns(ctx context.Context, name string) error {
	if live, file := isNetns(name); live {
		if _, err := run(ctx, "", "ip", "netns", "del", name); err != nil {
			return err
		}
	} else if file {
		if err := os.Remove(filepath.Join(netnsDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing a stale namespace: %w", err)
		}
	}
	return nil
}

// fabricName is the namespace that joins the hosts.
func (l *Lab) fabricName() string { return l.snapshot().Prefix + "fabric" }

// brokerAddr is the lab's address in the root namespace, where hosts reach the broker.
func (l *Lab) brokerAddr() string { return l.snapshot().Range + ".0.1" }

// ensureFabric makes the fabric and the one link that joins the root namespace to its management bridge.
func (l *Lab) ensureFabric(ctx context.Context) (string, error) {
	fabric := l.fabricName()
	if err := l.ensureNetns(ctx, fabric); err != nil {
		return "", err
	}
	have, err := links(ctx, fabric)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, b := range []string{bridgeMgmt, bridgeUnder, bridgeExt} {
		if !slices.Contains(have, b) {
			lines = append(lines, "link add "+b+" type bridge forward_delay 0 mcast_snooping 0")
		}
		lines = append(lines, "link set dev "+b+" mtu 1600 up")
	}
	if err := batch(ctx, fabric, lines...); err != nil {
		return "", err
	}
	if !slices.Contains(have, "root") {
		// The range was free when it was chosen, but that may have been before a crash.
		taken, err := takenPrefixes()
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(taken, netip.MustParsePrefix(l.brokerAddr()+"/16").Masked().Overlaps) {
			return "", fmt.Errorf("somebody else has come to use %s.0.0/16; down and up choose another range", l.snapshot().Range)
		}
		if err := batch(ctx, "", "link add "+l.link+" type veth peer name root netns "+fabric); err != nil {
			return "", err
		}
	}
	if err := batch(ctx, "", "link set dev "+l.link+" up alias "+l.alias(),
		"address replace "+l.brokerAddr()+"/24 dev "+l.link); err != nil {
		return "", err
	}
	if err := batch(ctx, fabric, "link set dev root master "+bridgeMgmt+" up"); err != nil {
		return "", err
	}
	return fmt.Sprintf("namespace %s, %s on %s", fabric, l.brokerAddr(), l.link), nil
}

// wire joins a host's namespace to the fabric.
func (l *Lab) wire(ctx context.Context, h *Host) error {
	have, err := links(ctx, h.netns)
	if err != nil {
		return err
	}
	n := strconv.Itoa(h.number)
	var add, fabric []string
	for _, v := range []struct{ inside, bridge string }{
		{"mgmt0", bridgeMgmt}, {"under0", bridgeUnder}, {"ext0", bridgeExt},
	} {
		peer := v.bridge[:1] + n
		if !slices.Contains(have, v.inside) {
			add = append(add, "link add "+v.inside+" netns "+h.netns+" type veth peer name "+peer+" netns "+l.fabricName())
		}
		fabric = append(fabric, "link set dev "+peer+" mtu 1600 master "+v.bridge+" up")
	}
	if len(add) > 0 {
		if err := batch(ctx, "", add...); err != nil {
			return err
		}
	}
	if err := batch(ctx, l.fabricName(), fabric...); err != nil {
		return err
	}
	if err := batch(ctx, h.netns,
		"link set dev mgmt0 up", "link set dev under0 mtu 1600 up", "link set dev ext0 mtu 1600 up",
		"address replace "+h.MgmtIP()+"/24 dev mgmt0"); err != nil {
		return err
	}
	// The userspace datapath reads frames whose checksum nobody has filled in yet, and sends them on as they are.
	for _, dev := range []string{"under0", "ext0"} {
		if err := checksumsOff(ctx, h.netns, dev); err != nil {
			return err
		}
	}
	return nil
}

func checksumsOff(ctx context.Context, netns, dev string) error {
	_, err := run(ctx, "", "ip", "netns", "exec", netns, "ethtool", "-K", dev, "tx", "off")
	return err
}

// ranges is how many labs there are addresses for.
const ranges = 12

// rangeName is the n-th /16 of those that labs choose from, which few others use.
func rangeName(n int) string { return fmt.Sprintf("10.%d", 251-n) }

// pickRange finds the first range that overlaps nothing the root namespace has an address in or a route to.
func pickRange(taken []netip.Prefix) (int, error) {
	for n := range ranges {
		if !slices.ContainsFunc(taken, netip.MustParsePrefix(rangeName(n)+".0.0/16").Overlaps) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("every range from %s.0.0/16 to %s.0.0/16 is in use on this machine", rangeName(ranges-1), rangeName(0))
}

// takenPrefixes lists what the root namespace has addresses in and routes to, the default route excepted.
func takenPrefixes() ([]netip.Prefix, error) {
	text, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, fmt.Errorf("reading the routes: %w", err)
	}
	taken := parseRoutes(string(text))
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			taken = append(taken, p.Masked())
		}
	}
	return taken, nil
}

// parseRoutes reads /proc/net/route, in which addresses are hexadecimal in host byte order.
func parseRoutes(text string) []netip.Prefix {
	var routes []netip.Prefix
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 8 {
			continue
		}
		dst, err1 := hex.DecodeString(f[1])
		mask, err2 := hex.DecodeString(f[7])
		if err1 != nil || err2 != nil || len(dst) != 4 || len(mask) != 4 {
			continue
		}
		var d [4]byte
		binary.BigEndian.PutUint32(d[:], binary.LittleEndian.Uint32(dst))
		ones, _ := net.IPv4Mask(mask[3], mask[2], mask[1], mask[0]).Size()
		if ones > 0 {
			routes = append(routes, netip.PrefixFrom(netip.AddrFrom4(d), ones).Masked())
		}
	}
	return routes
}

// pickPort finds a port that nobody listens on: start, or one that no other lab starts from.
func pickPort(start int) (int, error) {
	for p := start; p < start+20*ranges; p += ranges {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err == nil {
			_ = l.Close()
			return p, nil
		}
	}
	return 0, fmt.Errorf("ports %d, %d and so on are all in use", start, start+ranges)
}
