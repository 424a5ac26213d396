// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"strings"
)

// archive is the txtar format of Go's own tests: a comment, then sections that begin with a line "-- name --".
type archive struct {
	comment  string
	sections []section
}

type section struct {
	name string
	data []byte
}

func parseArchive(text []byte) archive {
	var a archive
	for line := range bytes.Lines(text) {
		trimmed := strings.TrimSuffix(string(line), "\n")
		name, begins := strings.CutPrefix(trimmed, "-- ")
		name, ends := strings.CutSuffix(name, " --")
		switch {
		case begins && ends:
			a.sections = append(a.sections, section{name: name})
		case len(a.sections) == 0:
			a.comment += string(line)
		default:
			s := &a.sections[len(a.sections)-1]
			s.data = append(s.data, line...)
		}
	}
	return a
}

func (a *archive) add(name string, data []byte) {
	a.sections = append(a.sections, section{name: name, data: data})
}

func (a *archive) format() []byte {
	var b bytes.Buffer
	b.WriteString(a.comment)
	for _, s := range a.sections {
		b.WriteString("-- " + s.name + " --\n")
		b.Write(s.data)
	}
	return b.Bytes()
}
