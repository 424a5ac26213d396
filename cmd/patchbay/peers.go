// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// peerTimeout bounds how long the switch's database, the broker and the server may take for an answer, each.
const peerTimeout = 10 * time.Second

// peerDocument is what programs get of the peers.
type peerDocument struct {
	Switch inspect.Peer `json:"switch"`
	Broker inspect.Peer `json:"broker"`
	Server inspect.Peer `json:"server"`
	Limits []string     `json:"limits,omitempty"` // by their releases
}

// peerCaller is what is used of *messaging.Client.
type peerCaller interface {
	neutron.Caller
	Close(ctx context.Context) error
}

// peers are the ways to the programs that an agent depends on.
type peers struct {
	host string
	ovs  func(context.Context) (version string, err error)
	open func(onEvent func(messaging.Event)) (peerCaller, error)
}

// peersOf are the peers that the options name.
func peersOf(o *options.Options, url messaging.URL) peers {
	return peers{
		host: o.Default.Host,
		ovs:  func(ctx context.Context) (string, error) { return switchVersion(ctx, o) },
		open: func(onEvent func(messaging.Event)) (peerCaller, error) {
			return messaging.Open(commandConfig(o, url, onEvent))
		},
	}
}

// commandConfig is the configuration of a command that talks to the broker beside the host's agent. With use_queue_manager the names of queues are fixed,
// so the command has a number of its own: an agent has a small one.
func commandConfig(o *options.Options, url messaging.URL, onEvent func(messaging.Event)) messaging.Config {
	cfg := brokerConfig(o, url, onEvent)
	cfg.Instance = 1_000_000 + os.Getpid()
	return cfg
}

// switchVersion reads the version from the switch's database.
func switchVersion(ctx context.Context, o *options.Options) (string, error) {
	database, err := ovsdb.New(databaseConfig(o))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	var running sync.WaitGroup
	running.Go(func() { database.Run(ctx) })
	running.Go(func() {
		for range database.Changes() { // until Run ends
		}
	})
	defer running.Wait()
	defer cancel()
	found, err := database.Capabilities(ctx)
	return found.OVSVersion, err
}

// ask connects to all of them, and leaves nothing behind.
func (p peers) ask(ctx context.Context) *peerDocument {
	out := &peerDocument{}
	var asking sync.WaitGroup
	asking.Go(func() {
		version, err := p.ovs(ctx)
		out.Switch = peer(strings.TrimSpace("Open vSwitch "+version), err)
	})
	asking.Go(func() { out.Broker, out.Server = p.askServer(ctx) })
	asking.Wait()
	out.Limits = limits(&inspect.Status{Switch: out.Switch, Broker: out.Broker, Server: out.Server})
	return out
}

// askServer asks the server by way of the broker, as an agent does that registers.
func (p peers) askServer(ctx context.Context) (broker, server inspect.Peer) {
	var mu sync.Mutex
	broker.Error = fmt.Sprintf("no answer after %v", peerTimeout)
	client, err := p.open(func(e messaging.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case messaging.Connected:
			broker = peer(strings.TrimSuffix(e.Addr+", "+inspect.Printable(e.Broker), ", "), nil)
		case messaging.ConnectFailed:
			broker = peer("", e.Err)
		case messaging.Refused:
			broker = peer("", e.Err)
		case messaging.Disconnected:
			broker = peer("", e.Err)
		}
	})
	if err != nil {
		return peer("", err), inspect.Peer{}
	}
	server = p.askReleases(ctx, client)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), peerTimeout)
	defer cancel()
	mu.Lock()
	found := broker // closing is no fault of the broker's
	mu.Unlock()
	_ = client.Close(closing)
	if !found.Up {
		server = inspect.Peer{}
	}
	return found, server
}

func (p peers) askReleases(ctx context.Context, client neutron.Caller) inspect.Peer {
	asking, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	s := neutron.NewServer(client, p.host)
	alive, err := s.Alive(asking)
	if err == nil && !alive {
		err = errors.New("the server cannot reach its database")
	}
	if err != nil {
		return peer("", err)
	}
	negotiating, done := context.WithTimeout(ctx, peerTimeout)
	defer done()
	releases, _, err := neutron.Negotiate(negotiating, s)
	return peer(releases, err)
}

func peer(detail string, err error) inspect.Peer {
	if err != nil {
		return inspect.Peer{Error: inspect.Printable(err.Error())}
	}
	return inspect.Peer{Up: true, Detail: detail}
}

// warn adds a warning about each peer that does not answer, at the option that names it.
func (d *peerDocument) warn(report *options.Report) {
	for _, p := range []struct {
		inspect.Peer
		group, option, sentence string
	}{
		{d.Switch, "ovs", "ovsdb_connection", "names a database that does not answer: "},
		{d.Broker, "DEFAULT", "transport_url", "names a broker that does not answer: "},
		{d.Server, "DEFAULT", "transport_url", "names a broker by which no neutron-server answers: "},
	} {
		if v, ok := report.Value(p.group, p.option); ok && p.Error != "" {
			report.Warn("connection", options.ProblemWith(v, p.sentence+strings.TrimSuffix(p.Error, ".")))
		}
	}
}

// write prints the releases for people, and what they limit.
func (d *peerDocument) write(b *bytes.Buffer) {
	fmt.Fprintln(b, "Releases:")
	for _, p := range []struct {
		inspect.Peer
		name, product string
	}{{d.Switch, "switch", ""}, {d.Broker, "broker", ""}, {d.Server, "server", "Neutron "}} {
		text := p.product + p.Detail
		if !p.Up {
			text = "not known, it does not answer"
		}
		fmt.Fprintf(b, "  %s  %s\n", p.name, text)
	}
	if len(d.Limits) > 0 {
		fmt.Fprintf(b, "Limited by these releases:\n  %s\n", strings.Join(d.Limits, "\n  "))
	}
	fmt.Fprintln(b)
}
