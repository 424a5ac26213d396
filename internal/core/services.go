// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// services are what answers for extensions beside the loop. Extensions are given by their place in the list.
type services struct {
	room
	set     extension.Set
	given   map[int]*metaproxy.Service // what each was told last; none: it does not run
	states  map[int]metaproxy.State    // how each said it is
	retries pace.Backoff[int]
}

func newServices(r room, set extension.Set) services {
	return services{room: r, set: set, given: map[int]*metaproxy.Service{}, states: map[int]metaproxy.State{}, retries: pace.Backoff[int]{}}
}

// serviceDown lasts while a service does not answer.
const serviceDown = "metadata proxy does not listen, retrying"

// keepServices tells services what they are to be, if that is not what they were told last.
func (s *services) keepServices() {
	for i, ext := range s.set {
		if ext.Server == nil {
			continue
		}
		service := ext.Server.Service()
		switch before := s.given[i]; {
		case service == nil || service == before:
		case s.retries.Waiting(i, s.now()):
			s.wakeUp(s.retries[i].At)
		default:
			s.given[i] = service
			s.start(effect.Serve{Extension: i, Begin: before == nil, Service: service})
		}
	}
}

// served takes how a service is.
func (s *services) served(e effect.Served) {
	state := e.State
	if e.Err != nil {
		state = metaproxy.State{Reason: e.Err.Error()}
		delete(s.given, e.Extension)
		s.retries.Fail(e.Extension, s.now())
	} else {
		s.retries.Forget(e.Extension)
	}
	s.states[e.Extension] = state
	if state.Listening {
		s.log.forget(serviceDown)
		s.log.Info("metadata proxy listening", "address", s.given[e.Extension].Listen().String())
	} else {
		s.log.repeat(slog.LevelWarn, serviceDown, "reason", state.Reason)
	}
	s.set[e.Extension].Server.OnService(state)
}

// servicesBlocking says in sentences which services do not answer, and why.
func (s *services) servicesBlocking() (faults []string) {
	for i, ext := range s.set {
		if ext.Server == nil || s.states[i].Listening {
			continue
		}
		why := s.states[i].Reason
		if why == "" {
			why = "it starts"
		}
		faults = append(faults, "the proxy of extension "+ext.Name()+" does not listen: "+why)
	}
	return faults
}
