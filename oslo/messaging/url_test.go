// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct {
		text  string
		want  URL
		vhost string
		hosts []string // user@addr
	}{
		{"rabbit://", URL{Transport: "rabbit"}, "/", []string{"guest@localhost:5672"}},
		{"rabbit://h", URL{Transport: "rabbit", Hosts: []Host{{Name: "h"}}}, "/", []string{"guest@h:5672"}},
		{
			"rabbit://u:p%40@h1:1,u2:p2@[::1]:2/vh?ssl=1&a=1&a=2",
			URL{Transport: "rabbit", VirtualHost: "vh", Hosts: []Host{{"h1", 1, "u", "p@"}, {"::1", 2, "u2", "p2"}},
				Query: map[string]string{"ssl": "1", "a": "1,2"}},
			"vh", []string{"u@h1:1", "u2@[::1]:2"},
		},
		{"rabbit://h//", URL{Transport: "rabbit", VirtualHost: "/", Hosts: []Host{{Name: "h"}}}, "/", []string{"guest@h:5672"}},
		{"rabbit://u:p:q@r@h/", URL{Transport: "rabbit", Hosts: []Host{{Name: "h", Username: "u", Password: "p:q@r"}}}, "/", []string{"u@h:5672"}},
		{"kombu+rabbit://h/%2Fx", URL{Transport: "kombu+rabbit", VirtualHost: "/x", Hosts: []Host{{Name: "h"}}}, "/x", []string{"guest@h:5672"}},
	} {
		got, err := ParseURL(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if len(got.Query) == 0 {
			got.Query = nil
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.text, d)
		}
		var hosts []string
		for _, h := range got.hosts() {
			hosts = append(hosts, h.Username+"@"+h.Addr())
		}
		if got.vhost() != tt.vhost || !cmp.Equal(hosts, tt.hosts) {
			t.Errorf("%s: connects to %s on %v", tt.text, got.vhost(), hosts)
		}
	}
	for _, text := range []string{"", "h", "://h", "rabbit://[::1", "rabbit://h:x", "rabbit://h:65536", "amqp1://h", "fake://"} {
		if u, err := ParseURL(text); err == nil {
			t.Errorf("%q is accepted: %+v", text, u)
		}
	}
}

// TestPasswordIsNeverFormatted covers the ways in which a value ends up in a log.
func TestPasswordIsNeverFormatted(t *testing.T) {
	u, err := ParseURL("rabbit://user:hunter2hunter2@h/v")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{URL: u, Rabbit: DefaultRabbit()}
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "url", u, "cfg", cfg, "host", u.Hosts[0])
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "url", u, "host", u.Hosts[0])
	for _, s := range []string{
		u.String(), fmt.Sprint(u), fmt.Sprintf("%v %+v %#v %s", u, u, u, u), fmt.Sprintf("%+v %#v", cfg, cfg),
		fmt.Sprintf("%v %s %d %x", u.Hosts[0].Password, u.Hosts[0].Password, u.Hosts[0].Password, u.Hosts[0].Password), string(text), log.String(),
	} {
		if strings.Contains(s, "hunter2") || strings.Contains(s, "68756e74657232") || strings.Contains(s, "104 117") {
			t.Errorf("shown: %s", s)
		}
	}
}

func TestQueryOverridesOptions(t *testing.T) {
	r := DefaultRabbit()
	for k, v := range map[string]string{
		"ssl": "1", "rabbit_quorum_queue": "True", "rabbit_transient_queues_ttl": "60", "kombu_reconnect_delay": "0.5",
		"rabbit_quroum_max_memory_length": "5", "rpc_conn_pool_size": "9",
	} {
		if err := r.Set(k, v); err != nil {
			t.Error(err)
		}
	}
	if !r.TLS || !r.QuorumQueue || r.TransientQueuesTTL.Seconds() != 60 || r.ReconnectDelay.Seconds() != 0.5 || r.QuorumMaxMemoryLength != 5 {
		t.Errorf("%+v", r)
	}
	for k, v := range map[string]string{"nosuch": "1", "ssl": "maybe", "rabbit_interval_max": "x", "heartbeat_rate": "-1"} {
		if err := r.Set(k, v); err == nil {
			t.Errorf("%s=%s is accepted", k, v)
		}
	}
}
