// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/broker"
)

// same shows that the floor is one: that it leaves the flows, the row and the calls to the server that Patchbay makes of
// the same port, nothing less. Otherwise comparing times with it would mean nothing.
func (b *bench) same(t *testing.T) {
	p := b.fill(t, 1)[0]
	b.use(t, lab.Patchbay)
	want := b.traces(t, p)
	b.use(t, "")
	got := b.traces(t, p)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("only Patchbay: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("only the floor: %s", line)
		}
	}
	if !slices.Equal(got, want) && !t.Failed() {
		t.Errorf("the same lines, but not as often: Patchbay\n%s\nfloor\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	calls := 0
	for _, line := range want {
		if strings.HasPrefix(line, "call ") {
			calls++
		}
	}
	t.Logf("one port leaves %d lines of flows and rows, %d calls:\n%s", len(want)-calls, calls, strings.Join(want, "\n"))
	if calls < 3 || len(want)-calls < 7 {
		t.Error("that is less than a port needs: something was not seen")
	}
}

// traces is what plugging a port in and out leaves: flows, the port's row, and calls that name it.
func (b *bench) traces(t *testing.T, p ports.Port) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	published, err := b.lab.Broker().Trace(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	calls := make(chan []string)
	go func() {
		var all []string
		for m := range published {
			if c, ok := callAbout(m, p.ID); ok {
				all = append(all, c)
			}
		}
		calls <- all
	}()
	before := b.flows(t, 0)
	if err := b.host.PlugMany(t.Context(), []ports.Port{p}); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "ACTIVE", []ports.Port{p})
	time.Sleep(time.Second)
	name := b.vsctl(t, "--bare", "--columns=name", "find", "Interface", `external_ids:iface-id="`+p.ID+`"`)
	var number int
	if _, err := fmt.Sscan(b.vsctl(t, "get", "Interface", name, "ofport"), &number); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range b.flows(t, number) {
		if !slices.Contains(before, line) {
			lines = append(lines, line)
		}
	}
	lines = append(lines, "row "+strings.Join(strings.Fields(b.vsctl(t, "--bare", "--columns=tag,other_config", "list", "Port", name)), " "))
	b.unplug(t, []ports.Port{p})
	time.Sleep(time.Second)
	for _, line := range b.flows(t, number) {
		if !slices.Contains(before, line) {
			lines = append(lines, "left behind: "+line)
		}
	}
	cancel()
	lines = append(lines, <-calls...)
	slices.Sort(lines)
	return lines
}

func (b *bench) vsctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.host.Switch().Vsctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

var (
	cookie = regexp.MustCompile(`cookie=0x[0-9a-f]+, ?`)
	learnt = regexp.MustCompile(`(hard|idle)_timeout=`)
)

// flows is what both bridges have, without cookies and what is learnt from packets, and with a word for the port's number.
func (b *bench) flows(t *testing.T, number int) []string {
	t.Helper()
	var out []string
	from := regexp.MustCompile(fmt.Sprintf(`\bin_port=%d\b`, number))
	for _, bridge := range []string{"br-int", "br-tun"} {
		text, err := b.host.Flows(t.Context(), bridge)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(cookie.ReplaceAllString(line, ""))
			if line != "" && !learnt.MatchString(line) {
				out = append(out, bridge+" "+from.ReplaceAllString(line, "in_port=PORT"))
			}
		}
	}
	return out
}

// callAbout reads a published message as a call that names the port.
func callAbout(p broker.Published, id string) (string, bool) {
	var envelope struct {
		Message string `json:"oslo.message"`
	}
	var m struct {
		Method string         `json:"method"`
		Args   map[string]any `json:"args"`
		ReplyQ string         `json:"_reply_q"`
	}
	if !bytes.Contains(p.Body, []byte(id)) || json.Unmarshal(p.Body, &envelope) != nil || json.Unmarshal([]byte(envelope.Message), &m) != nil || m.ReplyQ == "" {
		return "", false
	}
	args, _ := json.Marshal(m.Args) // of what was just decoded: it cannot fail; its keys are sorted
	return "call " + m.Method + " " + string(args), true
}
