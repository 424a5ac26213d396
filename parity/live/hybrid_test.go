// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/parity"
)

// hybridScenarios are those of the firewall, with VMs behind Linux bridges. Those that are not recorded yet are played only with RECORD.
func hybridScenarios() []*scenario {
	var list []*scenario
	for _, of := range [][]*scenario{ruleScenarios(), remoteScenarios(), firewallScenarios()} {
		for _, s := range of {
			if s.config != firewall {
				continue
			}
			s.name, s.config = "hybrid-"+strings.TrimPrefix(s.name, "fw-"), hybrid
			s.doc = "With iptables_hybrid, VMs behind Linux bridges. " + s.doc
			if _, err := os.Stat(filepath.Join(testdata(), s.name+".txtar")); err != nil && os.Getenv("RECORD") == "" {
				continue
			}
			list = append(list, s)
		}
	}
	return list
}

// bridged tells whether a port is plugged in through a Linux bridge.
func (t *thing) bridged() bool { return strings.HasPrefix(t.tap, "qvo") }

// device is the interface of a port that is in the switch. Agents of Neutron's own plug in their ports without a Linux bridge.
func (p *play) device(id string, body attrs) string {
	if p.scenario.config.hybrid && !strings.HasPrefix(fmt.Sprint(body["device_owner"]), "network:") {
		return "qvo" + id[:11]
	}
	return tapName(id)
}

// link makes the Linux bridge of a port, unlink takes it away if it is there.
func (h *host) link(ctx context.Context, t *thing) error {
	if h.linked[t.id] {
		return nil
	}
	h.linked[t.id] = true
	return h.MakeLinuxBridges(ctx, t.id)
}

func (h *host) unlink(ctx context.Context, t *thing) error {
	if !h.linked[t.id] {
		return nil
	}
	delete(h.linked, t.id)
	return h.DeleteLinuxBridges(ctx, t.id)
}

// Run runs a program on the host, for [iptables.Host].
func (h *host) Run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := h.Command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w", name, h.Name(), err)
	}
	return string(out), nil
}

// ruleLines are the rules, the IP sets, and the sysctls by which bridges ask the rules.
func (h *host) ruleLines(ctx context.Context, n *parity.Names) ([]string, error) {
	reader := iptables.Host{Runner: h}
	state, err := reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	lines := n.Rules(&state)
	out, err := h.Run(ctx, "", "sysctl", "net.bridge.bridge-nf-call-arptables", "net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		lines = append(lines, "sysctl "+strings.ReplaceAll(strings.TrimSpace(line), " = ", "="))
	}
	return lines, nil
}

// resetRules takes all rules and sets away.
func (h *host) resetRules(ctx context.Context) error {
	const all = `for c in iptables ip6tables; do for t in filter raw nat; do $c -t $t -F && $c -t $t -X || exit 1; done; done; ipset destroy`
	_, err := h.Run(ctx, "", "sh", "-c", all)
	return err
}
