// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// openings are the times at which a port came into its network, as the database of its host told.
//
// Rules of iptables stand before the socket from which a switch without the kernel's datapath reads. While the switch is busy with a change of its
// ports, what passed before the rules were written waits there, and it is read when the port is in its network. So of what iptables stops a frame
// counts unless it was sent shortly before the port came into its network: rules that are missing then let pass what is sent afterwards, too.
type openings struct {
	conn net.Conn
	done chan struct{}
	mu   sync.Mutex
	at   []time.Time
}

// inSocket is how long a frame may wait in a socket of the switch: it was seen to be 120 ms.
const inSocket = 500 * time.Millisecond

// follow returns whether the port came into its network shortly after a time.
func (o *openings) follow(sent time.Time) bool {
	if o == nil || sent.IsZero() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.at {
		if wait := at.Sub(sent); wait > 0 && wait < inSocket {
			return true
		}
	}
	return false
}

func (o *openings) close() {
	if o != nil {
		_ = o.conn.Close()
		<-o.done
	}
}

// watch asks the database for changes of ports.
func (f *filtered) watch(t *testing.T, v *vm) *openings {
	t.Helper()
	c, err := net.Dial("unix", f.l.Host(v.host).Switch().DBSocket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(`{"id":1,"method":"monitor","params":["Open_vSwitch","e2e",{"Port":{"columns":["name","tag"]}}]}`)); err != nil {
		t.Fatal(err)
	}
	o := &openings{conn: c, done: make(chan struct{})}
	go o.read(v.PortID[:11])
	return o
}

// read takes the changes of one port.
func (o *openings) read(port string) {
	defer close(o.done)
	type row struct {
		New struct {
			Name string
			Tag  any
		}
	}
	open := false
	for in := json.NewDecoder(o.conn); ; {
		var m struct {
			ID     json.RawMessage
			Method string
			Params []json.RawMessage
		}
		if in.Decode(&m) != nil {
			return
		}
		if m.Method == "echo" {
			_, _ = o.conn.Write([]byte(`{"id":` + string(m.ID) + `,"result":[],"error":null}`))
		}
		var tables struct{ Port map[string]row }
		if m.Method != "update" || len(m.Params) != 2 || json.Unmarshal(m.Params[1], &tables) != nil {
			continue
		}
		for _, r := range tables.Port {
			if r.New.Name != "" && !strings.HasSuffix(r.New.Name, port) {
				continue
			}
			tag, _ := r.New.Tag.(float64)
			was := open
			if open = tag > 0 && tag != world.DeadVLAN; open && !was {
				o.mu.Lock()
				o.at = append(o.at, time.Now())
				o.mu.Unlock()
			}
		}
	}
}
