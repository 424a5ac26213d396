// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config

import (
	"strings"
)

// fileText is the content of a file about the options of the case.
func (g *generator) fileText(c *testCase) string {
	var b strings.Builder
	newline := "\n"
	switch {
	case g.rarely(20):
		newline = "\r\n"
	case g.rarely(60):
		newline = "\r"
	}
	if g.rarely(400) {
		b.WriteString("\ufeff")
	}
	if g.rarely(120) {
		b.WriteString("early = 1" + newline)
	}
	for range 1 + g.IntN(4) {
		g.section(&b, c, newline)
	}
	if g.rarely(150) {
		b.WriteString("bad = \xff\xfe" + newline)
	}
	text := b.String()
	if g.rarely(10) {
		text = strings.TrimSuffix(text, newline)
	}
	return text
}

func (g *generator) section(b *strings.Builder, c *testCase, newline string) {
	name := g.names[g.IntN(len(g.names))]
	header := name.Group
	switch g.IntN(12) {
	case 0:
		header = strings.ToUpper(header)
	case 1:
		header = strings.ToLower(header)
	case 2:
		header = pick(g, "default", "unknown", " "+header, header+" ", "a]b", "K", "İ")
	}
	header = "[" + header + "]"
	if g.rarely(300) {
		header = pick(g, "[]", "[", header+" # comment", header[:len(header)-1], "[[x]")
	}
	b.WriteString(header + pick(g, "", "", "", " ", "\t") + newline)
	for range g.IntN(7) {
		g.line(b, c, name.Group, newline)
	}
}

func (g *generator) line(b *strings.Builder, c *testCase, group, newline string) {
	switch g.IntN(40) {
	case 0, 1, 2:
		b.WriteString(pick(g, "# comment", "; comment", "#", "#x = 1", ";") + newline)
		return
	case 3, 4:
		b.WriteString(pick(g, "", " ", "\t", "\x0c") + newline)
		return
	}
	if g.rarely(400) {
		b.WriteString(pick(g, "nonsense", "= value", ": value", "  stray continuation", "\tstray", "\x0bkey = odd") + newline)
		return
	}
	key, o := g.key(c, group)
	value := "x"
	if o != nil {
		value = g.value(*o)
	}
	value = strings.NewReplacer("\n", newline+pick(g, " ", "\t", "    "), "\r", "").Replace(value)
	if g.rarely(15) {
		quote := pick(g, `"`, "'")
		value = quote + value + pick(g, quote, quote, quote, "'", "")
	}
	b.WriteString(key + pick(g, " = ", "=", " : ", ":", "= ", "\t=\t") + value + pick(g, "", "", "", " ", "\t") + newline)
	if g.rarely(25) {
		b.WriteString(pick(g, "  ", "\t") + pick(g, "more", "# not a comment", "a,b", "=", "$x") + newline)
	}
}

// key chooses a name that some option is known by, usually in this group.
func (g *generator) key(c *testCase, group string) (string, *Option) {
	var keys []string
	var options []*Option
	for i := range c.declared {
		o := &c.declared[i]
		for _, p := range o.places(orTop(o.Group)) {
			if sectionName(p.Group) == sectionName(group) || g.rarely(10) {
				keys, options = append(keys, p.Option), append(options, o)
			}
		}
	}
	if keys == nil || g.rarely(25) {
		return pick(g, "unknown", "log-file", "HOST", "x y", "a.b"), nil
	}
	i := g.IntN(len(keys))
	return keys[i], options[i]
}

// value is text for the option: usually what its type accepts, sometimes a
// reference, sometimes noise.
func (g *generator) value(o Option) string {
	switch {
	case g.rarely(5):
		return g.referring()
	case g.rarely(12):
		return g.noise()
	}
	s := g.valueOf(specOf(o.Type))
	for range g.IntN(12) {
		if _, err := orString(o.Type).Parse(s); err == nil {
			break
		}
		s = g.valueOf(specOf(o.Type))
	}
	return s
}

func specOf(t Type) typeSpec {
	switch t := t.(type) {
	case Bool:
		return typeSpec{Kind: "bool"}
	case Int:
		return typeSpec{Kind: "int"}
	case Float:
		return typeSpec{Kind: "float"}
	case List:
		item := specOf(orString(t.Item))
		return typeSpec{Kind: "list", Item: &item, Bounds: t.Bounds}
	case Dict:
		item := specOf(orString(t.Value))
		return typeSpec{Kind: "dict", Item: &item, Bounds: t.Bounds}
	case IP:
		return typeSpec{Kind: "ip"}
	case Hostname, HostAddress, HostDomain:
		return typeSpec{Kind: "hostname"}
	}
	return typeSpec{Kind: "string"}
}

func (g *generator) valueOf(t typeSpec) string {
	switch t.Kind {
	case "bool":
		return pick(g, "true", "False", "1", "0", "on", "OFF", "Yes", "no", "maybe", "", "2", " true", "TRUE")
	case "int", "port":
		return pick(g, "0", "1", "2", "42", "63", "64", "-1", "65535", "65536", "1_000", " 7 ", "+5", "0x10", "1.0", "", "007",
			"99999999999999999999", "١٢", "_1", "1__2", "1e3", "-0", "--1", "12a")
	case "float":
		return pick(g, "0", "1.5", "4.5", "4.6", "-1", "1e3", "1e400", "nan", "inf", "-Infinity", ".5", "5.", ".", "", "1_0.5", "1e", "0x1p3",
			"1e-7", "123456789012345680", "1e22", "0.0001", "-0.0", "1_e3", "1._5")
	case "ip":
		return pick(g, "192.0.2.1", "10.0.0.256", "::1", "fe80::1", "fe80::1%eth0", "1.2.3", "01.2.3.4", "::ffff:1.2.3.4", "", "2001:db8::/32",
			"1:2:3:4:5:6:7::", "::1.2.3", "[::1]", "1.2.3.4 ", "0.0.0.0", "1:2:3:4:5:6:7:8:9", "12345::")
	case "hostname", "hostaddress", "hostdomain":
		return pick(g, "compute-1", "a.example.org", "a.example.org.", "10.0.0.1", "10.0.0.256", "under_score", "-dash", "dash-", "a..b", "",
			"x.123", "x.1a", strings.Repeat("a", 64), strings.Repeat("a.", 130)+"b", "UPPER", "ünïcode", "a.-b", "::1", "ſ", "host ", "1", ".", "a-b.c-")
	case "list":
		var items []string
		for range g.IntN(4) {
			items = append(items, g.valueOf(*t.Item))
		}
		s := strings.Join(items, pick(g, ",", ", ", " , ", ",\n")) + pick(g, "", "", ",", ",,", " ,")
		return g.bound(t, s, "[", "]")
	case "dict":
		var items []string
		for range g.IntN(4) {
			items = append(items, pick(g, "a", "b", "key", "", " c ")+pick(g, ":", ":", ":", " : ", "=", "::")+g.valueOf(*t.Item))
		}
		return g.bound(t, strings.Join(items, pick(g, ",", ", ", ",\n")), "{", "}")
	}
	return pick(g, "a", "word", "two words", "", "system", "netdev", "NETDEV", "tcp:127.0.0.1:6640", "TCP:x", "a,b", "a:b", "physnet1:br-ex",
		"  padded  ", "'single'", `"double"`, `"open`, "line\nbreak", "ünïcode", "123", "tab\there", "a # b", "a ; b", "x=y", "[x]", "\\", "100%", "ab")
}

func (g *generator) bound(t typeSpec, s, left, right string) string {
	if !t.Bounds || g.rarely(8) {
		return s
	}
	return left + s + pick(g, right, right, right, "")
}

// referring mentions other options.
func (g *generator) referring() string {
	ref := func() string {
		n := g.names[g.IntN(len(g.names))]
		name := n.Option
		if g.rarely(2) {
			name = n.Group + "." + name
		}
		switch g.IntN(14) {
		case 0:
			return "$$" + name
		case 1:
			return `\$` + name
		case 2:
			return "${" + name
		case 3:
			return pick(g, "$", "$ ", "${}", "$1", "$unknown", "${un.known}", "$ovs", "$config_file", "$config_dir", "$é", "$K", "$.x", "$x.", "$$$x")
		case 4, 5, 6, 7:
			return "${" + name + "}"
		}
		return "$" + name
	}
	s := pick(g, "", "", "", "/var/", "a,", "k:") + ref()
	if g.rarely(3) {
		s += pick(g, "/", ",", "-", "", ",k2:") + ref()
	}
	return s + pick(g, "", "", "", "/sub", ":1")
}

func (g *generator) noise() string {
	alphabet := []string{"a", "Z", "0", "9", " ", "\t", ",", ":", "=", "$", "{", "}", "\\", "\"", "'", "[", "]", "#", ";", ".", "-", "_", "é", "\u00a0", "\u2003", "\x1f", "漢", "\n"}
	var b strings.Builder
	for range g.IntN(12) {
		b.WriteString(pick(g, alphabet...))
	}
	return b.String()
}
