// SPDX-License-Identifier: Apache-2.0

//go:build integration

package broker_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/patchbay-sdn/patchbay/lab/broker"
)

func TestLifeOfANode(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	cfg := broker.Config{Dir: dir, User: "u", Password: `p"\ ü#%@`, VHost: "/lab"}
	b, err := broker.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Kill() }()
	pid := b.PID()

	again, err := broker.Start(ctx, broker.Config{Dir: dir})
	if err != nil || again.PID() != pid || again.Addr() != b.Addr() {
		t.Fatalf("second Start: pid %d (first %d), %v", again.PID(), pid, err)
	}

	c, err := amqp.DialConfig("amqp://"+b.Addr(), amqp.Config{
		Vhost: "/lab", SASL: []amqp.Authentication{&amqp.AMQPlainAuth{Username: "u", Password: cfg.Password}},
		Properties: amqp.Table{"connection_name": "probe"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"classic", "quorum", "stream"} {
		if _, err := ch.QueueDeclare("q-"+kind, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			t.Errorf("%s queues do not work: %v", kind, err)
		}
	}
	queues, err := b.Queues(ctx)
	if err != nil || len(queues) != 3 {
		t.Fatalf("queues %+v, %v", queues, err)
	}
	for _, q := range queues {
		if q.Name != "q-"+q.Arguments["x-queue-type"].(string) || !q.Durable {
			t.Errorf("queue %+v", q)
		}
	}
	conns, err := b.Connections(ctx)
	if err != nil || len(conns) != 1 || conns[0].Properties["connection_name"] != "probe" || conns[0].User != "u" {
		t.Fatalf("connections %+v, %v", conns, err)
	}
	if _, err := b.Ctl(ctx, "no_such_command"); err == nil {
		t.Error("a failing command reports no error")
	}

	epmd, err := os.ReadFile(filepath.Join(dir, "epmd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{strconv.Itoa(pid), strings.Fields(string(epmd))[0]} {
		if _, err := os.Stat("/proc/" + p); err == nil {
			t.Errorf("process %s is left behind", p)
		}
	}
	if _, err := net.DialTimeout("tcp", b.Addr(), time.Second); err == nil {
		t.Error("something still listens")
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := broker.Config{Dir: t.TempDir(), Port: l.Addr().(*net.TCPAddr).Port, Password: "hunter2hunter2"}
	b, err := broker.Start(ctx, cfg)
	if err == nil {
		_ = b.Kill()
		t.Fatal("started on a port that is taken")
	}
	if !strings.Contains(err.Error(), "eaddrinuse") {
		t.Errorf("the error does not name the cause: %v", err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error carries the password: %v", err)
	}
}
