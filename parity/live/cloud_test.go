// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

// hostCount is how many hosts the cloud has; a scenario may use fewer.
const hostCount = 3

// cloud is the lab with everything that watches it.
type cloud struct {
	lab     *lab.Lab
	hosts   []*host
	journal *journal
	done    func(*scenario, *result) // told of every result, unless nil
	// routerMACs are the addresses that distributed routers use, by host.
	routerMACs map[string]string
	// hybrid: the configuration that is played has rules of iptables.
	hybrid bool
}

func (c *cloud) finished(s *scenario, r *result) {
	if c.done != nil {
		c.done(s, r)
	}
}

// synced tells whether the agents of a configuration have asked for the other tunnel endpoints of every type, the last thing
// that they do when they start, and have got the answers.
func (c *cloud) synced(cfg *config) bool {
	want := 0
	for _, o := range cfg.overrides {
		if types, ok := strings.CutPrefix(o, "agent.tunnel_types="); ok && types != "" {
			want = cfg.hosts * len(strings.Split(types, ","))
		}
	}
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	asked := map[string]bool{}
	for _, x := range c.journal.calls {
		if x.method == "tunnel_sync" && x.result != nil {
			asked[x.host+string(x.args)] = true
		}
	}
	return len(asked) >= want
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{lab: lab.New(t, hostCount), journal: newJournal()}
	for _, h := range c.lab.Hosts() {
		c.journal.hosts[managementIP(h)] = h.Name()
	}
	ctx, cancel := context.WithCancel(context.Background())
	copies, err := c.lab.Broker().Trace(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	traced := make(chan struct{})
	go func() {
		defer close(traced)
		for p := range copies {
			c.journal.published(p)
		}
	}()
	if err := errors.Join(c.register(ctx), c.warmUp(ctx)); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() {
		cancel()
		<-traced
		for _, h := range c.hosts {
			<-h.done
		}
	})
	for _, h := range c.lab.Hosts() {
		w, err := watch(ctx, h, c.journal)
		if err != nil {
			t.Fatal(err)
		}
		c.hosts = append(c.hosts, w)
	}
	return c
}

// register tells the server of the tunnel endpoints of all hosts. It never forgets one, and agents that start at the same time
// may miss each other's: without this, the tunnels of a mesh would depend on chance and on what was played before.
func (c *cloud) register(ctx context.Context) error {
	client, err := c.rpc()
	if err != nil {
		return err
	}
	for _, h := range c.lab.Hosts() {
		for _, kind := range []string{"vxlan", "gre", "geneve"} {
			err = errors.Join(err, client.Call(ctx, messaging.Target{Topic: "q-plugin", Version: "1.4"}, "tunnel_sync",
				map[string]string{"tunnel_ip": h.LocalIP(), "tunnel_type": kind, "host": h.Name()}, nil))
		}
	}
	return errors.Join(err, c.registerRouters(ctx, client), client.Close(ctx))
}

// warmUp has the server make what it makes of itself with a project's first network: the default security group.
func (c *cloud) warmUp(ctx context.Context) error {
	var answer struct{ Network struct{ ID string } }
	err := c.api(ctx, http.MethodPost, "networks", attrs{"network": attrs{"name": "first", "tenant_id": lab.Project}}, &answer)
	if err != nil {
		return err
	}
	return c.api(ctx, http.MethodDelete, "networks/"+answer.Network.ID, nil, nil)
}

// rpc connects to the broker as agents and servers do.
func (c *cloud) rpc() (*messaging.Client, error) {
	url, err := messaging.ParseURL(c.lab.TransportURL())
	if err != nil {
		return nil, err
	}
	return messaging.Open(messaging.Config{
		URL: url, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "parity", Host: "parity",
		Context: func(context.Context) map[string]any {
			return map[string]any{"is_admin": true, "roles": []string{"admin"}}
		},
	})
}

// managementIP is the address from which the host's agent reaches the broker: the lab's networks differ in the third byte.
func managementIP(h *lab.Host) string {
	b := netip.MustParseAddr(h.LocalIP()).As4()
	b[2] = 0
	return netip.AddrFrom4(b).String()
}

// all runs something on several hosts at once.
func all(hosts []*host, do func(*host) error) error {
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() { errs[i] = do(h) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// start makes the switches new and starts the agents of a configuration.
func (c *cloud) start(ctx context.Context, kind lab.AgentKind, cfg *config) error {
	hosts := c.hosts[:cfg.hosts]
	c.hybrid = cfg.hybrid
	if err := all(c.hosts, func(h *host) error { return errors.Join(h.reset(ctx), h.resetRules(ctx)) }); err != nil {
		return err
	}
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name())
	}
	c.journal.drain()
	c.journal.setRunning(names)
	for _, h := range hosts {
		c.journal.changed(h.Name(), h.initial())
	}
	return all(hosts, func(h *host) error {
		h.forget()
		return h.StartAgent(ctx, kind, cfg.options(h.Name())...)
	})
}

func (c *cloud) stop(ctx context.Context) error {
	err := all(c.hosts, func(h *host) error { return h.StopAgent(ctx) })
	c.journal.setRunning(nil)
	return err
}

// quietTime is for how long nothing may have happened before a snapshot is taken. The Python agent looks every second.
func quietTime(kind lab.AgentKind) time.Duration {
	if kind == lab.Python {
		return 2500 * time.Millisecond
	}
	return 800 * time.Millisecond
}

// rulesEvery is how often rules of iptables are read: it takes several programs.
const rulesEvery = 500 * time.Millisecond

// settle waits until nothing happens any more on the hosts, a minute at most.
func (c *cloud) settle(ctx context.Context, kind lab.AgentKind, hosts []*host) error {
	deadline := time.Now().Add(time.Minute)
	var before uint64
	var rules []string
	var read time.Time
	for {
		sum := fnv.New64a()
		if c.hybrid && time.Since(read) > rulesEvery {
			rules, read = nil, time.Now()
			for _, h := range hosts {
				lines, err := h.ruleLines(ctx, parity.NewNames())
				if err != nil {
					return err
				}
				rules = append(rules, lines...)
			}
		}
		_, _ = sum.Write([]byte(strings.Join(rules, "\n")))
		for _, h := range hosts {
			for _, br := range h.bridges() {
				flows, err := h.flows(ctx, br)
				if err != nil {
					continue // it may be gone by now
				}
				for i := range flows {
					if flows[i].HardTimeout == 0 {
						_, _ = sum.Write(flows[i].AppendText(nil))
					}
				}
			}
		}
		if now := sum.Sum64(); now != before {
			before = now
			c.journal.touch()
		}
		if c.journal.calm() >= quietTime(kind) || time.Now().After(deadline) {
			return ctx.Err()
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// base is what is named on every host in every scenario.
func (c *cloud) base(n *parity.Names) {
	for _, h := range c.hosts {
		for ip, name := range map[string]string{h.LocalIP(): h.Name(), c.spareIP(): "spare"} {
			n.Text(ip, "ip-"+name)
			for id, tunnel := range tunnelNames(ip, name) {
				n.Text(id, tunnel)
			}
		}
		n.Text(c.routerMACs[h.Name()], "router-mac-"+h.Name())
	}
}

// spareIP is an address of the underlay that no host has.
func (c *cloud) spareIP() string {
	b := netip.MustParseAddr(c.hosts[0].LocalIP()).As4()
	b[3] = 99
	return netip.AddrFrom4(b).String()
}

// tunnelNames are the contract names of the tunnel ports to an address.
func tunnelNames(ip, peer string) map[string]string {
	names := map[string]string{}
	b := netip.MustParseAddr(ip).As4()
	for _, kind := range []string{"vxlan", "gre", "geneve"} {
		names[fmt.Sprintf("%s-%x", kind, b)] = kind + "-" + peer
	}
	return names
}

// recordedIP is what stands for an address of the underlay in recordings.
func recordedIP(ip string) string {
	b := netip.MustParseAddr(ip).As4()
	return fmt.Sprintf("198.51.100.%d", b[3])
}

// api sends one request to the Networking API; answer may be nil.
func (c *cloud) api(ctx context.Context, method, path string, body, answer any) error {
	api := c.lab.Neutron()
	opts := &gophercloud.RequestOpts{OkCodes: []int{200, 201, 204}}
	if body != nil {
		opts.JSONBody = body
	}
	if answer != nil {
		opts.JSONResponse = answer
	}
	resp, err := api.Request(ctx, method, api.ResourceBase+path, opts)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// attrs are attributes of a resource of the API.
type attrs map[string]any

// portLines says what the API shows of the ports of a scenario.
func (c *cloud) portLines(ctx context.Context, ids map[string]string) (lines []string, status map[string]string, err error) {
	var answer struct {
		Ports []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
			Admin  bool   `json:"admin_state_up"`
			Host   string `json:"binding:host_id"`
			VIF    string `json:"binding:vif_type"`
		} `json:"ports"`
	}
	if err := c.api(ctx, http.MethodGet, "ports", nil, &answer); err != nil {
		return nil, nil, err
	}
	status = map[string]string{}
	for _, p := range answer.Ports {
		name, ok := ids[p.ID]
		if !ok {
			continue
		}
		status[name] = p.Status
		lines = append(lines, fmt.Sprintf("api port %s status=%s admin_state_up=%t host=%s vif_type=%s",
			name, p.Status, p.Admin, p.Host, p.VIF))
	}
	slices.Sort(lines)
	return lines, status, nil
}

// callLines says what agents told or asked the server, without order and repetition: both depend on timing.
func callLines(calls []*call, names *parity.Names, hosts []string) []string {
	var lines []string
	for _, c := range calls {
		if !slices.Contains(hosts, c.host) {
			continue
		}
		for _, what := range parity.Essence(c.method, c.args) {
			lines = append(lines, names.Apply(strings.TrimSpace(c.host+" call "+c.method+" "+what)))
		}
	}
	return lines
}
