// SPDX-License-Identifier: Apache-2.0

//go:build integration

package options

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// declared is an option in the words of both sides.
type declared struct {
	Group      string       `json:"group"`
	Name       string       `json:"name"`
	Type       declaredType `json:"type"`
	Default    *string      `json:"default"`
	CLI        bool         `json:"cli"`
	Short      string       `json:"short"`
	Multi      bool         `json:"multi"`
	Secret     bool         `json:"secret"`
	Required   bool         `json:"required"`
	Mutable    bool         `json:"mutable"`
	Removal    bool         `json:"removal"`
	Deprecated []string     `json:"deprecated"`
}

type declaredType struct {
	Kind       string   `json:"kind"`
	Min        *float64 `json:"min"`
	Max        *float64 `json:"max"`
	Choices    []string `json:"choices"`
	IgnoreCase bool     `json:"ignore_case"`
}

// differences from Neutron 21 and oslo.messaging 14 that are meant, by option.
// The function brings Python's declaration to ours.
func meantDifferences() map[string]func(*declared) {
	secret := func(d *declared) { d.Secret = true } // a key or a password may be in it
	return map[string]func(*declared){
		// Later releases allow 0: no expiry.
		"oslo_messaging_rabbit.rabbit_transient_queues_ttl": func(d *declared) { d.Type.Min = new(float64) },
		// It has bounds since Debian's update 14.0.3 of oslo.messaging.
		"oslo_messaging_rabbit.kombu_reconnect_delay": func(d *declared) { most := 4.5; d.Type.Min, d.Type.Max = new(float64), &most },
		// The spelling was corrected in oslo.messaging 14.3.
		"oslo_messaging_rabbit.rabbit_quorum_max_memory_length": func(d *declared) { d.Deprecated = []string{".rabbit_quroum_max_memory_length"} },
		"oslo_messaging_rabbit.rabbit_quorum_max_memory_bytes":  func(d *declared) { d.Deprecated = []string{".rabbit_quroum_max_memory_bytes"} },
		"profiler.hmac_keys":         secret,
		"profiler.connection_string": secret,
	}
}

func TestSchemaEqualsNeutron(t *testing.T) {
	cmd := exec.Command("/usr/bin/python3", "testdata/neutron_options.py")
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("asking Neutron for its options (package neutron-openvswitch-agent): %v", err)
	}
	var theirs []declared
	if err := json.Unmarshal(data, &theirs); err != nil {
		t.Fatal(err)
	}
	mine := map[string]declared{}
	later := map[string]bool{}
	for _, r := range rows(thisMachine()) {
		d := declaration(r.Option)
		mine[d.Group+"."+d.Name] = d
		later[d.Group+"."+d.Name] = strings.Contains(r.releases, "later") || r.releases == "17 only" || r.releases == "30" || r.releases == notNeutrons
	}
	compared, other := 0, 0
	for _, d := range theirs {
		d.Name = strings.Replace(d.Name, "rabbit_quroum_", "rabbit_quorum_", 1)
		key := d.Group + "." + d.Name
		own, ok := mine[key]
		if !ok {
			if !notOurs(d) {
				t.Errorf("%s is not declared here, nor known as another program's", key)
			}
			other++
			continue
		}
		if f := meantDifferences()[key]; f != nil {
			f(&d)
		}
		if strings.HasPrefix(d.Group, "privsep") && slices.Contains([]string{"capabilities", "thread_pool_size"}, d.Name) {
			// Their defaults depend on the machine and on the context.
			d.Default, d.Type.Min = nil, nil
		}
		if diff := cmp.Diff(d, own); diff != "" {
			t.Errorf("%s (-Neutron +ours):\n%s", key, diff)
		}
		compared++
		delete(mine, key)
	}
	for key := range mine {
		if !later[key] {
			t.Errorf("%s is declared here, but Neutron 21 does not know it and no release is named", key)
		}
	}
	t.Logf("%d options equal, %d of other programs, %d of other releases", compared, other, len(mine))
}

// notOurs: the agent's process registers options of the server, too.
func notOurs(d declared) bool {
	name := strings.ReplaceAll(d.Name, "-", "_")
	group := fileGroup(d.Group)
	return slices.Contains(otherSections(), group) || slices.Contains(otherOptions()[group], name) ||
		slices.Contains([]string{"config_file", "config_dir", "config_source"}, name)
}

func declaration(o config.Option) declared {
	group := o.Group
	if group == "" {
		group = "DEFAULT"
	}
	d := declared{Group: group, Name: o.Name, CLI: o.CLI, Short: o.Short, Multi: o.Multi, Secret: o.Secret,
		Required: o.Required, Mutable: o.Mutable, Removal: o.Removal != "", Deprecated: []string{}}
	d.Type.Choices = []string{}
	number := func(n *int64) *float64 {
		if n == nil {
			return nil
		}
		return config.Limit(float64(*n))
	}
	switch x := o.Type.(type) {
	case nil:
		d.Type.Kind = "String"
	case config.String:
		d.Type.Kind, d.Type.IgnoreCase = "String", x.IgnoreCase
		d.Type.Choices = append(d.Type.Choices, x.Choices...)
	case config.Bool:
		d.Type.Kind = "Boolean"
	case config.Int:
		d.Type.Kind, d.Type.Min, d.Type.Max = "Integer", number(x.Min), number(x.Max)
		if x.String() == config.Port().String() {
			d.Type.Kind = "Port"
		}
	case config.Float:
		d.Type.Kind, d.Type.Min, d.Type.Max = "Float", x.Min, x.Max
	case config.List:
		d.Type.Kind = "List"
	case config.Dict:
		d.Type.Kind = "Dict"
	case config.IP:
		d.Type.Kind = "IPAddress"
	case config.HostAddress:
		d.Type.Kind = "HostAddress"
	}
	if o.Multi {
		d.Type.Kind = "MultiString"
	}
	switch def := o.Default.(type) {
	case nil:
	case []string:
		d.Default = text(strings.Join(def, ","))
	case float64:
		d.Default = text(fmt.Sprintf("%.1f", def))
	case int:
		d.Default = text(fmt.Sprint(def))
		if d.Type.Kind == "Float" {
			d.Default = text(fmt.Sprintf("%d.0", def))
		}
	default:
		d.Default = text(fmt.Sprint(def))
	}
	for _, n := range o.Deprecated {
		d.Deprecated = append(d.Deprecated, n.Group+"."+strings.ReplaceAll(n.Option, "-", "_"))
	}
	slices.Sort(d.Deprecated)
	return d
}

func text(s string) *string { return &s }
