// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// Step is one table that a packet went through.
type Step struct {
	Bridge   string `json:"bridge"`
	Table    uint8  `json:"table"`
	Name     string `json:"table_name,omitempty"`
	Missed   bool   `json:"missed,omitempty"` // no flow matched
	Priority uint16 `json:"priority"`
	Match    string `json:"match,omitempty"`
	Cookie   uint64 `json:"-"`
	// Actions are those of the flow that were carried out.
	Actions []string `json:"actions,omitempty"`
	// Notes are what the switch says about them; Errors, what went wrong.
	Notes  []string `json:"notes,omitempty"`
	Errors []string `json:"errors,omitempty"`
	// Owner, Reason and State are the agent's, as of an inspect.Flow; State is empty when nobody was there to ask.
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	State  string `json:"state,omitempty"`
	// Tracked is the state of the connection, on the first step after the packet was looked up.
	Tracked string `json:"ct_state,omitempty"`
}

// Trace is what ofproto/trace printed.
type Trace struct {
	Steps []Step
	// Datapath are the actions in which each pass ended: one pass, and one more for each time that connection tracking was asked.
	Datapath []string
}

var (
	bridgeLine = regexp.MustCompile(`^bridge\("(.*)"\)$`)
	stepLine   = regexp.MustCompile(`^(\d+)\. (?:(.*), )?priority (\d+)(?:, cookie (0x[0-9a-f]+))?$`)
	missLine   = regexp.MustCompile(`^(\d+)\. No match\.?$`)
	resumeLine = regexp.MustCompile(`^recirc\(0x[0-9a-f]+\) - resume conntrack with (?:default )?ct_state=(\S+)`)
)

// parser reads the lines of ofproto/trace. Bridges nest when a packet is flooded; depth is told by indentation.
type parser struct {
	out   Trace
	stack []scope
	// forks are the bridges on which packets were handed to connection tracking, in the order in which they come back. The
	// switch prints the bridge on which the packet came in instead.
	forks   []string
	tracked string
	resumed string
	started bool
}

type scope struct {
	bridge string
	depth  int // of its steps; -1 until the first is seen
}

// Parse reads what ofproto/trace printed.
func Parse(text string) (*Trace, error) {
	var p parser
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) != "" {
			p.line(line)
		}
	}
	if !p.started {
		return nil, errors.New("not the output of ofproto/trace")
	}
	return &p.out, nil
}

func (p *parser) line(line string) {
	word := strings.TrimSpace(line)
	depth := (len(line) - len(strings.TrimLeft(line, " "))) / 4
	if m := resumeLine.FindStringSubmatch(word); m != nil {
		p.tracked, p.resumed, p.stack = m[1], "", nil
		if len(p.forks) > 0 {
			p.resumed, p.forks = p.forks[0], p.forks[1:]
		}
		return
	}
	if m := bridgeLine.FindStringSubmatch(word); m != nil {
		p.started = true
		for len(p.stack) > 0 && p.stack[len(p.stack)-1].depth > depth {
			p.stack = p.stack[:len(p.stack)-1]
		}
		name := m[1]
		if p.resumed != "" {
			name, p.resumed = p.resumed, ""
		}
		p.stack = append(p.stack, scope{name, -1})
		return
	}
	if actions, ok := strings.CutPrefix(word, "Datapath actions: "); ok {
		p.out.Datapath = append(p.out.Datapath, actions)
		p.stack = nil
		return
	}
	if len(p.stack) == 0 || strings.Trim(word, "-") == "" || word == "thaw" || strings.HasPrefix(word, "Resuming from table") ||
		strings.HasPrefix(word, "Final flow:") || strings.HasPrefix(word, "Megaflow:") {
		return
	}
	p.inBridge(word, depth)
}

// inBridge reads a step, or what belongs to the last one.
func (p *parser) inBridge(word string, depth int) {
	top := &p.stack[len(p.stack)-1]
	if top.depth < 0 {
		top.depth = depth
	}
	for len(p.stack) > 1 && p.stack[len(p.stack)-1].depth > depth {
		p.stack = p.stack[:len(p.stack)-1]
	}
	s := Step{Bridge: p.stack[len(p.stack)-1].bridge, Tracked: p.tracked}
	if m := stepLine.FindStringSubmatch(word); m != nil {
		table, _ := strconv.ParseUint(m[1], 10, 8)
		priority, _ := strconv.ParseUint(m[3], 10, 16)
		s.Table, s.Match, s.Priority = uint8(table), m[2], uint16(priority)
		s.Cookie, _ = strconv.ParseUint(strings.TrimPrefix(m[4], "0x"), 16, 64)
		p.add(s)
		return
	}
	if m := missLine.FindStringSubmatch(word); m != nil {
		table, _ := strconv.ParseUint(m[1], 10, 8)
		s.Table, s.Missed = uint8(table), true
		p.add(s)
		return
	}
	if len(p.out.Steps) == 0 {
		return
	}
	last := &p.out.Steps[len(p.out.Steps)-1]
	if note, ok := strings.CutPrefix(word, "-> "); ok {
		if strings.Contains(note, "forked to recirculate") {
			p.forks = append(p.forks, last.Bridge)
		}
		last.Notes = append(last.Notes, note)
	} else if note, ok := strings.CutPrefix(word, ">> "); !ok {
		last.Actions = append(last.Actions, word)
	} else if !strings.HasPrefix(note, "suppressing side effects") { // of learning: a trace is not to change anything
		last.Errors = append(last.Errors, note)
	}
}

func (p *parser) add(s Step) {
	p.out.Steps = append(p.out.Steps, s)
	p.tracked = ""
}
