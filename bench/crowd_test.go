// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/fleet"
	"github.com/patchbay-sdn/patchbay/lab/floor"
)

const (
	// crowdSpan is how many hosts share a network.
	crowdSpan = 10
	// crowdTime bounds how long all ports of the crowd take.
	crowdTime = 20 * time.Minute
	// crowdReport is how many ports a report names that is alone.
	crowdReport = 20
)

// TestCrowd has the agents of many hosts, each over a switch in memory, wire all their ports at once on neutron-server with two workers: PATCHBAY_CROWD_AGENTS (100) with
// PATCHBAY_CROWD_PORTS (2). In between bare calls do the same: each host asks what an agent asks, once, and reports its ports, one report at a time. Then ports of one network come and
// go at random, PATCHBAY_CROWD_STORMS times (200), and after each time every host must reach the ports of the others, and no more. `make bench-crowd` runs it.
func TestCrowd(t *testing.T) {
	t.Setenv(lab.EnvWorkers, "2")
	began, load := time.Now(), loadAverage()
	c := newCrowd(t, number("PATCHBAY_CROWD_AGENTS", 100), number("PATCHBAY_CROWD_PORTS", 2))
	t.Logf("%d agents with %d ports are ready after %s", len(c.hosts), len(c.all), time.Since(began).Round(time.Second))
	before, asked := c.crowd.Calls() // by which the agents found out the server's release
	var agents []time.Duration
	var bare, first time.Duration
	for _, plug := range []func(*testing.T) (first, all time.Duration){c.plugAll, c.reportAll, c.plugAll} {
		f, all := plug(t)
		if bare == 0 && len(agents) == 1 {
			bare = all
			continue
		}
		agents, first = append(agents, all), max(first, f)
	}
	failed := 0
	calls, unanswered := c.crowd.Calls()
	for _, method := range slices.Sorted(maps.Keys(calls)) {
		n := unanswered[method] - asked[method]
		t.Logf("%d calls of %s, %d of them failed", calls[method]-before[method], method, n)
		failed += n
	}
	t.Logf("the API told %d changes of which there was no news within ten quiet seconds", c.watch.Asked())
	ratio := (agents[0] + agents[1]).Seconds() / 2 / bare.Seconds()
	fmt.Printf("crowd: %d agents, %d ports: first ACTIVE after %.1f s, all after %.1f s and %.1f s; one report at a time, bare: %.1f s; %.2f times; %d calls failed; load %s, %s\n",
		len(c.hosts), len(c.all), first.Seconds(), agents[0].Seconds(), agents[1].Seconds(), bare.Seconds(), ratio, failed, load, loadAverage())
	c.storms(t, number("PATCHBAY_CROWD_STORMS", 200))
	fmt.Printf("crowd: took %s\n", time.Since(began).Round(time.Second))
}

// crowd is hosts with ports that are not plugged in.
type crowd struct {
	crowd *fleet.Crowd
	lab   *lab.Lab
	watch *floor.Watch
	hosts [][]ports.Port
	all   []string // ids
}

func newCrowd(t *testing.T, agents, each int) *crowd {
	t.Helper()
	ctx := t.Context()
	c := &crowd{lab: lab.New(t, 1)}
	var err error
	if c.watch, err = floor.NewWatch(ctx, c.lab); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.watch.Close)
	if c.crowd, err = fleet.NewCrowd(context.Background(), c.lab.TransportURL(), agents); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.crowd.Close(context.Background()) })
	c.settle(t)
	var net lab.Network
	for host := range agents {
		if host%crowdSpan == 0 {
			n := host / crowdSpan
			if net, err = c.lab.CreateNetwork(ctx, lab.Network{Name: fmt.Sprintf("crowd-%d", n), CIDR: fmt.Sprintf("10.%d.%d.0/24", 100+n/250, n%250)}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := c.lab.CreatePorts(ctx, nil, lab.Port{NetworkID: net.ID, Extra: map[string]any{"binding:host_id": c.crowd.Name(host)}}, each)
		if err != nil {
			t.Fatal(err)
		}
		c.hosts = append(c.hosts, list)
		for _, p := range list {
			c.all = append(c.all, p.ID)
		}
	}
	return c
}

// settle waits until all agents are in sync.
func (c *crowd) settle(t *testing.T) {
	t.Helper()
	why := ""
	for end := time.Now().Add(crowdTime); time.Now().Before(end); time.Sleep(time.Second) {
		var n int
		if n, why = c.crowd.InSync(t.Context()); why == "" && n > 0 {
			return
		}
	}
	t.Fatalf("not in sync: %s", why)
}

func (c *crowd) wait(t *testing.T, status string, ids []string) (first, last time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), crowdTime)
	defer cancel()
	first, last, err := c.watch.Wait(ctx, status, ids...)
	if err != nil {
		t.Fatal(err)
	}
	return first, last
}

// plugAll has the agents wire all ports, looks whether they reach each other, and plugs them out again.
func (c *crowd) plugAll(t *testing.T) (first, all time.Duration) {
	t.Helper()
	began := time.Now()
	for host, list := range c.hosts {
		for _, p := range list {
			c.crowd.Plug(host, p.ID, p.MACAddress)
		}
	}
	one, last := c.wait(t, "ACTIVE", c.all)
	c.settle(t)
	t.Logf("agents: first ACTIVE after %v, all after %v, in sync after %v", one.Sub(began), last.Sub(began), time.Since(began))
	for host := range c.hosts {
		c.reaches(t, host, func(int, int) bool { return true })
	}
	for host, list := range c.hosts {
		for _, p := range list {
			c.crowd.Unplug(host, p.ID)
		}
	}
	c.wait(t, "DOWN", c.all)
	c.settle(t)
	return one.Sub(began), last.Sub(began)
}

// reportAll has bare calls do what agents do: each host asks about its ports, their security group and its members, and reports the ports, one report at a time.
func (c *crowd) reportAll(t *testing.T) (first, all time.Duration) {
	t.Helper()
	client, err := floor.Open(c.lab, "crowd")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.Background()) }()
	_, versions, err := neutron.Negotiate(t.Context(), neutron.NewServer(client, "crowd"))
	if err != nil {
		t.Fatal(err)
	}
	var late atomic.Int64
	call := func(make func() error) {
		var err error
		for range 5 { // an agent repeats, too, what is not answered in time
			if err = make(); err == nil {
				return
			}
			late.Add(1)
		}
		t.Error(err)
	}
	each := func(up bool) {
		var hosts sync.WaitGroup
		for host, list := range c.hosts {
			hosts.Go(func() {
				server := neutron.NewServer(client, c.crowd.Name(host))
				pull := func(kind neutron.Kind, filter map[string]any) {
					call(func() error { _, err := server.BulkPull(t.Context(), versions, kind, filter); return err })
				}
				for part := range slices.Chunk(list, crowdReport) {
					var ids []string
					for _, p := range part {
						ids = append(ids, p.ID)
					}
					u := neutron.DeviceUpdate{Down: ids}
					if up {
						u = neutron.DeviceUpdate{Up: ids}
						pull(neutron.KindPort, map[string]any{"id": ids})
						pull(neutron.KindSecurityGroup, map[string]any{"id": part[0].SecurityGroups})
						pull(neutron.KindPort, map[string]any{"security_group_ids": part[0].SecurityGroups})
					}
					call(func() error { _, err := server.UpdateDevices(t.Context(), u); return err })
				}
			})
		}
		hosts.Wait()
	}
	began := time.Now()
	each(true)
	one, last := c.wait(t, "ACTIVE", c.all)
	t.Logf("bare: first ACTIVE after %v, all after %v, %d calls failed", one.Sub(began), last.Sub(began), late.Load())
	each(false)
	c.wait(t, "DOWN", c.all)
	return one.Sub(began), last.Sub(began)
}

// reaches looks whether a host with ports reaches those of the others of its network that are plugged in, and no more.
func (c *crowd) reaches(t *testing.T, host int, plugged func(host, port int) bool) bool {
	t.Helper()
	var want []string
	own := 0
	for other := host / crowdSpan * crowdSpan; other < min(len(c.hosts), host/crowdSpan*crowdSpan+crowdSpan); other++ {
		for i, p := range c.hosts[other] {
			switch {
			case !plugged(other, i):
			case other == host:
				own++
			default:
				want = append(want, p.MACAddress)
			}
		}
	}
	if own == 0 {
		want = nil
	}
	slices.Sort(want)
	var got []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = c.crowd.Reached(host); slices.Equal(got, want) {
			return true
		}
	}
	t.Errorf("%s reaches %v, not %v", c.crowd.Name(host), got, want)
	return false
}

// storms plugs ports of the first network in and out at random.
func (c *crowd) storms(t *testing.T, times int) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	hosts := min(crowdSpan, len(c.hosts))
	type place struct{ host, port int }
	in, wrong := map[place]bool{}, 0
	for n := range times {
		var up, down []string
		for host := range hosts {
			for i, p := range c.hosts[host] {
				at := place{host, i}
				switch now := random.IntN(2) == 0; {
				case now == in[at]:
				case now:
					c.crowd.Plug(host, p.ID, p.MACAddress)
					in[at], up = true, append(up, p.ID)
				default:
					c.crowd.Unplug(host, p.ID)
					in[at], down = false, append(down, p.ID)
				}
			}
		}
		c.wait(t, "ACTIVE", up)
		c.wait(t, "DOWN", down)
		right := true
		for host := range hosts {
			right = c.reaches(t, host, func(host, port int) bool { return in[place{host, port}] }) && right
		}
		if !right {
			wrong++
			t.Logf("storm %d: %d ports up, %d down", n, len(up), len(down))
		}
	}
	fmt.Printf("crowd: %d storms on %d hosts, %d ended with wrong forwarding entries; seed %d\n", times, hosts, wrong, seed)
}
