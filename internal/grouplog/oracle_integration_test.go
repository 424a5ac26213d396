// SPDX-License-Identifier: Apache-2.0

//go:build integration

package grouplog

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestBesideOsKen compares the text of headers with what os-ken prints, which the Python agent uses. It needs package python3-os-ken.
func TestBesideOsKen(t *testing.T) {
	var in strings.Builder
	for _, s := range samples() {
		fmt.Fprintln(&in, s.hex)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import sys\nfrom os_ken.lib.packet import packet\nfor l in sys.stdin: print(packet.Packet(bytes.fromhex(l)))")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, s := range samples() {
		theirs := lines[i]
		// What we leave out on purpose: what the packet carries, data of ICMP, options of IPv6.
		theirs = regexp.MustCompile(`, b'.*'$`).ReplaceAllString(theirs, "")
		theirs = regexp.MustCompile(`echo\(data=b'[^']*'`).ReplaceAllString(theirs, "echo(data=None")
		theirs = regexp.MustCompile(`hop_opts\(data=\[.*?\]`).ReplaceAllString(theirs, "hop_opts(data=None")
		theirs = regexp.MustCompile(`data=mldv2_report\(.*\),type_`).ReplaceAllString(theirs, "data=None,type_")
		if theirs != s.text {
			t.Errorf("%s: os-ken prints\n%s\nand Patchbay\n%s", s.name, theirs, s.text)
		}
	}
}
