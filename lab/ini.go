// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
)

// ini is a configuration file in the making: sections and options in the order they were first set.
type ini struct {
	sections []string
	options  map[string][]option
}

type option struct{ name, value string }

// set gives an option a value, in place if it has one.
func (f *ini) set(section, name, value string) {
	if f.options == nil {
		f.options = map[string][]option{}
	}
	list, ok := f.options[section]
	if !ok {
		f.sections = append(f.sections, section)
	}
	for i := range list {
		if list[i].name == name {
			list[i].value = value
			return
		}
	}
	f.options[section] = append(list, option{name, value})
}

// setAll sets options given as "name = value" lines.
func (f *ini) setAll(section string, lines ...string) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		f.set(section, strings.TrimSpace(name), strings.TrimSpace(value))
	}
}

func (f *ini) String() string {
	var b strings.Builder
	for i, s := range f.sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[%s]\n", s)
		for _, o := range f.options[s] {
			// No blank after the sign when there is no value: trailing blanks are invisible.
			b.WriteString(strings.TrimRight(o.name+" = "+o.value, " ") + "\n")
		}
	}
	return b.String()
}

// parseOverride reads "section.option=value". Option names hold no dots, section names may.
func parseOverride(s string) (section, name, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	dot := strings.LastIndexByte(key, '.')
	if !ok || dot <= 0 || dot == len(key)-1 {
		return "", "", "", fmt.Errorf("%q is no override: write section.option=value", s)
	}
	return strings.TrimSpace(key[:dot]), strings.TrimSpace(key[dot+1:]), strings.TrimSpace(value), nil
}
