// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// generator makes configurations: mostly sane ones, with every oddity now and
// then.
type generator struct {
	*rand.Rand
	dir   string
	names []Name // everything that a file or a reference may mention
}

// testCase is a question to both sides. The exported fields go to the oracle.
type testCase struct {
	Options      []optionSpec      `json:"options"`
	Args         []string          `json:"args"`
	Env          map[string]string `json:"env"`
	Project      string            `json:"project"`
	DefaultFiles []string          `json:"default_files"`
	DefaultDirs  []string          `json:"default_dirs"`

	schema   *Schema
	declared []Option
	files    []string
}

type optionSpec struct {
	Group      string              `json:"group,omitempty"`
	Name       string              `json:"name"`
	Type       typeSpec            `json:"type"`
	Default    any                 `json:"default"`
	CLI        bool                `json:"cli"`
	Short      *string             `json:"short"`
	Multi      bool                `json:"multi"`
	Required   bool                `json:"required"`
	Mutable    bool                `json:"mutable"`
	Deprecated []map[string]string `json:"deprecated"`
}

type typeSpec struct {
	Kind       string    `json:"kind"`
	Choices    any       `json:"choices,omitempty"`
	Regex      string    `json:"regex,omitempty"`
	IgnoreCase bool      `json:"ignore_case,omitempty"`
	MaxLength  int       `json:"max_length,omitempty"`
	Quotes     bool      `json:"quotes,omitempty"`
	Bounds     bool      `json:"bounds,omitempty"`
	Min        any       `json:"min,omitempty"`
	Max        any       `json:"max,omitempty"`
	Version    int       `json:"version,omitempty"`
	Item       *typeSpec `json:"item,omitempty"`
}

func (c *testCase) input() Input {
	in := Input{Args: c.Args, Program: "prog", Project: c.Project, Version: true,
		DefaultFiles: c.DefaultFiles, DefaultDirs: c.DefaultDirs}
	for k, v := range c.Env {
		in.Env = append(in.Env, k+"="+v)
	}
	return in
}

// String shows the case to a person who has to find the difference.
func (c *testCase) String() string {
	var b strings.Builder
	data, _ := json.Marshal(c)
	fmt.Fprintf(&b, "%s\n", data)
	for _, f := range c.files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "--- %s\n%q\n", f, text)
	}
	return b.String()
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// rarely is true once in n times.
func (g *generator) rarely(n int) bool { return g.IntN(n) == 0 }

func (g *generator) newCase(t *testing.T) *testCase {
	t.Helper()
	c := g.newSchema()
	for c.schema == nil {
		c = g.newSchema()
	}
	c.Env = map[string]string{"HOME": g.dir}
	for _, o := range c.declared {
		if g.rarely(12) {
			c.Env["OS_"+strings.ToUpper(orTop(o.Group))+"__"+strings.ToUpper(o.dest())] = g.envText(g.value(o))
		}
	}
	g.layOut(t, c)
	return c
}

// envText: a variable cannot hold a zero byte.
func (g *generator) envText(s string) string { return strings.ReplaceAll(s, "\x00", "") }

func (g *generator) newSchema() *testCase {
	c := &testCase{}
	groups := []string{"", "", "ovs", "AGENT", "agent", "oslo_messaging_rabbit", "Mixed"}
	names := []string{"host", "debug", "log-file", "log_file", "use-json", "x", "y", "zed", "local_ip", "path", "mappings", "Case", "a_b", "verbose"}
	old := []string{"old", "old-name", "old_name", "host", "legacy", "logfile", ""}
	seen := map[string]bool{}
	for range 3 + g.IntN(8) {
		s := optionSpec{Group: pick(g, groups...), Name: pick(g, names...)}
		s.Type = g.typeSpec(0)
		s.Multi = g.rarely(8)
		if s.Multi && s.Type.Kind == "bool" {
			s.Type = typeSpec{Kind: "string"}
		}
		s.CLI, s.Required, s.Mutable = g.rarely(3), g.rarely(25), g.rarely(3)
		if s.CLI && g.rarely(3) {
			letter := pick(g, "d", "v", "l", "x")
			s.Short = &letter
		}
		for g.rarely(4) && len(s.Deprecated) < 3 {
			d := map[string]string{"group": pick(g, "", "", "DEFAULT", "ovs", "gone", "agent"), "name": pick(g, old...)}
			whole := slices.ContainsFunc(s.Deprecated, func(e map[string]string) bool { return e["name"] == "" })
			if d["name"] != "" || d["group"] != "" && !whole {
				s.Deprecated = append(s.Deprecated, d)
			}
		}
		s.Default = g.defaultFor(s)
		// One attribute per command line value: the flat space of the original
		// mixes values of different types otherwise, which no program can mean.
		attr := attribute(orTop(s.Group), strings.ReplaceAll(s.Name, "-", "_"))
		if seen[attr] {
			continue
		}
		seen[attr] = true
		c.Options = append(c.Options, s)
		c.declared = append(c.declared, s.option())
	}
	for _, o := range c.declared {
		for _, p := range o.places(orTop(o.Group)) {
			if p.attribute != attribute(orTop(o.Group), o.dest()) && seen[p.attribute] {
				return &testCase{}
			}
		}
	}
	schema, err := NewSchema(c.declared...)
	if err != nil {
		return &testCase{}
	}
	c.schema = schema
	g.names = nil
	for _, o := range c.schema.options {
		if o.Name == "config-file" || o.Name == "config-dir" || o.Name == "config_source" {
			continue
		}
		for _, p := range o.places(o.Group) {
			g.names = append(g.names, p.Name)
		}
	}
	return c
}

func (s optionSpec) option() Option {
	o := Option{Group: s.Group, Name: s.Name, Type: s.Type.make(), CLI: s.CLI, Multi: s.Multi, Required: s.Required, Mutable: s.Mutable}
	if s.Short != nil {
		o.Short = *s.Short
	}
	if s.Default != nil {
		o.Default = s.Default
		if list, ok := s.Default.([]string); ok && !s.Multi {
			o.Default = strings.Join(list, ",")
		}
	}
	for _, d := range s.Deprecated {
		o.Deprecated = append(o.Deprecated, Name{d["group"], d["name"]})
	}
	return o
}

func (t typeSpec) make() Type {
	limit := func(v any) *int64 {
		if v == nil {
			return nil
		}
		return Limit(int64(v.(int)))
	}
	switch t.Kind {
	case "bool":
		return Bool{}
	case "int":
		i := Int{Min: limit(t.Min), Max: limit(t.Max)}
		if t.Choices != nil {
			i.Choices = t.Choices.([]int64)
		}
		return i
	case "port":
		return Port()
	case "float":
		f := Float{}
		if t.Min != nil {
			f.Min = Limit(t.Min.(float64))
		}
		if t.Max != nil {
			f.Max = Limit(t.Max.(float64))
		}
		return f
	case "list":
		return List{Item: t.Item.make(), Bounds: t.Bounds}
	case "dict":
		return Dict{Value: t.Item.make(), Bounds: t.Bounds}
	case "ip":
		return IP{Version: t.Version}
	case "hostname":
		return Hostname{}
	case "hostaddress":
		return HostAddress{Version: t.Version}
	case "hostdomain":
		return HostDomain{Version: t.Version}
	}
	s := String{IgnoreCase: t.IgnoreCase, MaxLength: t.MaxLength, Quotes: t.Quotes}
	if t.Choices != nil {
		s.Choices = t.Choices.([]string)
	}
	if t.Regex != "" {
		expr := t.Regex
		if t.IgnoreCase {
			expr = "(?i)" + expr
		}
		s.Regexp = regexp.MustCompile(expr)
	}
	return s
}

func (g *generator) typeSpec(depth int) typeSpec {
	kinds := []string{"string", "string", "bool", "int", "port", "float", "ip", "hostname", "hostaddress", "hostdomain", "list", "list", "dict"}
	if depth > 0 {
		kinds = []string{"string", "string", "string", "int", "bool", "float", "ip", "hostaddress"}
		if depth == 1 && g.rarely(8) {
			kinds = []string{"list", "dict"}
		}
	}
	t := typeSpec{Kind: pick(g, kinds...)}
	switch t.Kind {
	case "string":
		switch g.IntN(8) {
		case 0:
			t.Choices, t.IgnoreCase = pick(g, []string{"system", "netdev"}, []string{"", "a", "B"}), g.rarely(2)
		case 1:
			t.Regex, t.IgnoreCase = pick(g, "^(tcp|ssl|unix):.+", "a.*b", "^[0-9]+"), g.rarely(2)
		case 2:
			t.MaxLength = 1 + g.IntN(8)
		}
		t.Quotes = depth > 0 && g.rarely(3)
	case "int":
		switch g.IntN(4) {
		case 0:
			t.Min = g.IntN(3)
		case 1:
			t.Min, t.Max = 0, 63
		case 2:
			if g.rarely(2) {
				t.Choices = []int64{1, 2, 42}
			}
		}
	case "float":
		if g.rarely(2) {
			t.Min, t.Max = 0.0, 4.5
		}
	case "list", "dict":
		item := g.typeSpec(depth + 1)
		t.Item, t.Bounds = &item, g.rarely(6)
	case "ip", "hostaddress", "hostdomain":
		t.Version = pick(g, 0, 0, 4, 6)
	}
	return t
}

// defaultFor gives a default that the type accepts, or a reference.
func (g *generator) defaultFor(s optionSpec) any {
	if g.rarely(2) {
		return nil
	}
	if g.rarely(10) && !s.Multi {
		return pick(g, "$host", "${zed}", "$y/sub", "\\$x", "$ovs.x", "$$", "$nothing")
	}
	if s.Multi && s.Type != (typeSpec{Kind: "string"}) {
		return nil // the original checks the whole list against the item's type
	}
	typ := s.Type.make()
	for range 20 {
		text := g.valueOf(s.Type)
		if _, err := typ.Parse(text); err != nil || (rawItem{text: text}).refers() {
			continue
		}
		if s.Multi {
			return []string{text}
		}
		return text
	}
	return nil
}

// rewrite changes the files for a reload.
func (g *generator) rewrite(t *testing.T, c *testCase) {
	t.Helper()
	for _, f := range c.files {
		switch g.IntN(3) {
		case 0:
			g.writeFile(t, c, f)
		case 1:
			data, err := os.ReadFile(f)
			if err != nil {
				continue // a case about a missing file
			}
			if err := os.WriteFile(f, append(data, []byte("\n"+g.fileText(c))...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// layOut decides on files, directories and the command line.
func (g *generator) layOut(t *testing.T, c *testCase) {
	t.Helper()
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.DefaultFiles, c.DefaultDirs = []string{}, []string{}
	for i := range g.IntN(4) {
		c.Args = append(c.Args, g.fileArgs(t, c, i)...)
	}
	for range g.IntN(4) {
		args := g.optionArgs(c)
		at := g.IntN(len(c.Args) + 1)
		if at > 0 && (c.Args[at-1] == "--config-file" || c.Args[at-1] == "--config-dir") && !g.rarely(10) {
			at = len(c.Args)
		}
		c.Args = slices.Insert(c.Args, at, args...)
	}
	switch g.IntN(8) {
	case 0:
		f := filepath.Join(g.dir, "default.conf")
		g.writeFile(t, c, f)
		c.DefaultFiles = []string{f}
	case 1:
		d := g.writeDir(t, c, "default.conf.d")
		c.DefaultDirs = []string{d, filepath.Join(g.dir, "absent.d")}
	case 2:
		g.layOutSearch(t, c)
	}
}

// layOutSearch puts files where they are found without being named.
func (g *generator) layOutSearch(t *testing.T, c *testCase) {
	t.Helper()
	c.DefaultFiles, c.DefaultDirs, c.Project = nil, nil, pick(g, "", "proj", "proj")
	c.Env["SNAP"], c.Env["SNAP_COMMON"] = filepath.Join(g.dir, "snap"), filepath.Join(g.dir, "common")
	for range 1 + g.IntN(5) {
		dir := pick(g, ".proj", ".", "snap/etc/proj", "common/etc/proj")
		base := pick(g, "proj", "prog")
		if g.rarely(3) {
			g.writeDir(t, c, filepath.Join(dir, base+".conf.d"))
			continue
		}
		g.writeFile(t, c, filepath.Join(g.dir, dir, base+".conf"))
	}
}

func (g *generator) fileArgs(t *testing.T, c *testCase, i int) []string {
	t.Helper()
	name := fmt.Sprintf("f%d.conf", i)
	path := filepath.Join(g.dir, name)
	spell := func(option, value string) []string {
		switch {
		case g.rarely(30):
			return []string{option[:len(option)-1], value} // an abbreviation
		case g.rarely(2):
			return []string{option + "=" + value}
		}
		return []string{option, value}
	}
	switch g.IntN(50) {
	case 0:
		return spell("--config-file", path+".absent")
	case 1:
		return spell("--config-dir", path+".absent")
	case 2:
		return spell("--config-file", g.dir) // a directory
	case 3:
		g.writeFile(t, c, path)
		return spell("--config-file", "~/"+name)
	case 4, 5, 6, 7, 8, 9, 10, 11, 12:
		return spell("--config-dir", g.writeDir(t, c, fmt.Sprintf("d%d", i)))
	}
	g.writeFile(t, c, path)
	return spell("--config-file", path)
}

func (g *generator) writeDir(t *testing.T, c *testCase, name string) string {
	t.Helper()
	dir := filepath.Join(g.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range g.IntN(4) {
		g.writeFile(t, c, filepath.Join(dir, pick(g, "10.conf", "9.conf", "a.conf", "B.conf", ".hidden.conf", "other.txt", "é.conf")))
	}
	return dir
}

func (g *generator) writeFile(t *testing.T, c *testCase, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(g.fileText(c)), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.files, path) {
		c.files = append(c.files, path)
	}
}

// optionArgs is one option on the command line, or something like it.
func (g *generator) optionArgs(c *testCase) []string {
	switch g.IntN(60) {
	case 0:
		return []string{pick(g, "--help", "-h", "--version")}
	case 1:
		return []string{pick(g, "--unknown", "stray", "--", "-", "", "-z", "--unknown=1", "-1", "-x y")}
	}
	var cli []int
	for i, o := range c.Options {
		if o.CLI {
			cli = append(cli, i)
		}
	}
	if cli == nil {
		return nil
	}
	i := pick(g, cli...)
	o := c.declared[i]
	o.Group = orTop(o.Group)
	spellings := o.flags("")
	_, boolean := o.Type.(Bool)
	if boolean {
		spellings = append(spellings, o.flags("no")...)
	}
	if o.Short != "" {
		spellings = append(spellings, "-"+o.Short)
	}
	s := pick(g, spellings...)
	if g.rarely(12) && len(s) > 4 {
		s = s[:len(s)-1-g.IntN(2)]
	}
	value := g.envText(g.value(o))
	switch {
	case boolean && !g.rarely(20):
		return []string{s}
	case len(s) == 2 && g.rarely(2):
		return []string{s + value}
	case g.rarely(2):
		return []string{s + "=" + value}
	case g.rarely(30):
		return []string{s}
	}
	return []string{s, value}
}
