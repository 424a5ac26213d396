// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// ParseErrorKind says what is wrong with a line.
type ParseErrorKind int

// What can be wrong with a line of a file.
const (
	NoAssignment           ParseErrorKind = iota + 1 // neither "=" nor ":"
	EmptyKey                                         // nothing before "=" or ":"
	UnexpectedContinuation                           // indented, but nothing to continue
	UnclosedSection                                  // "[" without "]" at the end of the line
	EmptySection                                     // "[]"
	NoSection                                        // an option before any section header
	NotText                                          // not UTF-8
	ByteOrderMark                                    // U+FEFF at the start of the file
)

func (k ParseErrorKind) String() string {
	switch k {
	case NoAssignment:
		return `this line is neither a section, a comment nor an option: there is no "=" or ":" in it`
	case EmptyKey:
		return `there is no option name before "=" or ":"`
	case UnexpectedContinuation:
		return "this line is indented, so it continues the value above it, but there is none: remove the indentation, " +
			"or the blank line or comment before it"
	case UnclosedSection:
		return `a section header must end with "]", without anything after it`
	case EmptySection:
		return "a section header without a name"
	case NoSection:
		return "an option before the first section header; did you mean to begin with [DEFAULT]?"
	case ByteOrderMark:
		return "the file begins with a byte order mark; save it as UTF-8 without one"
	case NotText:
		return "the file is not UTF-8 text"
	}
	return "cannot be read"
}

// ParseError is a line that is not configuration at all.
type ParseError struct {
	File string
	Line int
	Kind ParseErrorKind

	noticed int // line at which the original reports NoSection
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Kind)
}

// FileError is a file or directory that cannot be read. Err is usually an
// fs.PathError; errors.Is with fs.ErrNotExist and fs.ErrPermission works.
type FileError struct {
	Path string
	Dir  bool // a --config-dir
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + e.Reason() }

// Reason is the error without its path.
func (e *FileError) Reason() string {
	what := "the configuration file"
	if e.Dir {
		what = "the configuration directory"
	}
	return what + " cannot be read: " + reason(e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// UsageError is a command line that cannot be understood.
type UsageError struct {
	Arg    string // the argument at fault, without a value that could be secret
	Reason string
}

func (e *UsageError) Error() string {
	if e.Arg == "" {
		return "command line: " + e.Reason
	}
	return fmt.Sprintf("command line: %s: %s", e.Arg, e.Reason)
}

// ValueError is a value that the option's type does not accept.
type ValueError struct {
	Group  string // DEFAULT for the top level
	Option string
	Origin Origin
	Reason string // a sentence without subject: "is not …"; never contains a secret
	Err    error  // set when the fault lies in an option that the value refers to

	inFile bool // how the original classifies the error
	onLoad bool // noticed while the command line was validated
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("%s: [%s] %s %s", e.Origin, e.Group, e.Option, e.Reason)
}

func (e *ValueError) Unwrap() error { return e.Err }

// Root follows references to the option whose own text is at fault.
func (e *ValueError) Root() *ValueError {
	if inner, ok := e.Err.(*ValueError); ok { //nolint:errorlint // only a direct reference counts
		return inner.Root()
	}
	return e
}

// ReferenceErrorKind says why a "$name" in a value cannot be replaced.
type ReferenceErrorKind int

// Why a reference cannot be replaced.
const (
	UnknownOption ReferenceErrorKind = iota + 1
	UnknownGroup
	GroupReference // the name of a group, not of an option
	Cycle          // the option refers to itself
)

// ReferenceError is a "$name" that leads nowhere.
type ReferenceError struct {
	Group, Option string // the option whose text holds the reference
	Origin        Origin
	Ref           string // without the dollar sign; empty when the value is secret
	Meant         string // what Ref was probably meant to be, if that is known
	Kind          ReferenceErrorKind
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("%s: [%s] %s %s", e.Origin, e.Group, e.Option, e.Sentence())
}

// Sentence is the error without its place.
func (e *ReferenceError) Sentence() string {
	if e.Ref == "" {
		// The text belongs to a secret.
		if e.Kind == Cycle {
			return "refers to itself"
		}
		return "contains a dollar sign that refers to no option; write $$ for a dollar sign"
	}
	ref := "$" + e.Ref
	switch e.Kind {
	case UnknownGroup:
		if e.Meant != "" {
			return "refers to " + ref + ", but the name to use in a value is $" + e.Meant
		}
		return "refers to " + ref + ", but there is no such section; write $$ for a dollar sign"
	case GroupReference:
		return "refers to " + ref + ", which is a section, not an option; write $$ for a dollar sign"
	case Cycle:
		return "refers to itself through " + ref
	}
	return "refers to " + ref + ", but there is no such option; write $$ for a dollar sign"
}

// RequiredError is an option that must be set and is not.
type RequiredError struct{ Group, Option string }

func (e *RequiredError) Error() string {
	return fmt.Sprintf("[%s] %s must be set", e.Group, e.Option)
}

// UnknownOptionError is a question about an option that was never declared.
type UnknownOptionError struct{ Group, Option string }

func (e *UnknownOptionError) Error() string {
	return fmt.Sprintf("no option %s is declared in [%s]", e.Option, e.Group)
}

// Errors is several errors, the one that the original would report first.
type Errors []error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.Is and errors.As access to each error.
func (e Errors) Unwrap() []error { return e }

// join gives nil, the only error, or Errors.
func join(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return Errors(errs)
}

// reason is the cause of a file error without the path that stands before it.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
