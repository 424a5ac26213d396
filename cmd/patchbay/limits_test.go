// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		sw, broker, server string
		want               []string // a piece of each sentence
	}{
		{"Open vSwitch 3.5.0", "127.0.0.1:5672, RabbitMQ 4.0.5", "26 to 28", nil},
		{"Open vSwitch 4.0.0", "127.0.0.1:5672, RabbitMQ 4.3.6", "29 or later", nil},
		{"Open vSwitch 2.15.0", "127.0.0.1:5672, RabbitMQ 3.8.9", "17", []string{"within a minute", "expire", "address groups", "database"}},
		{"Open vSwitch 2.9.8", "127.0.0.1:5672", "21 to 22", []string{"within a minute", "GRE over IPv6", "meters", "database"}},
		{"Open vSwitch 3.1.0", "127.0.0.1:5672, RabbitMQ 3.10.8", "23 to 26", []string{"those of 23"}},
		{"Open vSwitch 3.1.0", "127.0.0.1:5672, RabbitMQ 3.10.8", "27 or later", []string{"since 29"}},
		{"Open vSwitch", "", "", nil},
	} {
		s := inspect.Status{Switch: inspect.Peer{Detail: c.sw}, Broker: inspect.Peer{Detail: c.broker}, Server: inspect.Peer{Detail: c.server}}
		got := limits(&s)
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.Contains(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestStatusNamesReleases(t *testing.T) {
	now := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	up := func(detail string) inspect.Peer {
		return inspect.Peer{Up: true, Since: now.Add(-time.Minute), Detail: detail}
	}
	s := inspect.Status{
		Host: "hv1", InSync: true, Started: now, Switch: up("Open vSwitch 2.15.0, system"), Broker: up("10.0.0.1:5672, RabbitMQ 3.8.9"), Server: up("17"),
	}
	var out bytes.Buffer
	writeStatus(&out, &s, now)
	for _, piece := range []string{"Open vSwitch 2.15.0, system", "RabbitMQ 3.8.9", "Neutron 17 ", "limited by these releases:\n", "  Open vSwitch before 3.0 has no flow monitor"} {
		if !strings.Contains(out.String(), piece) {
			t.Errorf("no %q in\n%s", piece, out.String())
		}
	}
	s.Switch, s.Broker, s.Server = up("Open vSwitch 3.5.0"), up("10.0.0.1:5672"), up("29 or later")
	out.Reset()
	writeStatus(&out, &s, now)
	if strings.Contains(out.String(), "limited") || !strings.Contains(out.String(), "Neutron 29 or later") {
		t.Errorf("%s", out.String())
	}
}
