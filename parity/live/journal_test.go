// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/parity"
)

// call is one call of an agent to the server, and its answer once that has come.
type call struct {
	host   string
	method string
	args   json.RawMessage
	result json.RawMessage
	failed string
}

// entry is one thing that happened; exactly one of its three last fields is set.
type entry struct {
	hosts []string // that got it
	cast  *cast
	call  *call // entered when the answer arrives
	rows  []parity.RowChange
}

type cast struct {
	topic, method string
	args          json.RawMessage
}

// journal collects, in order, what agents are told and what they say, for all hosts.
type journal struct {
	mu      sync.Mutex
	entries []entry
	pending map[string]*call // by message id
	calls   []*call          // all since the last drain, answered or not
	last    time.Time        // when anything worth waiting for happened
	hosts   map[string]string
	running []string // hosts with an agent
}

func newJournal() *journal {
	return &journal{pending: map[string]*call{}, hosts: map[string]string{}, last: time.Now()}
}

// consumed are the topics an agent listens to, without the versions of object topics.
var consumed = []string{
	"q-agent-notifier-tunnel-update", "q-agent-notifier-tunnel-delete", "q-agent-notifier-l2population-update",
	"q-agent-notifier-dvr-update",
	"neutron-vo-Port", "neutron-vo-Network", "neutron-vo-SecurityGroup", "neutron-vo-SecurityGroupRule", "neutron-vo-AddressGroup",
	"neutron-vo-QosPolicy", "neutron-vo-SubPort",
}

// message is the inner message of oslo.messaging.
type message struct {
	Method  string          `json:"method"`
	Args    json.RawMessage `json:"args"`
	MsgID   string          `json:"_msg_id"`
	ReplyQ  string          `json:"_reply_q"`
	Result  json.RawMessage `json:"result"`
	Failure *string         `json:"failure"`
}

func decode(body []byte) (m message, ok bool) {
	var envelope struct {
		Message string `json:"oslo.message"`
	}
	if json.Unmarshal(body, &envelope) != nil || json.Unmarshal([]byte(envelope.Message), &m) != nil {
		return m, false
	}
	return m, true
}

// published takes down one message of the broker's firehose.
func (j *journal) published(p broker.Published) {
	m, ok := decode(p.Body)
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case m.Method == "" && m.MsgID != "":
		c := j.pending[m.MsgID]
		if c == nil {
			return
		}
		delete(j.pending, m.MsgID)
		c.result = m.Result
		if m.Failure != nil {
			var f struct {
				Class string `json:"class"`
			}
			_ = json.Unmarshal([]byte(*m.Failure), &f)
			c.failed = f.Class
		}
		j.add(entry{hosts: []string{c.host}, call: c})
	case m.ReplyQ != "":
		host := j.host(p.Connection)
		if host == "" || slices.Contains(parity.Idle, m.Method) {
			return
		}
		c := &call{host: host, method: m.Method, args: m.Args}
		j.pending[m.MsgID] = c
		j.calls = append(j.calls, c)
		j.last = time.Now()
	default:
		j.casted(p, m)
	}
}

func (j *journal) casted(p broker.Published, m message) {
	if len(p.Queues) == 0 {
		return // nobody listens, such as to l2population's entries without l2population
	}
	topic, fanout := strings.CutSuffix(p.Exchange, "_fanout")
	hosts := slices.Clone(j.running)
	if !fanout {
		if p.Exchange != "neutron" || len(p.Keys) == 0 {
			return
		}
		var host string
		topic, host, _ = strings.Cut(p.Keys[0], ".")
		if !slices.Contains(j.running, host) {
			return
		}
		hosts = []string{host}
	}
	for _, t := range consumed {
		if topic == t || strings.HasPrefix(topic, t+"-") {
			j.add(entry{hosts: hosts, cast: &cast{topic: topic, method: m.Method, args: m.Args}})
			return
		}
	}
}

// host finds the host of a connection, which the broker names "peer -> itself".
func (j *journal) host(connection string) string {
	peer, _, _ := strings.Cut(connection, ":")
	return j.hosts[peer]
}

func (j *journal) add(e entry) {
	j.entries = append(j.entries, e)
	j.last = time.Now()
}

// changed takes down rows that changed on a host.
func (j *journal) changed(host string, rows []parity.RowChange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = time.Now()
	if len(rows) > 0 {
		j.add(entry{hosts: []string{host}, rows: rows})
	}
}

// touch says that something happened that is worth waiting for.
func (j *journal) touch() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = time.Now()
}

// calm returns for how long nothing has happened; a call without an answer is something that happens.
func (j *journal) calm() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending) > 0 && time.Since(j.last) < 30*time.Second {
		return 0
	}
	return time.Since(j.last)
}

// drain returns what has been taken down since the last drain.
func (j *journal) drain() (entries []entry, calls []*call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	entries, calls = j.entries, j.calls
	j.entries, j.calls = nil, nil
	return entries, calls
}

func (j *journal) setRunning(hosts []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running = hosts
	clear(j.pending) // of agents that were stopped
}

// failed tells whether the server could not do what update_device_list asked for.
func failed(result json.RawMessage) bool {
	var r struct {
		Up   []string `json:"failed_devices_up"`
		Down []string `json:"failed_devices_down"`
	}
	return json.Unmarshal(result, &r) != nil || len(r.Up)+len(r.Down) > 0
}

// event makes an entry fit for a recording.
func (e *entry) event(c *parity.Canon) (parity.Event, error) {
	ev := parity.Event{Hosts: e.hosts}
	var err error
	switch {
	case e.cast != nil:
		ev.Cast, ev.Topic = e.cast.method, e.cast.topic
		ev.Args, err = c.JSON(e.cast.args)
	case e.call != nil:
		ev.Call, ev.Failure = e.call.method, e.call.failed
		if ev.Args, err = c.JSON(e.call.args); err != nil {
			return ev, err
		}
		if e.call.method == "update_device_list" && !failed(e.call.result) {
			return ev, nil // that all went well says itself
		}
		ev.Result, err = c.JSON(e.call.result)
	default:
		text, encodeErr := json.Marshal(e.rows)
		if encodeErr != nil {
			return ev, encodeErr
		}
		err = json.Unmarshal([]byte(c.Text(string(text))), &ev.Rows)
	}
	return ev, err
}
