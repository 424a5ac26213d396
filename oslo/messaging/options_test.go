// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEveryOption: each name changes its own field and no other.
func TestEveryOption(t *testing.T) {
	for names, c := range map[string]struct {
		field, value string
		want         any
	}{
		"amqp_durable_queues": {"DurableQueues", "yes", true}, "amqp_auto_delete": {"AutoDelete", "on", true},
		"ssl rabbit_use_ssl": {"TLS", "1", true}, "ssl_version kombu_ssl_version": {"TLSVersion", "x", "x"}, "ssl_key_file kombu_ssl_keyfile": {"TLSKeyFile", "x", "x"},
		"ssl_cert_file kombu_ssl_certfile": {"TLSCertFile", "x", "x"}, "ssl_ca_file kombu_ssl_ca_certs": {"TLSCAFile", "x", "x"},
		"ssl_enforce_hostname_verification": {"TLSVerifyHostname", "no", false}, "ssl_enforce_fips_mode": {"TLSEnforceFIPSMode", "true", true},
		"kombu_reconnect_delay": {"ReconnectDelay", "7", 7 * time.Second}, "kombu_reconnect_splay": {"ReconnectSplay", "7", 7 * time.Second},
		"kombu_compression": {"Compression", "bz2", "bz2"}, "kombu_missing_consumer_retry_timeout kombu_reconnect_timeout": {"MissingConsumerRetry", "7", 7 * time.Second},
		"kombu_failover_strategy": {"FailoverStrategy", "shuffle", "shuffle"}, "rabbit_login_method": {"LoginMethod", "PLAIN", "PLAIN"},
		"rabbit_retry_interval": {"RetryInterval", "7", 7 * time.Second}, "rabbit_retry_backoff": {"RetryBackoff", "7", 7 * time.Second}, "rabbit_interval_max": {"IntervalMax", "7", 7 * time.Second},
		"rabbit_ha_queues": {"HAQueues", "1", true}, "rabbit_quorum_queue": {"QuorumQueue", "1", true}, "rabbit_transient_quorum_queue": {"TransientQuorumQueue", "1", true},
		"rabbit_quorum_delivery_limit":                                    {"QuorumDeliveryLimit", "7", 7},
		"rabbit_quorum_max_memory_length rabbit_quroum_max_memory_length": {"QuorumMaxMemoryLength", "7", 7},
		"rabbit_quorum_max_memory_bytes rabbit_quroum_max_memory_bytes":   {"QuorumMaxMemoryBytes", "7", 7},
		"rabbit_transient_queues_ttl":                                     {"TransientQueuesTTL", "7", 7 * time.Second}, "rabbit_qos_prefetch_count": {"PrefetchCount", "7", 7},
		"heartbeat_timeout_threshold": {"HeartbeatThreshold", "7", 7 * time.Second}, "heartbeat_rate": {"HeartbeatRate", "7", 7},
		"direct_mandatory_flag": {"DirectMandatory", "off", false}, "enable_cancel_on_failover": {"EnableCancelOnFailover", "1", true},
		"use_queue_manager": {"UseQueueManager", "1", true}, "hostname": {"Hostname", "x", "x"}, "processname": {"ProcessName", "x", "x"}, "rabbit_stream_fanout": {"StreamFanout", "1", true},
	} {
		for name := range strings.FieldsSeq(names) {
			got, want := DefaultRabbit(), DefaultRabbit()
			if err := got.Set(name, c.value); err != nil {
				t.Error(err)
			}
			reflect.ValueOf(&want).Elem().FieldByName(c.field).Set(reflect.ValueOf(c.want))
			if got != want || got == DefaultRabbit() {
				t.Errorf("%s=%s: %+v", name, c.value, got)
			}
			switch c.want.(type) {
			case bool:
				if err := got.Set(name, "x"); err == nil {
					t.Errorf("%s is taken for a boolean", name)
				}
				for _, v := range []string{"TRUE", "false", "0"} {
					if err := got.Set(name, v); err != nil || reflect.ValueOf(got).FieldByName(c.field).Bool() != (v == "TRUE") {
						t.Errorf("%s=%s: %v, %v", name, v, got, err)
					}
				}
			case time.Duration, int:
				for _, v := range []string{"x", "-1"} {
					if err := got.Set(name, v); err == nil {
						t.Errorf("%s=%s is taken", name, v)
					}
				}
				if err := got.Set(name, "0"); err != nil {
					t.Error(err)
				}
			}
		}
	}
	r := DefaultRabbit()
	for _, name := range []string{"rpc_conn_pool_size", "conn_pool_min_size", "conn_pool_ttl", "heartbeat_in_pthread"} {
		if err := r.Set(name, "x"); err != nil || r != DefaultRabbit() {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.Set("rabbit_interval_max", "1000000000") != nil || r.Set("rabbit_interval_max", "1000000001") == nil {
		t.Error("the longest time is not 10⁹ seconds")
	}
}

func TestMoreURLs(t *testing.T) {
	for text, want := range map[string]string{
		"rabbit://h/a;b":      "a",
		"rabbit://h/a;b/c;d":  "a;b/c",
		"rabbit://h/a%3Fb":    "a",
		"rabbit://h/a%2523":   "a#",
		"rabbit://h/%41":      "A",
		"rabbit://h/%4":       "%4",
		"rabbit://h/%zz":      "%zz",
		"rabbit://h/a%25":     "a%",
		"rabbit://h/#x":       "/",
		"\trab\nbit://h/v\r":  "v",
		"rab\tbit://h/v":      "v",
		"kombu://h/v":         "v",
		"kombu+amqp://h/v":    "v",
		"RABBIT://h/v":        "v",
		"kombu+rabbit://h/v/": "v/",
		"rabbit:/v":           "v",
		"rabbit:v":            "/",
	} {
		u, err := ParseURL(text)
		if err != nil || u.vhost() != want {
			t.Errorf("%q: %q, %v; want %q", text, u.vhost(), err, want)
		}
	}
	for _, text := range []string{"amqp://h", "1rabbit://h", "rab_bit://h", "rab{bit://h", ":rabbit", "rabbit://h]"} {
		if u, err := ParseURL(text); err == nil {
			t.Errorf("%q is taken: %+v", text, u)
		}
	}
	for text, want := range map[string]int{"0": 0, "+1": 1, "65535": 65535, "65536": -1, "_1": -1, "1_": -1, "1__2": -1, "-1": -1, "": -1} {
		if n, err := parsePort(text); (err == nil) != (want >= 0) || err == nil && n != want {
			t.Errorf("port %q: %d, %v", text, n, err)
		}
	}
	if n, err := parsePort(" 5_672\t"); err != nil || n != 5672 {
		t.Errorf("with blanks: %d, %v", n, err)
	}
	u, err := ParseURL("rabbit://[::1],u@h:0,:p@/?a=&b&c+d=%31+2&c+d=3")
	if err != nil || len(u.Hosts) != 3 || u.Hosts[0].Name != "::1" || u.Hosts[1].Username != "u" || u.Hosts[2].Password != "p" || len(u.Query) != 1 || u.Query["c d"] != "1 2,3" {
		t.Errorf("%#v, %v, %v", u.Hosts, u.Query, err)
	}
	for _, h := range u.hosts() {
		if h.Port != 5672 || h.Username == "" || h.Password == "" || h.Name == "" {
			t.Errorf("%s", h.Addr())
		}
	}
}

// TestIdentifiers: the form of uuid4, which Python peers use, and names no longer than they may be.
func TestIdentifiers(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`)
	seen := map[byte]bool{}
	alike := [2]int{}
	for range 200 {
		id := newID()
		for i, at := range []int{13, 17} { // beside the digits that are not chance
			if id[at] == id[at-2] {
				alike[i]++
			}
		}
		if !form.MatchString(id) {
			t.Fatal(id)
		}
		seen[id[16]] = true
		seen[id[13]] = true
	}
	if len(seen) < 16 || alike[0] > 100 || alike[1] > 100 {
		t.Errorf("digits that are chance are not: %v, %v like the one before", seen, alike)
	}
	if got := dashed("0123456789abcdef0123456789abcdef"); got != "01234567-89ab-cdef-0123-456789abcdef" {
		t.Error(got)
	}
	if clip("abc", 3) != "abc" || clip("abcd", 3) != "abc" || clip("aé", 2) != "a" {
		t.Error("clip")
	}
	cfg := testConfig(t, "rabbit://h")
	cfg.Program, cfg.Host = strings.Repeat("p", 90), strings.Repeat("h", 110)
	if got := newLayout(&cfg, func() string { return "id" }).privateQ; got != strings.Repeat("p", 80)+"_fanout_"+strings.Repeat("h", 100)+"_id" {
		t.Error(got)
	}
	cfg.Rabbit.UseQueueManager, cfg.Instance = true, 3
	if got := newLayout(&cfg, newID).replyQ; got != "reply_"+strings.Repeat("h", 100)+":"+strings.Repeat("p", 60)+":3" {
		t.Error(got)
	}
	cfg.Rabbit.Hostname, cfg.Rabbit.ProcessName, cfg.QueueTTL = "x", "y", time.Hour
	if l := newLayout(&cfg, newID); l.replyQ != "reply_x:y:3" || l.queueTTL != time.Hour || l.privateQ != strings.Repeat("p", 60)+"_fanout_x:y:3" {
		t.Errorf("%+v", l)
	}
	// The oldest id is forgotten first.
	s := newSeenIDs(3)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		s.first(id)
	}
	if s.first("g") || s.first("d") || !s.first("a") || !s.first("b") || s.first("e") || !s.first("c") || !s.first("e") {
		t.Error("wrong ids were forgotten")
	}
	var g goneQueues
	for i := range goneMax {
		g.add(fmt.Sprint(i))
	}
	if !g.has("0") || !g.has(fmt.Sprint(goneMax-1)) {
		t.Error("forgotten too early")
	}
	if g.add("more"); g.has("0") || !g.has("more") {
		t.Error("more are remembered than may be")
	}
}

// certificate writes a certificate for localhost that is its own authority, and its key.
func certificate(t *testing.T, name string) (file string, cert tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "both.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestTLSOptions: versions, and how far the broker is verified, shown by handshakes.
func TestTLSOptions(t *testing.T) {
	for version, want := range map[string][2]uint16{
		"": {tls.VersionTLS12, 0}, "SSLv23": {tls.VersionTLS12, 0}, "TLSv1": {tls.VersionTLS10, tls.VersionTLS10},
		"TLSv1_1": {tls.VersionTLS11, tls.VersionTLS11}, "tlsv1_2": {tls.VersionTLS12, tls.VersionTLS12},
	} {
		cfg, verified, err := (&Rabbit{TLSVersion: version}).tlsConfig("h")
		if err != nil || cfg.MinVersion != want[0] || cfg.MaxVersion != want[1] || verified != "unverified" || cfg.ServerName != "h" {
			t.Errorf("%q: %v, %s, %v", version, cfg, verified, err)
		}
	}
	file, cert := certificate(t, "localhost")
	foreign, _ := certificate(t, "localhost")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]Rabbit{
		"no such certificate": {TLSCertFile: "/nonexistent"}, "no such authority": {TLSCAFile: "/nonexistent"}, "no certificate in it": {TLSCAFile: empty}, "no key": {TLSCertFile: file, TLSKeyFile: empty}, "no FIPS": {TLSEnforceFIPSMode: true},
	} {
		if _, _, err := r.tlsConfig("h"); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if cfg, _, err := (&Rabbit{TLSCertFile: file}).tlsConfig("h"); err != nil || len(cfg.Certificates) != 1 {
		t.Errorf("a certificate with its key in one file: %v", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		name, host, verified string
		r                    Rabbit
		ok                   bool
	}{
		{"nothing is verified", "127.0.0.1", "unverified", Rabbit{}, true},
		{"all is verified", "localhost", "verified", Rabbit{TLSCAFile: file, TLSVerifyHostname: true}, true},
		{"another name", "127.0.0.1", "verified", Rabbit{TLSCAFile: file, TLSVerifyHostname: true}, false},
		{"another name, which does not matter", "127.0.0.1", "chain", Rabbit{TLSCAFile: file}, true},
		{"another authority", "localhost", "chain", Rabbit{TLSCAFile: foreign}, false},
	} {
		r := c.r
		cfg := testConfig(t, "rabbit://h")
		cfg.Rabbit = r
		cfg.Rabbit.TLS = true
		cfg.Dial = (&net.Dialer{}).DialContext
		done := make(chan struct{})
		go func() {
			defer close(done)
			if here, err := listener.Accept(); err == nil {
				_ = here.SetDeadline(time.Now().Add(5 * time.Second))
				_ = tls.Server(here, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}).Handshake()
				_ = here.Close()
			}
		}()
		conn, verified, err := (&Client{cfg: cfg}).dial(t.Context(), Host{Name: c.host, Port: port})
		if (err == nil) != c.ok || err == nil && verified != c.verified {
			t.Errorf("%s: %s, %v", c.name, verified, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		<-done
	}
}
