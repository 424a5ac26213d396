// SPDX-License-Identifier: Apache-2.0

package messaging_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// A transport URL is parsed as oslo.messaging does, and printed without its secrets.
func ExampleParseURL() {
	u, err := messaging.ParseURL("rabbit://neutron:s3cret@rmq1:5672,neutron:s3cret@rmq2/openstack?ssl=1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(u)
	fmt.Println(len(u.Hosts), u.Hosts[0].Addr(), u.Hosts[1].Addr(), u.Query["ssl"])
	// Output:
	// rabbit://neutron:***@rmq1:5672,neutron:***@rmq2/openstack
	// 2 rmq1:5672 rmq2:5672 1
}

// openClient returns a client of a broker; the examples have one in memory.
func openClient(host string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*messaging.Client, error) {
	u, err := messaging.ParseURL("rabbit://neutron:s3cret@rmq1/")
	if err != nil {
		return nil, err
	}
	return messaging.Open(messaging.Config{
		URL: u, Exchange: "neutron", Program: "my-agent", Host: host,
		Dial: dial, // for a real broker leave it out
		OnEvent: func(e messaging.Event) {
			if gap, ok := e.(messaging.Gap); ok {
				fmt.Println("messages may have been lost, reading everything again:", gap.Reason)
			}
		},
	})
}

// Open checks the configuration and connects in the background.
func ExampleOpen() {
	_, err := messaging.Open(messaging.Config{})
	fmt.Println(err)
	// Output: messaging: Config.Program and Config.Host are required
}

// A call ends in a result or a typed error. Remote exceptions are errors one can branch on by class.
func ExampleClient_Call() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	broker := messaging.MemoryBroker()
	server, err := openClient("hv1", broker)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close(ctx) }()
	err = server.Serve(ctx, messaging.Service{Topics: []string{"reports"}, Handler: func(_ context.Context, m *messaging.Message) (any, error) {
		if m.Method == "is_alive" {
			return true, nil
		}
		return nil, messaging.NewNoSuchMethod(m.Method)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := openClient("hv2", broker)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close(ctx) }()

	to := messaging.Target{Topic: "reports", Server: "hv1", Version: "1.2"}
	var alive bool
	err = client.Call(ctx, to, "is_alive", nil, &alive)
	fmt.Println(alive, err)

	err = client.Call(ctx, to, "is_asleep", nil, nil)
	fmt.Println(errors.Is(err, messaging.Class("NoSuchMethod")), errors.Is(err, messaging.ErrTimeout))
	// Output:
	// true <nil>
	// true false
}

// Serve hands each message to the handler once, and acknowledges it when the handler returns. Cast reaches every server of a topic.
func ExampleClient_Serve() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := openClient("hv1", messaging.MemoryBroker())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(ctx) }()
	pushes := make(chan json.RawMessage, 100)
	err = c.Serve(ctx, messaging.Service{
		Topics: []string{"neutron-vo-Port-1.7", "neutron-vo-Network-1.1"},
		Handler: func(ctx context.Context, m *messaging.Message) (any, error) {
			if m.Method != "push" {
				return nil, messaging.NewNoSuchMethod(m.Method)
			}
			select {
			case pushes <- m.Args: // taken over: from here on the agent is responsible for it
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Cast(ctx, messaging.Target{Topic: "neutron-vo-Port-1.7", Fanout: true}, "push", map[string]any{"event_type": "updated"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(<-pushes))
	// Output: {"event_type":"updated"}
}

// The version rule that servers apply to requests.
func ExampleVersionServed() {
	fmt.Println(messaging.VersionServed("1.9", "1.4"), messaging.VersionServed("1.9", "1.10"), messaging.VersionServed("1.9", "2.0"))
	// Output: true false false
}

// A handler can answer with any Python exception.
func ExampleRemoteError() {
	var err error = &messaging.RemoteError{Class: "PortNotFound", Module: "neutron_lib.exceptions", Message: "Port x could not be found."}
	fmt.Println(err)
	fmt.Println(errors.Is(err, messaging.Class("PortNotFound")))
	// Output:
	// PortNotFound: Port x could not be found.
	// true
}
