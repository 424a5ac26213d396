// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// Ctl runs rabbitmqctl against this node and returns what it printed. Each run costs about a second of CPU.
func (b *Broker) Ctl(ctx context.Context, args ...string) (string, error) {
	argv := b.command(append([]string{b.script("rabbitmqctl"), "--node", b.node(), "--quiet"}, args...)...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = b.env(), b.s.Dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errOut.String() + out.String())
		return out.String(), fmt.Errorf("rabbitmqctl %s: %w: %s", args[0], err, b.mask(said))
	}
	return out.String(), nil
}

// Queue is one queue of the configured virtual host.
type Queue struct {
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Arguments  map[string]any `json:"-"`
	Messages   int            `json:"messages"`
	Consumers  int            `json:"consumers"`
}

// Queues lists the queues of the configured virtual host.
func (b *Broker) Queues(ctx context.Context) ([]Queue, error) {
	var rows []struct {
		Queue
		Args []json.RawMessage `json:"arguments"`
	}
	err := b.list(ctx, &rows, "list_queues", "name", "type", "durable", "auto_delete", "arguments", "messages", "consumers")
	if err != nil {
		return nil, err
	}
	queues := make([]Queue, len(rows))
	for i, r := range rows {
		queues[i] = r.Queue
		queues[i].Arguments = table(r.Args)
	}
	return queues, nil
}

// Exchange is one exchange of the configured virtual host.
type Exchange struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"auto_delete"`
}

// Exchanges lists the exchanges of the configured virtual host, without the broker's own.
func (b *Broker) Exchanges(ctx context.Context) ([]Exchange, error) {
	var rows []Exchange
	if err := b.list(ctx, &rows, "list_exchanges", "name", "type", "durable", "auto_delete"); err != nil {
		return nil, err
	}
	own := rows[:0]
	for _, r := range rows {
		if r.Name != "" && !strings.HasPrefix(r.Name, "amq.") {
			own = append(own, r)
		}
	}
	return own, nil
}

// Binding ties a queue to an exchange.
type Binding struct {
	Source      string `json:"source_name"`
	Destination string `json:"destination_name"`
	RoutingKey  string `json:"routing_key"`
}

// Bindings lists the bindings of the configured virtual host, without those to the default exchange.
func (b *Broker) Bindings(ctx context.Context) ([]Binding, error) {
	var rows []Binding
	if err := b.list(ctx, &rows, "list_bindings", "source_name", "destination_name", "routing_key"); err != nil {
		return nil, err
	}
	own := rows[:0]
	for _, r := range rows {
		if r.Source != "" {
			own = append(own, r)
		}
	}
	return own, nil
}

func (b *Broker) list(ctx context.Context, rows any, command string, columns ...string) error {
	return b.json(ctx, rows, append([]string{"--formatter", "json", "-p", b.s.VHost, command}, columns...)...)
}

func (b *Broker) json(ctx context.Context, rows any, args ...string) error {
	out, err := b.Ctl(ctx, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), rows); err != nil {
		return fmt.Errorf("reading the answer of rabbitmqctl: %w", err)
	}
	return nil
}

// Connection is one client connection.
type Connection struct {
	Name       string // "peer -> broker" as the broker writes it
	User       string
	State      string
	SSL        bool
	Channels   int
	Mechanism  string         // how it logged in
	Properties map[string]any // what the client said about itself, e.g. connection_name
}

// Connections lists the client connections of all virtual hosts.
func (b *Broker) Connections(ctx context.Context) ([]Connection, error) {
	var rows []struct {
		Name       string            `json:"name"`
		User       string            `json:"user"`
		State      string            `json:"state"`
		SSL        bool              `json:"ssl"`
		Channels   int               `json:"channels"`
		Mechanism  string            `json:"auth_mechanism"`
		Properties []json.RawMessage `json:"client_properties"`
	}
	err := b.json(ctx, &rows, "--formatter", "json", "list_connections",
		"name", "user", "state", "ssl", "channels", "auth_mechanism", "client_properties")
	if err != nil {
		return nil, err
	}
	conns := make([]Connection, len(rows))
	for i, r := range rows {
		conns[i] = Connection{r.Name, r.User, r.State, r.SSL, r.Channels, r.Mechanism, table(r.Properties)}
	}
	return conns, nil
}

// table turns rabbitmqctl's [[key, type, value], …] into a map.
func table(rows []json.RawMessage) map[string]any {
	m := make(map[string]any, len(rows))
	for _, row := range rows {
		var cells []any
		if json.Unmarshal(row, &cells) == nil && len(cells) == 3 {
			if key, ok := cells[0].(string); ok {
				m[key] = cells[2]
			}
		}
	}
	return m
}
