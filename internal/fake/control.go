// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Control is the control socket of an ovs-vswitchd, which ovs-appctl talks to.
type Control struct {
	RPC
	// Version is what the command version answers.
	Version string

	mu       sync.Mutex
	asked    []string
	listener net.Listener
}

// NewControl makes the socket and its pid file in a run directory. Answer answers a command and its arguments: a text, or an error.
func NewControl(dir string, answer func(args []string) (string, error)) (*Control, error) {
	const pid = "17"
	if err := os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte(pid+"\n"), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, "ovs-vswitchd."+pid+".ctl")) //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	c := &Control{Version: "3.1.0", listener: l}
	c.Handle = func(_ *RPCConn, method string, params []json.RawMessage) (any, string) {
		args := []string{method}
		for _, p := range params {
			var text string
			if err := json.Unmarshal(p, &text); err != nil {
				return nil, err.Error()
			}
			args = append(args, text)
		}
		c.mu.Lock()
		c.asked = append(c.asked, strings.Join(args, " "))
		c.mu.Unlock()
		if method == "version" {
			return "ovs-vswitchd (Open vSwitch) " + c.Version + "\n", ""
		}
		text, err := answer(args)
		if err != nil {
			return nil, err.Error()
		}
		return text, ""
	}
	c.wg.Go(func() { c.Accept(l) })
	return c, nil
}

// Asked are the commands that came, each with its arguments behind it.
func (c *Control) Asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// Close ends the switch.
func (c *Control) Close() {
	_ = c.listener.Close()
	c.RPC.Close()
}
