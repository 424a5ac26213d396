// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// setMappings reads "physnet:bridge" entries. Both sides are unique.
func setMappings(f *[]Mapping, items []string) error {
	for _, item := range items {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		parts := strings.Split(item, ":")
		if len(parts) != 2 {
			return fmt.Errorf("has %q, which is not of the form physnet:bridge", item)
		}
		m := Mapping{strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1])}
		switch {
		case m.Physnet == "":
			return fmt.Errorf("has %q, which lacks the physical network before the colon", item)
		case m.Bridge == "":
			return fmt.Errorf("has %q, which lacks the bridge after the colon", item)
		case slices.ContainsFunc(*f, func(x Mapping) bool { return x.Physnet == m.Physnet }):
			return fmt.Errorf("maps the physical network %s twice", m.Physnet)
		case slices.ContainsFunc(*f, func(x Mapping) bool { return x.Bridge == m.Bridge }):
			return fmt.Errorf("maps two physical networks to the bridge %s", m.Bridge)
		}
		*f = append(*f, m)
	}
	return nil
}

// Devices reads "physnet:device" entries: the devices of each physical network. A physical network may have several.
func (f *FDB) Devices() (map[string][]string, error) {
	out := map[string][]string{}
	for _, item := range f.SharedDevices {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		physnet, device, ok := strings.Cut(item, ":")
		physnet, device = strings.TrimSpace(physnet), strings.TrimSpace(device)
		switch {
		case !ok || physnet == "" || device == "" || strings.Contains(device, ":"):
			return nil, fmt.Errorf("has %q, which is not of the form physnet:device", item)
		case slices.Contains(out[physnet], device):
			return nil, fmt.Errorf("maps %s to the device %s twice", physnet, device)
		}
		out[physnet] = append(out[physnet], device)
	}
	return out, nil
}

// parseRates reads "name:rate:rate" entries; a rate may be empty, and a name
// alone means that all are.
func parseRates(items []string, form string, kinds ...string) (map[string]Rates, error) {
	out := map[string]Rates{}
	for _, item := range items {
		parts := strings.Split(item, ":")
		if len(parts) == 1 {
			parts = append(parts, make([]string, len(kinds))...)
		}
		if len(parts) != len(kinds)+1 {
			return nil, fmt.Errorf("has %q, which is not of the form %s", item, form)
		}
		name := parts[0]
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("lists %q twice", name)
		}
		var rates Rates
		for i, kind := range kinds {
			n, err := parseRate(parts[i+1])
			if err != nil {
				return nil, fmt.Errorf("has %q, whose %s rate is not a whole number from 0", item, kind)
			}
			switch kind {
			case "egress":
				rates.Egress = n
			case "ingress":
				rates.Ingress = n
			default:
				rates.Any = n
			}
		}
		out[name] = rates
	}
	return out, nil
}

func parseRate(s string) (*int, error) {
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31)
	if err != nil {
		return nil, err
	}
	rate := int(n)
	return &rate, nil
}

// parseHostRates is parseRates with an empty name standing for this host.
func parseHostRates(items []string, host, form string, kinds ...string) (map[string]Rates, error) {
	out, err := parseRates(items, form, kinds...)
	if err != nil {
		return nil, err
	}
	if rates, ok := out[""]; ok {
		if _, twice := out[host]; twice {
			return nil, fmt.Errorf("lists this host, %s, twice: by its name and with an empty name", host)
		}
		delete(out, "")
		out[host] = rates
	}
	return out, nil
}

func parseInventory(pairs []config.Pair) (Inventory, error) {
	var inv Inventory
	for _, p := range pairs {
		value, _ := p.Value.(string)
		into := map[string]**int{"min_unit": &inv.MinUnit, "max_unit": &inv.MaxUnit, "step_size": &inv.StepSize, "reserved": &inv.Reserved}[p.Key]
		switch {
		case p.Key == "allocation_ratio":
			ratio, err := strconv.ParseFloat(value, 64)
			if err != nil || !(ratio >= 0) {
				return inv, fmt.Errorf("has the allocation_ratio %q, which is not a number from 0", value)
			}
			inv.AllocationRatio = &ratio
		case into == nil:
			return inv, fmt.Errorf("has %q, which is none of allocation_ratio, min_unit, max_unit, step_size, reserved", p.Key)
		default:
			n, err := parseRate(value)
			if err != nil || n == nil {
				return inv, fmt.Errorf("has the %s %q, which is not a whole number from 0", p.Key, value)
			}
			*into = n
		}
	}
	return inv, nil
}

// ethertypes keeps what can be read; the rest is advice, not an error, as in
// the Python agent.
func ethertypes(items []string) []uint16 {
	var out []uint16
	for _, item := range items {
		if t, ok := parseEthertype(item); ok {
			out = append(out, t)
		}
	}
	return out
}

func parseEthertype(s string) (uint16, bool) {
	digits, ok := strings.CutPrefix(s, "0x")
	n, err := strconv.ParseUint(digits, 16, 16)
	return uint16(n), ok && err == nil
}

// override sets rabbit options from the query of a transport URL. The error
// names the key, never the value: the URL is secret.
func override(o *Options, table []row, query map[string]string) error {
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		i := slices.IndexFunc(table, func(r row) bool { return r.Group == groupRabbit && r.answersTo(key) })
		if i < 0 {
			return o.at("DEFAULT", "transport_url", "has a query key that is no option of [%s]%s", groupRabbit, nearestKey(key, table))
		}
		if err := overrideOne(o, table[i], query[key]); err != nil {
			return o.at("DEFAULT", "transport_url", "sets %s, %s.", table[i].Name, err)
		}
	}
	for _, p := range checkRabbit(o) {
		return p
	}
	return nil
}

// answersTo: a URL may use an option's name, or an old name in the same group.
func (r row) answersTo(key string) bool {
	return r.Name == key || slices.ContainsFunc(r.Deprecated, func(n config.Name) bool {
		return n.Group == "" && n.Option == key
	})
}

func overrideOne(o *Options, r row, text string) error {
	schema, err := schemaOf([]row{r})
	if err != nil {
		return err
	}
	// The value of a URL is not interpolated.
	conf, err := config.Load(schema, config.Input{
		Env:          []string{"OS_" + strings.ToUpper(r.Group) + "__" + strings.ToUpper(r.Name) + "=" + strings.ReplaceAll(text, "$", "$$")},
		DefaultFiles: []string{}, DefaultDirs: []string{},
	})
	if err != nil {
		return err
	}
	v, err := conf.Get(r.Group, r.Name)
	if err != nil {
		return fmt.Errorf("whose value is not a valid %s", r.Type)
	}
	if r.refuse != nil && len(r.refuse(v)) > 0 {
		return fmt.Errorf("to a value that Patchbay does not support: %s", r.why)
	}
	if r.field == nil {
		return nil
	}
	if err := set(r.field(o), v); err != nil {
		return fmt.Errorf("whose value is not sensible")
	}
	return nil
}
