// SPDX-License-Identifier: Apache-2.0

package messaging_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Asking neutron-server something. Remote exceptions are errors one can branch on by class.
func ExampleClient_Call() {
	u, err := messaging.ParseURL("rabbit://neutron:s3cret@rmq1/")
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := messaging.Open(messaging.Config{
		URL: u, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "my-agent", Host: "hv1",
		OnEvent: func(e messaging.Event) {
			switch e := e.(type) {
			case messaging.Gap:
				fmt.Println("messages may be missing, reading everything again:", e.Reason)
			case messaging.Disconnected:
				fmt.Println("connection lost:", e.Err)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer func() { _ = c.Close(ctx) }()

	var alive bool
	err = c.Call(ctx, messaging.Target{Topic: "q-reports-plugin", Version: "1.2"}, "has_alive_neutron_server", nil, &alive)
	switch {
	case errors.Is(err, messaging.UnsupportedVersion):
		fmt.Println("an older server")
	case errors.Is(err, messaging.ErrTimeout):
		fmt.Println("no server")
	default:
		fmt.Println(alive, err)
	}
}

// Serving two topics. Each message goes to the handler once, and is acknowledged when it returns.
func ExampleClient_Serve() {
	var c *messaging.Client // from Open
	pushes := make(chan json.RawMessage, 100)
	err := c.Serve(context.Background(), messaging.Service{
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
	fmt.Println(err)
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
