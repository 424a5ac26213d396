// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// iniFile is a parsed configuration file: what it says, in its own words and
// order, with the line of everything.
type iniFile struct {
	Path        string
	Sections    []iniSection
	Assignments []assignment
}

// iniSection is one section header. A section may be opened several times.
type iniSection struct {
	Name string // as written, between the brackets
	Line int
}

// assignment is one "key = value", continuation lines included.
type assignment struct {
	Section string // as written
	Key     string
	Value   string // lines joined with "\n", not yet interpolated
	Line    int    // line of the key
}

func (a assignment) in(file string) Setting { return Setting{a.Section, a.Key, a.Value, a.Line, file} }

// parseFile reads the text of a configuration file. The error, if any, is a
// [*ParseError] for the first line that is wrong; it never quotes the line,
// which could hold a secret.
func parseFile(path string, data []byte) (*iniFile, error) {
	if !utf8.Valid(data) {
		line := 1 + bytes.Count(data[:invalidAt(data)], []byte("\n"))
		return nil, &ParseError{File: path, Line: line, Kind: NotText}
	}
	p := parser{file: &iniFile{Path: path}}
	if err := p.parse(string(data)); err != nil {
		return nil, err
	}
	return p.file, nil
}

func invalidAt(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

type parser struct {
	file *iniFile
	line int // of the text being looked at, from 1

	key     string // "" when no assignment is open
	keyLine int
	value   []string
	section string // "" before the first header
}

func (p *parser) parse(text string) error {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		p.line++
		if err := p.parseLine(rstrip(line)); err != nil {
			return err
		}
	}
	return p.flush()
}

func (p *parser) parseLine(line string) error {
	if line != "" && (line[0] == ' ' || line[0] == '\t') {
		if p.key == "" {
			return p.fail(UnexpectedContinuation)
		}
		p.value = append(p.value, lstrip(line))
		return nil
	}
	if err := p.flush(); err != nil || line == "" {
		return err
	}
	switch line[0] {
	case '[':
		return p.openSection(line)
	case '#', ';':
		return nil
	}
	return p.openAssignment(line)
}

func (p *parser) openSection(line string) error {
	if !strings.HasSuffix(line, "]") {
		return p.fail(UnclosedSection)
	}
	if len(line) <= 2 {
		return p.fail(EmptySection)
	}
	p.section = line[1 : len(line)-1]
	p.file.Sections = append(p.file.Sections, iniSection{Name: p.section, Line: p.line})
	return nil
}

func (p *parser) openAssignment(line string) error {
	at := strings.IndexAny(line, ":=")
	if at < 0 && p.line == 1 && strings.HasPrefix(line, "\ufeff") {
		return p.fail(ByteOrderMark)
	}
	if at < 0 {
		return p.fail(NoAssignment)
	}
	key, value := strip(line[:at]), strip(line[at+1:])
	if key == "" {
		return p.fail(EmptyKey)
	}
	if value != "" && value[0] == value[len(value)-1] && (value[0] == '"' || value[0] == '\'') {
		value = value[1:max(1, len(value)-1)]
	}
	p.key, p.keyLine, p.value = key, p.line, []string{value}
	return nil
}

// flush ends the open assignment, if there is one. Only now does the original
// notice that no section was opened yet, and so do we: an error on a later
// continuation line comes first.
func (p *parser) flush() error {
	if p.key == "" {
		return nil
	}
	if p.section == "" {
		return &ParseError{File: p.file.Path, Line: p.keyLine, Kind: NoSection, noticed: p.line}
	}
	p.file.Assignments = append(p.file.Assignments, assignment{
		Section: p.section, Key: p.key, Value: strings.Join(p.value, "\n"), Line: p.keyLine,
	})
	p.key, p.value = "", nil
	return nil
}

func (p *parser) fail(kind ParseErrorKind) error {
	return &ParseError{File: p.file.Path, Line: p.line, Kind: kind}
}

// sectionName gives the form in which section names are compared.
func sectionName(name string) string {
	if name == topLevel {
		return name
	}
	return lower(name)
}
