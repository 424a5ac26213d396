// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDNSForwarder: addresses have ports, and a wrong one stops the start, with the extension alone.
func TestDNSForwarder(t *testing.T) {
	o := loadText(t, "[agent]\nextensions = dns_forwarder\n[dns_forwarder]\nupstream_dns_server_ports = 192.0.2.53:53,[2001:db8::53]:5353,192.0.2.53:53\nupstream_dns_query_timeout = 3\n")
	up, err := o.DNSForwarder.Resolvers()
	local, bad := o.DNSForwarder.Local()
	if err != nil || bad != nil || fmt.Sprint(up) != "[192.0.2.53:53 [2001:db8::53]:5353]" || fmt.Sprint(local) != "[169.254.169.254:53 [fd00::254]:53]" || o.DNSForwarder.UpstreamTimeout != 3*time.Second {
		t.Errorf("%v, %v, %v, %v, %s", up, err, local, bad, o.DNSForwarder.UpstreamTimeout)
	}
	for _, text := range []string{"192.0.2.53", "192.0.2.53:0", "resolver:53", "2001:db8::53:53", "[fe80::1%eth0]:53", "[::ffff:192.0.2.1]:53"} {
		for _, option := range []string{"upstream_dns_server_ports", "client_dns_server_ports"} {
			for extension, stops := range map[string]bool{"dns_forwarder": true, "qos": false} {
				_, err := Load([]string{"--config-file", write(t, "a.conf", "[agent]\nextensions = "+extension+"\n[dns_forwarder]\n"+option+" = "+text+"\n"), "--config-dir", t.TempDir()}, nil)
				if stops != (err != nil) || stops && !strings.Contains(err.Error(), option) {
					t.Errorf("%s = %s with %s: %v", option, text, extension, err)
				}
			}
		}
	}
	for _, text := range []string{"", "224.0.0.1:53", "0.0.0.0:53", "127.0.0.1:53", "255.255.255.255:53", "[ff02::1]:53"} {
		if _, err := Load([]string{"--config-file", write(t, "a.conf", "[agent]\nextensions = dns_forwarder\n[dns_forwarder]\nclient_dns_server_ports = "+text+"\n"), "--config-dir", t.TempDir()}, nil); err == nil {
			t.Errorf("guests ask %q", text)
		}
	}
	o = loadText(t, "[agent]\nextensions = dns_forwarder\n[securitygroup]\nenable_security_group = false\n")
	if advice := o.Advice(); len(advice) != 1 || !strings.Contains(advice[0].Sentence, "answers nobody") {
		t.Errorf("without resolvers: %v", advice)
	}
}
