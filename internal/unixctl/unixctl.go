// SPDX-License-Identifier: Apache-2.0

// Package unixctl speaks with the control socket of ovs-vswitchd, as ovs-appctl does: a command with arguments goes in, a
// text or a refusal comes out.
//
// Answers are read line by line, because that of a full connection table does not belong into memory as a whole. Commands may
// be sent ahead and their answers received afterwards, in the same order.
package unixctl

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// callTimeout bounds one command. A dump of a zone with 100,000 connections keeps ovs-vswitchd busy for a second or two.
const callTimeout = 15 * time.Second

// Client is one connection to a control socket. It is for one goroutine.
type Client struct {
	ctx     context.Context //nolint:containedctx // a client lives as long as one question
	conn    net.Conn
	answers answerReader
	stop    func() bool
}

// Dial connects to the ovs-vswitchd whose sockets and pid file are in a run directory. The end of ctx ends what the client does.
func Dial(ctx context.Context, runDir string) (*Client, error) {
	socket, err := socketIn(runDir)
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dialCtx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to ovs-vswitchd: %w", err)
	}
	c := &Client{ctx: ctx, conn: conn, answers: answerReader{r: bufio.NewReaderSize(conn, 32<<10)}}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

// socketIn finds the socket. It is named after the process, so it is looked for anew every time.
func socketIn(runDir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(runDir, "ovs-vswitchd.pid"))
	if err != nil {
		return "", fmt.Errorf("looking for ovs-vswitchd: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return "", fmt.Errorf("looking for ovs-vswitchd: its pid file holds %q", text)
	}
	return filepath.Join(runDir, fmt.Sprintf("ovs-vswitchd.%d.ctl", pid)), nil
}

// Close ends the connection.
func (c *Client) Close() {
	c.stop()
	_ = c.conn.Close()
}

// Call sends a command and returns its answer, without empty lines. A refusal is an error.
func (c *Client) Call(command string, args ...string) (string, error) {
	if err := c.Send(command, args...); err != nil {
		return "", err
	}
	var text strings.Builder
	refused, err := c.Receive(func(line string) error {
		text.WriteString(line + "\n")
		return nil
	})
	if err == nil && refused != "" {
		err = fmt.Errorf("%s: %s", command, refused)
	}
	return text.String(), err
}

// Send sends a command, whose answer Receive will read.
func (c *Client) Send(command string, args ...string) error {
	request, err := json.Marshal(map[string]any{"method": command, "params": append([]string{}, args...), "id": 0})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", command, err)
	}
	if err := c.extend(); err != nil {
		return err
	}
	if _, err := c.conn.Write(request); err != nil {
		return c.fail("asking", err)
	}
	return nil
}

// Receive reads the next answer and gives away its lines, except empty ones. Refused is why the switch did not do as told.
func (c *Client) Receive(line func(string) error) (refused string, err error) {
	if err := c.extend(); err != nil {
		return "", err
	}
	if refused, err = c.answers.read(line); err != nil {
		return "", c.fail("reading the answer of", err)
	}
	return strings.TrimSpace(refused), nil
}

// extend gives the next request its time.
func (c *Client) extend() error {
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	// Ended in between: the deadline in the past that AfterFunc set may have been overwritten just now.
	return c.ctx.Err()
}

func (c *Client) fail(what string, err error) error {
	if c.ctx.Err() != nil {
		err = c.ctx.Err()
	}
	return fmt.Errorf("%s ovs-vswitchd: %w", what, err)
}
