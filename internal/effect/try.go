// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"fmt"
	"runtime"
	"strings"
)

// Panic is a panic as an error.
type Panic struct {
	What  string // was being done
	Value any
	Where string // the functions that it went through, without addresses, so that the same one reads the same
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// maxFrames is how many functions of a panic are named.
const maxFrames = 12

// Try runs work and returns its error, or its panic as one. A probe, if there is one, is told at the beginning and the end what is being done.
func Try(probe func(what string), what string, work func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Panic{what, r, frames()}
		}
	}()
	if probe != nil {
		probe(what)
		err = work()
		probe(what)
		return err
	}
	return work()
}

// frames names the functions that a panic went through, the innermost first.
func frames() string {
	var pcs [64]uintptr
	all := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var out []string
	for len(out) < maxFrames {
		f, more := all.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
			name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
			out = append(out, fmt.Sprintf("%s:%d", name, f.Line))
		}
		if !more {
			break
		}
	}
	return strings.Join(out, " < ")
}
