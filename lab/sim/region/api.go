// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// attributes of a resource in the API.

// Routes serves the part of the Networking API that the lab and the parity scenarios use.
func (s *Region) Routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			result, err := f(r)
			reply(w, r, result, err)
		})
	}
	handle("GET /v2.0/{kind}", s.list)
	handle("GET /v2.0/{kind}/{id}", s.get)
	handle("POST /v2.0/{kind}", s.create)
	handle("PUT /v2.0/{kind}/{id}", s.update)
	handle("DELETE /v2.0/{kind}/{id}", s.remove)
	handle("PUT /v2.0/address-groups/{id}/{how}", s.changeAddresses)
	handle("POST /v2.0/ports/{id}/bindings", func(r *http.Request) (any, error) {
		var body struct {
			Binding struct {
				Host string `json:"host"`
			} `json:"binding"`
		}
		if err := decode(r, &body); err != nil {
			return nil, err
		}
		return fields{"binding": fields{"host": body.Binding.Host}}, s.OfferBinding(r.Context(), r.PathValue("id"), body.Binding.Host)
	})
	handle("PUT /v2.0/ports/{id}/bindings/{host}/activate", func(r *http.Request) (any, error) {
		return fields{}, s.ActivateBinding(r.Context(), r.PathValue("id"), r.PathValue("host"))
	})
	handle("DELETE /v2.0/ports/{id}/bindings/{host}", func(r *http.Request) (any, error) {
		return nil, s.DropBinding(r.Context(), r.PathValue("id"), r.PathValue("host"))
	})
	return mux
}

// errBad is a request that makes no sense.
var errBad = errors.New("bad request")

func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errBad, err)
	}
	return nil
}

func reply(w http.ResponseWriter, r *http.Request, result any, err error) {
	status := map[string]int{http.MethodPost: http.StatusCreated, http.MethodDelete: http.StatusNoContent}[r.Method]
	switch {
	case errors.Is(err, ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, ErrInUse):
		status = http.StatusConflict
	case err != nil:
		status = http.StatusBadRequest
	case status == 0:
		status = http.StatusOK
	}
	if err != nil {
		result = fields{"NeutronError": fields{"type": "Simulated", "message": err.Error(), "detail": ""}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_ = json.NewEncoder(w).Encode(result) // the client has gone away
	}
}

// singular is what one resource of a collection is called in bodies.
func singular(kind string) string {
	return strings.ReplaceAll(strings.TrimSuffix(kind, "s"), "-", "_")
}

// all lists the resources of a collection; s.mu is held.
func (s *Region) all(kind string) ([]fields, error) {
	var list []fields
	switch kind {
	case "networks":
		list = attributesOf(s.networks, (*Network).attributes)
	case "subnets":
		list = attributesOf(s.subnets, (*Subnet).attributes)
	case "ports":
		list = attributesOf(s.ports, (*Port).attributes)
	case "security-groups":
		list = attributesOf(s.groups, (*Group).attributes)
	case "security-group-rules":
		list = attributesOf(s.rules, (*Rule).attributes)
	case "address-groups":
		list = attributesOf(s.addresses, (*AddressGroup).attributes)
	case "agents":
		list = attributesOf(s.agents, (*Agent).attributes)
	default:
		return nil, notFound("collection", kind)
	}
	slices.SortFunc(list, func(a, b fields) int { return strings.Compare(a["id"].(string), b["id"].(string)) })
	return list, nil
}

func attributesOf[T any](of map[string]*T, f func(*T) fields) []fields {
	list := make([]fields, 0, len(of))
	for _, v := range of {
		list = append(list, f(v))
	}
	return list
}

func (s *Region) list(r *http.Request) (any, error) {
	s.mu.Lock()
	list, err := s.all(r.PathValue("kind"))
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for key, wanted := range r.URL.Query() {
		if key == "fields" || key == "limit" || key == "marker" {
			continue
		}
		list = slices.DeleteFunc(list, func(f fields) bool {
			have := fmt.Sprint(f[key])
			return !slices.Contains(wanted, have)
		})
	}
	return fields{strings.ReplaceAll(r.PathValue("kind"), "-", "_"): list}, nil
}

func (s *Region) get(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.one(r.PathValue("kind"), r.PathValue("id"))
}

func (s *Region) one(kind, id string) (any, error) {
	list, err := s.all(kind)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if f["id"] == id {
			return fields{singular(kind): f}, nil
		}
	}
	return nil, notFound(singular(kind), id)
}

// shown is the resource after a change.
func (s *Region) shown(kind, id string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.one(kind, id)
}

func (s *Region) create(r *http.Request) (any, error) {
	kind, ctx := r.PathValue("kind"), r.Context()
	var body struct {
		Network *NetworkSpec `json:"network"`
		Subnet  *SubnetSpec  `json:"subnet"`
		Port    *PortSpec    `json:"port"`
		Ports   []PortSpec   `json:"ports"`
		Group   *GroupSpec   `json:"security_group"`
		Rule    *RuleSpec    `json:"security_group_rule"`
		Rules   []RuleSpec   `json:"security_group_rules"`
		Named   *struct {
			Name      string   `json:"name"`
			Project   string   `json:"tenant_id"`
			Addresses []string `json:"addresses"`
		} `json:"address_group"`
	}
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	switch {
	case body.Network != nil:
		n, err := s.CreateNetwork(ctx, *body.Network)
		return shown(s, kind, n, err, func(n *Network) string { return n.ID })
	case body.Subnet != nil:
		sub, err := s.CreateSubnet(ctx, *body.Subnet)
		return shown(s, kind, sub, err, func(n *Subnet) string { return n.ID })
	case body.Port != nil:
		p, err := s.CreatePort(ctx, *body.Port)
		if err != nil {
			return nil, err
		}
		return fields{"port": p.attributes()}, nil
	case len(body.Ports) > 0:
		made, err := s.CreatePorts(ctx, body.Ports...)
		list := []fields{}
		for _, p := range made {
			list = append(list, p.attributes())
		}
		return fields{"ports": list}, err
	case body.Group != nil:
		g, err := s.CreateGroup(ctx, *body.Group)
		return shown(s, kind, g, err, func(g *Group) string { return g.ID })
	case body.Rule != nil:
		rule, err := s.CreateRule(ctx, *body.Rule)
		return shown(s, kind, rule, err, func(r *Rule) string { return r.ID })
	case len(body.Rules) > 0:
		list := []fields{}
		for _, spec := range body.Rules {
			rule, err := s.CreateRule(ctx, spec)
			if err != nil {
				return nil, err
			}
			list = append(list, rule.attributes())
		}
		return fields{"security_group_rules": list}, nil
	case body.Named != nil:
		g, err := s.CreateAddressGroup(ctx, body.Named.Name, body.Named.Project, body.Named.Addresses...)
		return shown(s, kind, g, err, func(g *AddressGroup) string { return g.ID })
	}
	return nil, fmt.Errorf("%w: nothing to create", errBad)
}

func shown[T any](s *Region, kind string, made *T, err error, id func(*T) string) (any, error) {
	if err != nil {
		return nil, err
	}
	return s.shown(kind, id(made), nil)
}

func (s *Region) update(r *http.Request) (any, error) {
	kind, id, ctx := r.PathValue("kind"), r.PathValue("id"), r.Context()
	var body struct {
		Network *NetworkSpec `json:"network"`
		Port    *PortSpec    `json:"port"`
		Group   *GroupSpec   `json:"security_group"`
	}
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	switch {
	case body.Network != nil:
		return s.shown(kind, id, s.UpdateNetwork(ctx, id, *body.Network))
	case body.Port != nil:
		p, err := s.UpdatePort(ctx, id, *body.Port)
		if err != nil {
			return nil, err
		}
		return fields{"port": p.attributes()}, nil
	case body.Group != nil:
		return s.shown(kind, id, s.UpdateGroup(ctx, id, *body.Group))
	}
	return nil, fmt.Errorf("%w: nothing to change", errBad)
}

func (s *Region) remove(r *http.Request) (any, error) {
	id, ctx := r.PathValue("id"), r.Context()
	switch kind := r.PathValue("kind"); kind {
	case "networks":
		return nil, s.DeleteNetwork(ctx, id)
	case "ports":
		return nil, s.DeletePort(ctx, id)
	case "security-groups":
		return nil, s.DeleteGroup(ctx, id)
	case "security-group-rules":
		return nil, s.DeleteRule(ctx, id)
	case "address-groups":
		return nil, s.DeleteAddressGroup(ctx, id)
	default:
		return nil, notFound("collection", kind)
	}
}

// changeAddresses adds addresses to an address group, or takes some away.
func (s *Region) changeAddresses(r *http.Request) (any, error) {
	id, add := r.PathValue("id"), r.PathValue("how") == "add_addresses"
	var body struct {
		Group struct {
			Addresses []string `json:"addresses"`
		} `json:"address_group"`
	}
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	var named []string
	for _, text := range body.Group.Addresses {
		p, err := asPrefix(text)
		if err != nil {
			return nil, err
		}
		named = append(named, p.String())
	}
	err := s.SetAddressGroup(r.Context(), id, func(now []string) []string {
		rest := slices.DeleteFunc(slices.Clone(now), func(a string) bool { return slices.Contains(named, a) })
		if add {
			return append(rest, named...)
		}
		return rest
	})
	return s.shown("address-groups", id, err)
}
