// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
)

// newFake returns a Remover whose switch answers as told: a text, or an error.
func newFake(t *testing.T, answer func(args []string) (string, error)) (Remover, *fake.Control) {
	t.Helper()
	dir := t.TempDir()
	f, err := fake.NewControl(dir, answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	r, err := New("netdev", dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, f
}

func line(host, zone int, mark string) string {
	return fmt.Sprintf("udp,orig=(src=10.0.%d.%d,dst=10.1.0.1,sport=7,dport=9),reply=(src=10.1.0.1,dst=10.0.0.1,sport=9,dport=7),zone=%d%s\n",
		host/256, host%256, zone, mark)
}

// removeMarked releases all that are marked, which in this datapath removes them.
func removeMarked(ctx context.Context, r Remover, zone uint16) (int, error) {
	list, err := r.Marked(ctx, zone)
	n, releaseErr := r.Release(ctx, zone, list)
	return n, errors.Join(err, releaseErr)
}

func TestRemoveMarked(t *testing.T) {
	var dump strings.Builder
	for i := range 1000 {
		dump.WriteString(line(i, 5, []string{"", ",mark=1", ",mark=2", ",mark=3"}[i%4]))
	}
	dump.WriteString(line(1001, 6, ",mark=1")) // a switch that does not look at the zone
	for _, c := range []struct {
		name  string
		named bool
	}{{"as OVS 3.1.0", false}, {"as others", true}} {
		t.Run(c.name, func(t *testing.T) {
			r, f := newFake(t, func(args []string) (string, error) {
				switch {
				case args[0] == commandDump:
					return dump.String(), nil
				case !c.named && args[1] == "netdev@ovs-netdev":
					return "", errors.New("field netdev@ovs-netdev missing value (Invalid argument)")
				case strings.Contains(args[len(args)-1], "10.0.0.5,"):
					return "", errors.New("failed to flush conntrack (No such file or directory)")
				}
				return "", nil
			})
			n, err := removeMarked(t.Context(), r, 5)
			if n != 499 || err != nil {
				t.Fatalf("removed %d, %v", n, err)
			}
			asked := f.Asked()
			asked = slices.Delete(asked, 1, 2) // the version
			if asked[0] != commandDump+" netdev@ovs-netdev zone=5" {
				t.Errorf("asked %s", asked[0])
			}
			want := commandFlush + " zone=5 ct_nw_src=10.0.0.7,ct_nw_dst=10.1.0.1,ct_nw_proto=17,ct_tp_src=7,ct_tp_dst=9"
			if c.named {
				want = strings.Replace(want, "zone", "netdev@ovs-netdev zone", 1)
			}
			if !slices.Contains(asked, want) {
				t.Errorf("never asked %s", want)
			}
			flushes := map[string]bool{}
			for _, a := range asked[1:] {
				flushes[strings.Replace(a, "netdev@ovs-netdev ", "", 1)] = true
			}
			if len(flushes) != 500 {
				t.Errorf("%d connections were flushed", len(flushes))
			}
		})
	}
}

func TestFlushZoneNamesNothingElse(t *testing.T) {
	r, f := newFake(t, func([]string) (string, error) { return "", nil })
	if err := r.FlushZone(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(); len(asked) != 1 || asked[0] != commandFlush+" netdev@ovs-netdev zone=9" {
		t.Fatalf("asked %q", asked)
	}
}

// A line that nobody understands is told about, after all others were dealt with.
func TestUnknownLine(t *testing.T) {
	r, f := newFake(t, func(args []string) (string, error) {
		if args[0] == commandDump {
			return line(1, 5, ",mark=1") + "gibberish\n" + line(2, 5, ",mark=1"), nil
		}
		return "", nil
	})
	n, err := removeMarked(t.Context(), r, 5)
	if n != 2 || err == nil || !strings.Contains(err.Error(), "gibberish") || len(f.Asked()) != 4 {
		t.Fatalf("removed %d, %v", n, err)
	}
}

func TestRefusals(t *testing.T) {
	r, _ := newFake(t, func([]string) (string, error) { return "", errors.New("datapath not found (Invalid argument)") })
	if n, err := removeMarked(t.Context(), r, 5); n != 0 || err == nil || !strings.Contains(err.Error(), "datapath not found") {
		t.Errorf("removed %d, %v", n, err)
	}
	if err := r.FlushZone(t.Context(), 5); err == nil || !strings.Contains(err.Error(), "datapath not found") {
		t.Errorf("flush: %v", err)
	}
	r, err := New("netdev", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.FlushZone(t.Context(), 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no switch: %v", err)
	}
	if _, err := New("other", ""); err == nil {
		t.Error("an unknown datapath was accepted")
	}
}

func TestSilentSwitch(t *testing.T) {
	quiet := make(chan struct{})
	r, _ := newFake(t, func([]string) (string, error) { <-quiet; return "", nil })
	defer close(quiet)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := removeMarked(ctx, r, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a switch that says nothing: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Asking for the wrong thing ends the switch, so this is worth a table.
func TestCanFlush(t *testing.T) {
	for text, want := range map[string]bool{
		"2.15.8": false, "2.17.9": false, "2.17.10": true, "3.0.6": false, "3.0.7": true, "3.1.0": false, "3.1.4": false, "3.1.5": true,
		"3.2.2": false, "3.2.3": true, "3.3.0": false, "3.3.1": true, "3.4.0": true, "3.5.0-1vendor": true, "4.0.0": true,
		"3": false, "3.4": false, "": false, "x.y.z": false,
	} {
		v := parseVersion("ovs-vswitchd (Open vSwitch) " + text)
		if got := canFlush(Connection{Protocol: protoICMPv6, ICMPType: 128}, v); got != want {
			t.Errorf("ICMPv6 with %s (%v): %v", text, v, got)
		}
		if !canFlush(Connection{Protocol: protoICMP, ICMPType: 8}, v) || !canFlush(Connection{Protocol: 6}, v) {
			t.Errorf("with %s other connections are spared too", text)
		}
	}
	if v := parseVersion("something 3.5.0"); v != [3]int{} {
		t.Errorf("version %v", v)
	}
	if canFlush(Connection{Protocol: protoICMPv6, ICMPType: 135}, [3]int{4, 0, 0}) || canFlush(Connection{Protocol: protoICMP, ICMPType: 3}, [3]int{4, 0, 0}) {
		t.Error("messages that begin no connection")
	}
}
