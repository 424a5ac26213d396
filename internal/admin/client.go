// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Client asks a running agent through its socket. It is an [inspect.Source].
type Client struct {
	path string
	http http.Client
}

var _ inspect.Source = (*Client)(nil)

// clientTime bounds one question.
const clientTime = time.Minute

// NewClient returns a client of the socket at path. Nothing is connected yet.
func NewClient(path string) *Client {
	return &Client{path: path, http: http.Client{Timeout: clientTime, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}}
}

// ErrNoAgent says that nobody answers on the socket.
var ErrNoAgent = errors.New("no agent answers")

// Get reads a document by its path as it is.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	body, err := c.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return b, nil
}

func (c *Client) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var f failure
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil {
		return nil, fmt.Errorf("the agent answers %s", resp.Status)
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil, sentence{f.Error, inspect.ErrNotFound}
	case http.StatusConflict:
		return nil, sentence{f.Error, inspect.ErrAmbiguous}
	}
	return nil, errors.New(f.Error)
}

// sentence is the agent's own, with what kind of an error it is.
type sentence struct {
	text string
	kind error
}

func (s sentence) Error() string { return s.text }
func (s sentence) Unwrap() error { return s.kind }

// explain says what a failed connection means, and what to do.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no socket %s; the agent is not running, or its [patchbay] admin_socket is another (--socket)", ErrNoAgent, c.path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens on %s; the agent is not running", ErrNoAgent, c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: you may not use %s; become root, or a member of [patchbay] admin_socket_group", ErrNoAgent, c.path)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%w on %s: %w", ErrNoAgent, c.path, err)
}

func get[T any](ctx context.Context, c *Client, path string) (doc T, err error) {
	body, err := c.open(ctx, path)
	if err != nil {
		return doc, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&doc); err != nil {
		return doc, fmt.Errorf("reading %s: %w", path, err)
	}
	return doc, nil
}

// Status implements [inspect.Source].
func (c *Client) Status(ctx context.Context) (inspect.Status, error) {
	return get[inspect.Status](ctx, c, "/v1/status")
}

// Ports implements [inspect.Source].
func (c *Client) Ports(ctx context.Context) ([]inspect.Port, error) {
	return get[[]inspect.Port](ctx, c, "/v1/ports")
}

// Port finds a port by its id, name, address or the beginning of one of these.
func (c *Client) Port(ctx context.Context, ref string) (inspect.Port, error) {
	return get[inspect.Port](ctx, c, "/v1/ports/"+url.PathEscape(ref))
}

// Networks implements [inspect.Source].
func (c *Client) Networks(ctx context.Context) ([]inspect.Network, error) {
	return get[[]inspect.Network](ctx, c, "/v1/networks")
}

// Tunnels implements [inspect.Source].
func (c *Client) Tunnels(ctx context.Context) ([]inspect.Tunnel, error) {
	return get[[]inspect.Tunnel](ctx, c, "/v1/tunnels")
}

// Groups implements [inspect.Source].
func (c *Client) Groups(ctx context.Context) ([]inspect.Group, error) {
	return get[[]inspect.Group](ctx, c, "/v1/groups")
}

// Bridges implements [inspect.Source].
func (c *Client) Bridges(ctx context.Context) ([]inspect.Bridge, error) {
	return get[[]inspect.Bridge](ctx, c, "/v1/bridges")
}

// Flows implements [inspect.Source].
func (c *Client) Flows(ctx context.Context, bridge string) ([]inspect.Flow, error) {
	return get[[]inspect.Flow](ctx, c, "/v1/flows?bridge="+url.QueryEscape(bridge))
}

// Events implements [inspect.Source].
func (c *Client) Events(ctx context.Context) ([]inspect.Event, error) { return c.EventsAfter(ctx, 0) }

// EventsAfter are those with a greater number.
func (c *Client) EventsAfter(ctx context.Context, seq uint64) ([]inspect.Event, error) {
	return get[[]inspect.Event](ctx, c, "/v1/events?after="+strconv.FormatUint(seq, 10))
}
