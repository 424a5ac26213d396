// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Switch is how hosts are moved from one agent to the other.
type Switch struct {
	// Check and Plan are run before: a host where Check does not end with 0, or Plan with 0 or 1, is not touched.
	Check, Plan string
	// To moves a host, Verify says with status 0 that it is well, Back takes it back.
	To, Verify, Back string
	Canary, Batch    int
	// Pause separates batches. StopOn is after how many failures no further batch is begun.
	Pause  time.Duration
	StopOn int
	// After looks at the whole after a batch, with packets for instance; nil: nothing does. An error has the batch taken back.
	After func(ctx context.Context, batch []string) error
	// Tries is how often a host that does not verify is asked again, a second apart.
	Tries int
	// Explain says why a command of Patchbay failed, from the document that it printed; nil, or "": the last line that it printed does.
	Explain func(Answer) string
	// Say is told each step, for people and for a log.
	Say func(host, text string)
	// Now is the clock.
	Now func() time.Time
}

// ErrStopped says that a switch has ended before all hosts were switched.
type ErrStopped struct{ Failures int }

func (e ErrStopped) Error() string {
	return fmt.Sprintf("stopped: %d of the hosts could not be switched; the record says which, and the same command goes on", e.Failures)
}

// Switch moves the hosts in batches. It goes on where the record ends. After each batch it stops if too many hosts failed.
func (f *Fleet) Switch(ctx context.Context, r *Record, s *Switch) error {
	failures := 0
	for i, batch := range r.Batches(f.Hosts, s.Canary, s.Batch) {
		if i > 0 && !sleep(ctx, s.Pause) {
			return ctx.Err()
		}
		s.Say("", fmt.Sprintf("batch %d: %s", i+1, strings.Join(batch, " ")))
		if err := f.batch(ctx, r, s, batch); err != nil {
			return err
		}
		if failures += r.Failures(batch); failures >= max(s.StopOn, 1) {
			return ErrStopped{failures}
		}
	}
	if failures > 0 {
		return ErrStopped{failures}
	}
	return nil
}

// sleep waits, and returns false when the context ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// batch moves some hosts side by side: first all are looked at, so that one that refuses is known before another is touched.
func (f *Fleet) batch(ctx context.Context, r *Record, s *Switch, hosts []string) error {
	var failed error
	note := func(host string, state State, why string) {
		if err := r.Set(host, Host{State: state, Why: why, At: s.Now()}); err != nil && failed == nil {
			failed = err
		}
	}
	var good, moved, well []string
	step := func(hosts []string, command string, each func(a Answer)) {
		if failed == nil && command != "" {
			if err := f.Ask(ctx, hosts, command, each); err != nil && failed == nil {
				failed = err
			}
		}
	}
	refused := func(what string, most int, next *[]string) func(Answer) {
		return func(a Answer) {
			if a.Status > most {
				text := s.why(a)
				if a.Status != Unreachable {
					text = what + ": " + text
				}
				s.Say(a.Host, text)
				note(a.Host, Refused, text)
				return
			}
			*next = append(*next, a.Host)
		}
	}
	var planned []string
	step(hosts, s.Check, refused("its configuration is refused", 0, &planned))
	if s.Plan == "" {
		good = planned
	}
	step(planned, s.Plan, refused("its plan is not complete", 1, &good))
	for _, h := range good {
		note(h, Switching, "")
	}
	var bad []Answer
	step(good, s.To, func(a Answer) {
		if a.Status != 0 {
			s.Say(a.Host, "not switched: "+s.why(a))
			bad = append(bad, a)
			return
		}
		s.Say(a.Host, fmt.Sprintf("switched after %s", a.Took.Round(100*time.Millisecond)))
		moved = append(moved, a.Host)
	})
	bad = append(bad, f.verify(ctx, s, moved, &well, &failed)...)
	if s.After != nil && len(well) > 0 && failed == nil {
		if err := s.After(ctx, well); err != nil {
			s.Say("", "not well after the batch: "+err.Error())
			for _, h := range well {
				bad = append(bad, Answer{Host: h, Status: 1, Errs: "not well after the batch: " + err.Error()})
			}
			well = nil
		}
	}
	for _, h := range well {
		s.Say(h, "well")
		note(h, Switched, "")
	}
	// Also when the context has ended: a host is not left half-way.
	f.back(context.WithoutCancel(ctx), s, bad, note)
	return failed
}

// verify asks hosts until they are well, and returns the last answers of those that are not.
func (f *Fleet) verify(ctx context.Context, s *Switch, hosts []string, well *[]string, failed *error) []Answer {
	var bad []Answer
	for try := 0; len(hosts) > 0 && try < max(s.Tries, 1); try++ {
		if try > 0 && !sleep(ctx, time.Second) {
			break
		}
		bad = nil
		var again []string
		if err := f.Ask(ctx, hosts, s.Verify, func(a Answer) {
			if a.Status == 0 {
				*well = append(*well, a.Host)
				return
			}
			again, bad = append(again, a.Host), append(bad, a)
		}); err != nil {
			*failed = err
			break
		}
		hosts = again
	}
	for _, a := range bad {
		s.Say(a.Host, "not well: "+s.why(a))
	}
	return bad
}

// back takes hosts back to their old agent.
func (f *Fleet) back(ctx context.Context, s *Switch, bad []Answer, note func(string, State, string)) {
	reason, hosts := map[string]string{}, []string(nil)
	for _, a := range bad {
		reason[a.Host] = s.why(a)
		hosts = append(hosts, a.Host)
	}
	// The context does not end, so all are asked.
	_ = f.Ask(ctx, hosts, s.Back, func(a Answer) {
		if a.Status != 0 {
			s.Say(a.Host, "not taken back: "+s.why(a))
			note(a.Host, Stuck, reason[a.Host]+"; not taken back: "+s.why(a))
			return
		}
		s.Say(a.Host, "taken back to its old agent")
		note(a.Host, TakenBack, reason[a.Host])
	})
}

// why says why a command failed, as it said itself.
func (s *Switch) why(a Answer) string {
	text := ""
	if s.Explain != nil && a.Status != Unreachable {
		text = s.Explain(a)
	}
	if text == "" {
		text = a.Errs
	}
	if text == "" {
		lines := strings.Split(strings.TrimSpace(string(a.Out)), "\n")
		text = lines[len(lines)-1]
	}
	if a.Status == Unreachable {
		return strings.TrimSuffix("not reached: "+text, ": ")
	}
	if text == "" {
		return fmt.Sprintf("exit status %d", a.Status)
	}
	return text
}
