// SPDX-License-Identifier: Apache-2.0

//go:build integration

package options

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

type question struct {
	Kind  string `json:"kind"`
	Value any    `json:"value"`
}

// TestValidationEqualsNeutron asks neutron-lib about generated values of the
// options that have a form of their own.
func TestValidationEqualsNeutron(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	number := func() string { return pick("", "0", "1", "1000", "-1", "1.5", "x", "007") }
	var questions []question
	for range 3000 {
		q := question{Kind: pick("mappings", "bandwidths", "without", "with", "inventory", "mac")}
		var items []string
		for range r.IntN(3) {
			switch q.Kind {
			case "mappings":
				items = append(items, pick("p1", "p2", "", " p1 ")+pick(":", ":", ":", "", "::")+pick("br-1", "br-2", "", " br-1"))
			case "without":
				items = append(items, pick("h", "", "this-host")+pick(":", ":", "", "::")+number())
			default:
				items = append(items, pick("a", "b", "", "this-host")+pick(":", ":", "", "::")+number()+pick(":", ":", "", "::")+number())
			}
		}
		q.Value = append([]string{}, items...)
		switch q.Kind {
		case "inventory":
			fields := map[string]string{}
			for range r.IntN(3) {
				fields[pick("allocation_ratio", "min_unit", "max_unit", "step_size", "reserved", "other")] = pick("0", "1", "1.5", "-1", "", "x")
			}
			q.Value = fields
		case "mac":
			q.Value = pick("fa:16:3e:00:00:00", "FA:16:3E:4f:00:00", "f1:16:3e:00:00:00", "fa:16:3e:00:00", "fa-16-3e-00-00-00", "", "fa:16:3e:00:00:0g", "a2:16:3e:00:00:00:00")
		}
		questions = append(questions, q)
	}
	input, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "testdata/neutron_validate.py")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("asking neutron-lib (package python3-neutron-lib): %v", err)
	}
	var answers []*struct{ Value any }
	if err := json.Unmarshal(data, &answers); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i, q := range questions {
		mine, err := answer(q)
		if answers[i] == nil {
			refused++
		}
		switch {
		case (err != nil) != (answers[i] == nil):
			t.Errorf("%v: Neutron says %v, we say %v", q, answers[i], err)
		case err == nil && cmp.Diff(answers[i].Value, mine) != "":
			t.Errorf("%v (-Neutron +ours): %s", q, cmp.Diff(answers[i].Value, mine))
		}
	}
	t.Logf("%d values, %d refused by both", len(questions), refused)
}

// answer gives our reading the form of Neutron's.
func answer(q question) (any, error) {
	items, _ := q.Value.([]string)
	out := map[string]any{}
	rate := func(n *int) any {
		if n == nil {
			return nil
		}
		return float64(*n)
	}
	directed := func(rates map[string]Rates, err error) (any, error) {
		for name, r := range rates {
			out[name] = map[string]any{"egress": rate(r.Egress), "ingress": rate(r.Ingress)}
		}
		return out, err
	}
	switch q.Kind {
	case "mappings":
		var mappings []Mapping
		err := setMappings(&mappings, items)
		for _, m := range mappings {
			out[m.Physnet] = m.Bridge
		}
		return out, err
	case "bandwidths":
		return directed(parseRates(items, "", "egress", "ingress"))
	case "with":
		return directed(parseHostRates(items, "this-host", "", "egress", "ingress"))
	case "without":
		rates, err := parseHostRates(items, "this-host", "", "any")
		for name, r := range rates {
			out[name] = map[string]any{"any": rate(r.Any)}
		}
		return out, err
	case "mac":
		o := &Options{Default: Default{BaseMAC: q.Value.(string)}, conf: emptyConfig()}
		for _, p := range checkBaseMAC(o) {
			return nil, p
		}
		return q.Value, nil
	}
	var pairs []config.Pair
	for k, v := range q.Value.(map[string]string) {
		pairs = append(pairs, config.Pair{Key: k, Value: v})
	}
	inv, err := parseInventory(pairs)
	for key, n := range map[string]*int{"min_unit": inv.MinUnit, "max_unit": inv.MaxUnit, "step_size": inv.StepSize, "reserved": inv.Reserved} {
		if n != nil {
			out[key] = float64(*n)
		}
	}
	if inv.AllocationRatio != nil {
		out["allocation_ratio"] = *inv.AllocationRatio
	}
	return out, err
}

func emptyConfig() *config.Config {
	schema, err := Schema()
	if err != nil {
		panic(err)
	}
	conf, err := config.Load(schema, config.Input{DefaultFiles: []string{}, DefaultDirs: []string{}})
	if err != nil {
		panic(strings.TrimSpace(err.Error()))
	}
	return conf
}
