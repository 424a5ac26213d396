// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// Status is what runs. The tags are the format of `lab status --json`.
type Status struct {
	Dir    string       `json:"dir"`
	Ready  bool         `json:"ready"`
	API    string       `json:"api"`
	Broker string       `json:"broker"`
	Parts  []PartStatus `json:"parts"`
	Hosts  []HostStatus `json:"hosts"`
	VMs    []VM         `json:"vms"`
	// Ports counts the ports of the API by status.
	Ports map[string]int `json:"ports"`
	// Errors are questions that nobody answered.
	Errors []string `json:"errors,omitempty"`
}

// PartStatus is one process.
type PartStatus struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"` // 0 when it does not run
	Since   time.Time `json:"since,omitzero"`
	Address string    `json:"address,omitempty"`
	// Source is the version and the Debian suite that the part comes from.
	Source string `json:"source,omitempty"`
}

// HostStatus is one host.
type HostStatus struct {
	Name    string       `json:"name"`
	Netns   string       `json:"netns"`
	MgmtIP  string       `json:"mgmt_ip"`
	LocalIP string       `json:"local_ip"`
	Parts   []PartStatus `json:"parts"`
	// Agent is the kind that runs, empty for none. Alive is what the server thinks, which may lag by 75 s.
	Agent     AgentKind  `json:"agent,omitempty"`
	Alive     bool       `json:"alive"`
	Heartbeat *time.Time `json:"heartbeat,omitempty"`
}

// Status asks every part.
func (l *Lab) Status(ctx context.Context) Status {
	s := Status{Dir: l.dir, Ready: l.snapshot().Ready, API: l.apiURL(), Ports: map[string]int{}}
	s.Broker = l.broker.Addr()
	sources := l.Sources()
	s.Parts = append(s.Parts,
		part("broker", l.broker.PID(), l.broker.Addr()).from(sources.Broker),
		part("database", l.database().PID(), l.databaseAddr()))
	all := l.serverProcesses()
	for i, p := range all {
		shown := part(strings.Replace(p.name, "neutron-server", "server", 1), p.PID(), "")
		if i == len(all)-1 { // the one that serves the API
			shown.Address = l.apiURL()
		}
		if l.snapshot().Server == RealServer {
			shown = shown.from(sources.Neutron)
		}
		s.Parts = append(s.Parts, shown)
	}
	for _, h := range l.Hosts() {
		hs, err := h.status(ctx)
		if err != nil {
			s.Errors = append(s.Errors, err.Error())
		}
		s.Hosts = append(s.Hosts, hs)
	}
	var err error
	if s.VMs, err = l.VMs(); err != nil {
		s.Errors = append(s.Errors, err.Error())
	}
	list, err := l.ports(ctx)
	if err != nil {
		s.Errors = append(s.Errors, err.Error())
	}
	for _, p := range list {
		s.Ports[p.Status]++
	}
	return s
}

func part(name string, pid int, address string) PartStatus {
	return PartStatus{Name: name, PID: pid, Since: daemon.Since(pid), Address: address}
}

// from says where the part comes from.
func (p PartStatus) from(s Source) PartStatus {
	p.Source = s.String()
	return p
}

func (h *Host) status(ctx context.Context) (HostStatus, error) {
	s := HostStatus{Name: h.name, Netns: h.netns, MgmtIP: h.MgmtIP(), LocalIP: h.LocalIP()}
	pids := h.Switch().Pids()
	for _, name := range []string{"ovsdb-server", "ovs-vswitchd"} {
		s.Parts = append(s.Parts, part(name, pids[name], "").from(h.lab.Sources().Switch))
	}
	if kind, pid := h.Agent(); pid != 0 {
		s.Agent = kind
		agent := part("agent "+string(kind), pid, "")
		if kind == Python {
			agent = agent.from(h.lab.Sources().Neutron)
		}
		s.Parts = append(s.Parts, agent)
	}
	a, err := h.AgentRecord(ctx)
	if err != nil || a == nil {
		return s, err
	}
	s.Alive, s.Heartbeat = a.Alive, &a.HeartbeatTimestamp
	return s, nil
}

// PIDs lists the processes of all parts by name; what does not run is left out.
func (s Status) PIDs() map[string]int {
	pids := map[string]int{}
	for _, p := range s.Parts {
		if p.PID != 0 {
			pids[p.Name] = p.PID
		}
	}
	for _, h := range s.Hosts {
		for _, p := range h.Parts {
			if p.PID != 0 {
				pids[h.Name+" "+p.Name] = p.PID
			}
		}
	}
	return pids
}

// String is the status for people.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lab in %s\n\n", s.Dir)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(p PartStatus, name, note string) {
		pid, since := "not running", "-"
		if p.PID != 0 {
			pid, since = fmt.Sprintf("pid %d", p.PID), p.Since.UTC().Format("15:04:05")+" UTC"
		}
		if p.Source != "" {
			note = strings.TrimSuffix(p.Source+", "+note, ", ")
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", name, pid, since, note)
	}
	for _, p := range s.Parts {
		row(p, p.Name, p.Address)
	}
	for _, h := range s.Hosts {
		for i, p := range h.Parts {
			note := ""
			switch {
			case i == 0:
				note = fmt.Sprintf("namespace %s, management %s, tunnels %s", h.Netns, h.MgmtIP, h.LocalIP)
			case strings.HasPrefix(p.Name, "agent"):
				note = h.agentNote()
			}
			row(p, h.Name+" "+p.Name, note)
		}
		if h.Agent == "" && h.Heartbeat != nil {
			row(PartStatus{}, h.Name+" agent", h.agentNote())
		}
	}
	for _, vm := range s.VMs {
		fmt.Fprintf(w, "  vm %s\ton %s\t%s\t%s, port %s, namespace %s\n", vm.Name, vm.Host, strings.Join(vm.IPs, " "), vm.MAC, vm.PortID, vm.Netns)
	}
	_ = w.Flush()
	fmt.Fprintf(&b, "\n  ports: %s\n", countNote(s.Ports))
	for _, e := range s.Errors {
		fmt.Fprintf(&b, "  error: %s\n", e)
	}
	return b.String()
}

func (h HostStatus) agentNote() string {
	switch {
	case h.Heartbeat == nil:
		return "has not reported yet"
	case h.Alive:
		return "alive, last report " + h.Heartbeat.UTC().Format("15:04:05") + " UTC"
	default:
		return "dead, last report " + h.Heartbeat.UTC().Format("15:04:05") + " UTC"
	}
}

func countNote(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	var parts []string
	for status, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, status))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Logs are the log files of a host, or of "server", "broker" or "database". Not all need exist.
func (l *Lab) Logs(of string) ([]string, error) {
	switch of {
	case "server":
		files := []string{l.path("jobs", "db-manage", "db-manage.log")}
		for _, p := range l.serverProcesses() {
			files = append(files, p.LogFile())
		}
		return files, nil
	case "broker":
		return []string{l.path("broker", "log", "rabbit.out"), l.path("broker", "log", "rabbit.log")}, nil
	case "database":
		return []string{l.path("jobs", "install-db", "install-db.log"), l.database().LogFile()}, nil
	}
	h, err := l.HostNamed(of)
	if err != nil {
		return nil, err
	}
	dir := h.Switch().Dir()
	return []string{
		dir + "/ovsdb-server.log", dir + "/ovs-vswitchd.log",
		h.AgentLog(Python), h.AgentLog(Patchbay), h.DHCPLog(), h.metadata().LogFile(),
	}, nil
}
