// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// summarise says in one line how the host is, and the facts around it.
func (p *page) summarise(h Host) {
	p.Taken = h.Time.UTC().Format("2006-01-02 15:04:05 UTC")
	for _, x := range p.Ports { // in the order of urgency, so each state is one run
		if n := len(p.Shares); n == 0 || p.Shares[n-1].Word != x.Word {
			p.Shares = append(p.Shares, share{Level: x.Level, Word: x.Word})
		}
		p.Shares[len(p.Shares)-1].parts++
	}
	p.Headline = headline(p.Host, p.Shares, len(p.Ports))
	slices.Reverse(p.Shares) // a bar begins with what is well
	drawBar(p.Shares)

	s := h.Status
	p.Facts = []string{labelled("patchbay", s.Version)}
	if up := since(s.Started, h.Time); up != "" {
		p.Facts = append(p.Facts, "running for "+up)
	}
	p.Facts = append(p.Facts, labelled("firewall", s.Firewall))
	if s.FromSnapshot {
		p.Facts = append(p.Facts, "from the snapshot: the server has not answered since the start")
	}
	p.Facts = slices.DeleteFunc(p.Facts, func(f string) bool { return f == "" })
	p.Peers = []peer{newPeer("switch", s.Switch, h.Time), newPeer("broker", s.Broker, h.Time), newPeer("server", s.Server, h.Time)}
	p.Errors = slices.Clone(s.Errors)
	slices.Reverse(p.Errors)
}

// judge is the one word on everything.
func (p *page) judge(inSync bool) {
	p.Level, p.Verdict = fine, "in sync"
	for _, q := range p.Problems {
		p.Level = worse(p.Level, q.Level)
	}
	switch {
	case !inSync:
		p.Level, p.Verdict = worse(p.Level, wait), "not in sync"
	case len(p.Problems) == 1:
		p.Verdict = "in sync, one thing is wrong"
	case len(p.Problems) > 1:
		p.Verdict = fmt.Sprintf("in sync, %s things are wrong", number(len(p.Problems)))
	}
}

// drawBar shares a bar out, so that a state of one port in a thousand can be seen.
func drawBar(shares []share) {
	const least = 0.006
	var total, x float64
	for _, s := range shares {
		total += float64(s.parts)
	}
	widths := make([]float64, len(shares))
	var sum float64
	for i, s := range shares {
		widths[i] = max(float64(s.parts)/total, least)
		sum += widths[i]
	}
	for i := range shares {
		w := widths[i] / sum * 100
		shares[i].Count = number(shares[i].parts)
		shares[i].X, shares[i].Width = fmt.Sprintf("%.2f", x), fmt.Sprintf("%.2f", w)
		x += w
	}
}

// headline is such as "hv1: 197 of 200 ports wired, 3 waiting".
func headline(host string, shares []share, total int) string {
	wired := 0
	var rest []string
	for _, s := range shares {
		if s.Level == fine {
			wired += s.parts
			continue
		}
		rest = append(rest, number(s.parts)+" "+s.Word)
	}
	switch {
	case total == 0:
		return host + ": no ports plugged in"
	case wired == total && total == 1:
		return host + ": its one port is wired"
	case wired == total:
		return fmt.Sprintf("%s: all %s ports wired", host, number(total))
	}
	return fmt.Sprintf("%s: %s of %s wired, %s", host, number(wired), count(total, "port"), strings.Join(rest, ", "))
}

func newPeer(name string, doc inspect.Peer, now time.Time) peer {
	x := peer{Name: name, Level: fine, Word: "up"}
	if !doc.Up {
		x.Level, x.Word = bad, "away"
	}
	x.Tip = lines(name+" is "+x.Word+labelled(":", doc.Error), doc.Detail, labelled("since", since(doc.Since, now)))
	return x
}

// namedMost is how many ports a problem names; the rest are counted. All are in the picture and in the table.
const namedMost = 10

// findProblems lists what is wrong, the most urgent first, with the reasons. Ports with the same reason are one problem.
func (p *page) findProblems(h Host) {
	if !h.Status.InSync {
		p.Problems = append(p.Problems, problem{Level: wait, What: "Not in sync", Reason: strings.Join(h.Status.Reasons, "; ")})
	}
	peers := []inspect.Peer{h.Status.Switch, h.Status.Broker, h.Status.Server}
	for i, x := range p.Peers {
		if x.Level != fine {
			p.Problems = append(p.Problems, problem{Level: x.Level, What: "The " + x.Name + " is away", Reason: peers[i].Error})
		}
	}
	for _, b := range h.Bridges {
		if v := newBridge(b); v.Level != fine {
			p.Problems = append(p.Problems, problem{Level: v.Level, What: "Bridge " + v.Name + ": " + v.Word, Reason: b.Error})
		}
	}
	if p.Bridge.Word == "missing" {
		p.Problems = append(p.Problems, problem{Level: bad, What: "There is no integration bridge", Reason: p.Bridge.Tip})
	}
	p.Problems = append(p.Problems, tunnelProblems(p.Tunnels)...)
	p.Problems = append(p.Problems, portProblems(p.Ports)...)
	for _, g := range h.Groups {
		if !g.Known {
			p.Problems = append(p.Problems, problem{
				Level: wait, What: "Group " + g.ID, Reason: fmt.Sprintf("its rules are not pulled yet; %s in it", count(len(g.Ports), "port")),
			})
		}
	}
	slices.SortStableFunc(p.Problems, func(a, b problem) int { return urgency(a.Level) - urgency(b.Level) })
}

func tunnelProblems(all []far) (list []problem) {
	for _, f := range all {
		if f.Level == fine {
			continue
		}
		if n := len(list); n > 0 && list[n-1].Level == f.Level && list[n-1].Reason == f.Error {
			list[n-1].What += ", " + f.Name
			continue
		}
		list = append(list, problem{Level: f.Level, What: "Tunnel " + f.Word + ": " + f.Name, Reason: f.Error})
	}
	return list
}

func portProblems(all []*port) []problem {
	type key struct{ word, why string }
	index := map[key]int{}
	var list []problem
	for _, x := range all {
		if x.Level != bad && x.Level != wait {
			continue
		}
		k := key{x.Word, x.Why}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, problem{Level: x.Level, Reason: x.Why})
		}
		list[i].Ports = append(list[i].Ports, x)
	}
	for i := range list {
		q := &list[i]
		q.What = count(len(q.Ports), "port") + " " + q.Ports[0].Word
		if more := len(q.Ports) - namedMost; more > 0 {
			q.Ports, q.More = q.Ports[:namedMost], "and "+number(more)+" more"
		}
	}
	return list
}
