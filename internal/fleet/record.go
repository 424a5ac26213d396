// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// State is how far a host is.
type State string

// The states of a host in a switch. A host that is in none has not been begun.
const (
	Switching State = "switching"    // begun, and not known to have ended
	Switched  State = "switched"     // and found well
	TakenBack State = "taken back"   // it was not well, and runs its old agent again
	Refused   State = "refused"      // it was not touched: its configuration or its plan was not good
	Stuck     State = "needs a look" // it was not well, and could not be taken back
)

// Host is what the record says about one host.
type Host struct {
	State State     `json:"state"`
	Why   string    `json:"why,omitempty"`
	At    time.Time `json:"at"`
}

// Record is how far a switch is. It is kept in a file.
type Record struct {
	Hosts map[string]Host `json:"hosts"`
	path  string
}

// Open reads the record of a file, or begins one.
func Open(path string) (*Record, error) {
	r := &Record{Hosts: map[string]Host{}, path: path}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return nil, fmt.Errorf("reading how far the switch is: %w", err)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s is no record of a switch: %w", path, err)
	}
	if r.Hosts == nil {
		r.Hosts = map[string]Host{}
	}
	return r, nil
}

// Set notes the state of a host, in the file as well: whoever goes on knows what was begun.
func (r *Record) Set(host string, h Host) error {
	r.Hosts[host] = h
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(r.path+".new", append(data, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(r.path+".new", r.path)
	}
	if err != nil {
		return fmt.Errorf("noting how far the switch is in %s: %w", filepath.Base(r.path), err)
	}
	return nil
}

// Batches says in which order hosts are switched: canary hosts first, then so many at a time. Hosts that are switched already, or that
// need a look, are left out.
func (r *Record) Batches(hosts []string, canary, batch int) [][]string {
	rest := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { s := r.Hosts[h].State; return s == Switched || s == Stuck })
	done := len(hosts) - len(rest)
	var out [][]string
	if first := min(max(canary-done, 0), len(rest)); first > 0 {
		out, rest = append(out, rest[:first]), rest[first:]
	}
	for part := range slices.Chunk(rest, max(batch, 1)) {
		out = append(out, part)
	}
	return out
}

// Failures counts the hosts of a list that were not switched.
func (r *Record) Failures(hosts []string) int {
	n := 0
	for _, h := range hosts {
		if s := r.Hosts[h].State; s == TakenBack || s == Refused || s == Stuck {
			n++
		}
	}
	return n
}
