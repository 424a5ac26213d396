// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Objects is what the server knew of ports, networks, groups and rules at a point of a recording. A replay asks it where a live agent would
// ask the server, also for what the recorded agent did not need to ask: it had kept a push.
type Objects struct {
	byID map[string]json.RawMessage // by kind and id
}

// NewObjects returns a server that knows nothing.
func NewObjects() *Objects { return &Objects{byID: map[string]json.RawMessage{}} }

// Apply takes over the objects of an event: those that were pushed, and those that an agent was given when it asked.
func (o *Objects) Apply(e Event) error {
	var list []json.RawMessage
	deleted := false
	switch {
	case e.Cast == "push":
		var args struct {
			Event string            `json:"event_type"`
			List  []json.RawMessage `json:"resource_list"`
		}
		if err := json.Unmarshal(e.Args, &args); err != nil {
			return fmt.Errorf("reading a push: %w", err)
		}
		list, deleted = args.List, args.Event == "deleted"
	case e.Call == "pull" && e.Failure == "" && len(e.Result) > 0 && string(e.Result) != "null":
		list = []json.RawMessage{e.Result}
	case e.Call == "bulk_pull" && e.Failure == "":
		if err := json.Unmarshal(e.Result, &list); err != nil {
			return fmt.Errorf("reading the answer to a pull: %w", err)
		}
	}
	for _, object := range list {
		var head struct {
			Kind string `json:"versioned_object.name"`
			Data struct {
				ID string `json:"id"`
			} `json:"versioned_object.data"`
		}
		if err := json.Unmarshal(object, &head); err != nil {
			return fmt.Errorf("reading an object: %w", err)
		}
		key := head.Kind + " " + head.Data.ID
		if deleted {
			delete(o.byID, key)
		} else {
			o.byID[key] = object
		}
	}
	return nil
}

// Pull returns the object as the server would send it, nil when there is none.
func (o *Objects) Pull(kind, id string) json.RawMessage { return o.byID[kind+" "+id] }

// All returns all objects of a kind, ordered by their ids, for questions such as for the rules of a group.
func (o *Objects) All(kind string) []json.RawMessage {
	var all []json.RawMessage
	for _, key := range slices.Sorted(maps.Keys(o.byID)) {
		if strings.HasPrefix(key, kind+" ") {
			all = append(all, o.byID[key])
		}
	}
	return all
}
