// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/options"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// region is a broker with a simulated server behind it.
type region struct {
	peerCaller
	closed bool
}

func (r *region) Close(context.Context) error { r.closed = true; return nil }

func TestPeersNameTheirReleases(t *testing.T) {
	behind := &region{peerCaller: sim.New(sim.Config{Release: 17}).Join("hv1", nil)}
	found := peers{
		host: "hv1", ovs: func(context.Context) (string, error) { return "2.15.0", nil },
		open: func(onEvent func(messaging.Event)) (peerCaller, error) {
			onEvent(messaging.Connected{Addr: "h:5672", Broker: "RabbitMQ 3.8.9"})
			return behind, nil
		},
	}.ask(t.Context())
	var b bytes.Buffer
	found.write(&b)
	for _, want := range []string{"switch  Open vSwitch 2.15.0\n", "broker  h:5672, RabbitMQ 3.8.9\n", "server  Neutron 17\n", "within a minute", "expire", "address groups"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("wanted %q in:\n%s", want, b.String())
		}
	}
	if !behind.closed {
		t.Error("the connection to the broker stays")
	}
}

func TestPeersThatDoNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		event messaging.Event
		want  []string
	}{
		"no broker": {messaging.ConnectFailed{Addr: "h:5672", Err: errors.New("refused")}, []string{"names a database that does not answer: no socket.", "names a broker that does not answer: refused."}},
		"no server": {messaging.Connected{Addr: "h:5672"}, []string{"names a database that does not answer: no socket.", "by which no neutron-server answers: nobody."}},
	} {
		args := writeConfig(t, "[securitygroup]\nenable_security_group = false\n[DEFAULT]\ntransport_url = rabbit://u:hunter2@h/\n")
		report, err := options.Check(args, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := peers{
			ovs: func(context.Context) (string, error) { return "", errors.New("no socket") },
			open: func(onEvent func(messaging.Event)) (peerCaller, error) {
				onEvent(c.event)
				return &region{peerCaller: silent{}}, nil
			},
		}.ask(t.Context())
		found.warn(report)
		var b bytes.Buffer
		if err := writeReport(&b, report, found, checkFlags{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.want, "2 warnings", "not known") {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: wanted %q in:\n%s", name, want, b.String())
			}
		}
		if strings.Contains(b.String(), "hunter2") {
			t.Errorf("%s: the report has the password", name)
		}
	}
}

type silent struct{ peerCaller }

func (silent) Call(context.Context, messaging.Target, string, any, any) error {
	return errors.New("nobody")
}

// TestACommandHasQueuesOfItsOwn is about use_queue_manager, with which the names of an agent's queues are fixed: a command that used them would take the
// agent's replies, and delete its queue in the end.
func TestACommandHasQueuesOfItsOwn(t *testing.T) {
	args := writeConfig(t, "[oslo_messaging_rabbit]\nuse_queue_manager = true\n")
	o, err := options.Load(args, nil)
	if err != nil {
		t.Fatal(err)
	}
	if agent, command := brokerConfig(o, messaging.URL{}, nil).Instance, commandConfig(o, messaging.URL{}, nil).Instance; agent > 1 || command <= 1000 {
		t.Errorf("the agent is instance %d, the command %d", agent, command)
	}
}
