// SPDX-License-Identifier: Apache-2.0

package options

import "testing"

func TestFirewallByAnyOfItsNames(t *testing.T) {
	for name, want := range map[string]string{
		"": FirewallNone, "noop": FirewallNone, "neutron.agent.firewall.NoopFirewallDriver": FirewallNone,
		"openvswitch": FirewallOpenVSwitch,
		"neutron.agent.linux.openvswitch_firewall.OVSFirewallDriver":          FirewallOpenVSwitch,
		"neutron.agent.linux.openvswitch_firewall.firewall.OVSFirewallDriver": FirewallOpenVSwitch,
		"iptables_hybrid": FirewallHybrid, "neutron.agent.linux.iptables_firewall.OVSHybridIptablesFirewallDriver": FirewallHybrid,
	} {
		o, err := Load([]string{"--config-file", write(t, "a.conf", "[securitygroup]\nfirewall_driver = "+name+"\n")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.SecurityGroup.Driver(); got != want || len(o.Unsupported()) > 0 {
			t.Errorf("%q is %q (%v), want %q", name, got, o.Unsupported(), want)
		}
		if !o.Patchbay.FailClosed {
			t.Error("open by default")
		}
	}
}

// The driver of another agent, and names that nobody knows, stop the start.
func TestFirewallThatIsMissing(t *testing.T) {
	for _, name := range []string{"iptables", "neutron.agent.linux.iptables_firewall.IptablesFirewallDriver", "ebtables"} {
		o, err := Load([]string{"--config-file", write(t, "a.conf", "[securitygroup]\nfirewall_driver = "+name+"\n")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.SecurityGroup.Driver() != "" || len(o.Unsupported()) != 1 {
			t.Errorf("%q is accepted", name)
		}
	}
}
