// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// livez says whether the agent's loop goes round: it has answered a question in time. Whatever is wrong outside, a loop that
// goes round is alive; restarting it would mend nothing.
func (s *Server) livez(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	if _, err := s.src.Bridges(ctx); err != nil {
		say(w, http.StatusServiceUnavailable, "not alive", []string{err.Error()})
		return
	}
	say(w, http.StatusOK, "alive", nil)
}

// readyz says whether ports that were plugged in have what they need; see [Ready].
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	status, err := s.src.Status(ctx)
	if err != nil {
		say(w, http.StatusServiceUnavailable, "not ready", []string{err.Error()})
		return
	}
	ready, verdict := Ready(&status)
	code := http.StatusOK
	if !ready {
		code = http.StatusServiceUnavailable
	}
	reasons := slices.Clone(status.Reasons)
	for _, w := range status.Awaited {
		reasons = append(reasons, "the server may still send forwarding entries of network "+w.Network)
	}
	say(w, code, verdict, reasons)
}

// Ready says whether the host forwards as it should, and in a few words how that is known:
//
//   - "in sync": everything is as the server wants it, and the server knows; forwarding entries of new networks may still come;
//   - "wired": the switch has everything that is known to be wanted, either since this agent was in sync or since it
//     remembers what the server told an earlier one; the server may know more, and cannot be heard at the moment;
//   - otherwise not: the switch is out of reach, something is not in place, or nothing was ever known.
func Ready(s *inspect.Status) (ready bool, verdict string) {
	if s.InSync {
		return true, "in sync"
	}
	if s.Ready {
		return true, "wired, but not in sync"
	}
	return false, "not ready"
}

func say(w http.ResponseWriter, code int, verdict string, reasons []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, verdict)
	for _, r := range reasons {
		fmt.Fprintln(w, "-", strings.ReplaceAll(r, "\n", " "))
	}
}
