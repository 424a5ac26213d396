// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// item is one command and what it shows.
type item struct {
	name    string
	section string
	command string // of a shell, in the top directory
	// paths are what the result depends on: files and directories, or names of pathSets.
	paths []string
	// servers: it starts real servers, so no other such item runs beside it.
	servers bool
	// cell: the parts are those of a lab of any release, and not the machine's.
	cell    bool
	figures []figure
	claims  []claim
	// short says what limits the figures that are not reached.
	short string
}

// claim is a row of docs/verification.md.
type claim struct {
	text   string
	wanted string
	// show is the figure as a reader wants it, with {name} for the figures of the item.
	show string
}

// figure is read out of what the command printed.
type figure struct {
	name string
	// pattern has one group; of several matches take says what counts.
	pattern string
	take    taking
	// want is what the figure has to be, such as "= 0", "<= 1.5" or ">= 20". Empty: it is only shown.
	want string
}

type taking int

const (
	last  taking = iota
	sum          // of numbers
	most         // the largest number
	count        // how many matches; the pattern needs no group
)

// read finds the figure in the output. ok is false if it is not there.
func (f figure) read(output string) (value string, ok bool) {
	matches := regexp.MustCompile("(?m)"+f.pattern).FindAllStringSubmatch(output, -1)
	if f.take == count {
		return strconv.Itoa(len(matches)), true
	}
	if len(matches) == 0 {
		return "", false
	}
	if f.take == last {
		return strings.TrimSpace(matches[len(matches)-1][1]), true
	}
	total, largest := 0.0, 0.0
	for _, m := range matches {
		n, err := number(m[1])
		if err != nil {
			return "", false
		}
		total, largest = total+n, max(largest, n)
	}
	if f.take == most {
		total = largest
	}
	return strconv.FormatFloat(math.Round(total*1000)/1000, 'f', -1, 64), true // 0.1 + 0.2 is 0.3
}

// number reads 1,234.5, and what stands before a unit.
func number(text string) (float64, error) {
	text = strings.ReplaceAll(strings.TrimSpace(text), ",", "")
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' })
	if end > 0 {
		text = text[:end]
	}
	return strconv.ParseFloat(text, 64)
}

// meets says whether the value is what the figure wants.
func (f figure) meets(value string) (bool, error) {
	if f.want == "" {
		return true, nil
	}
	op, bound, found := strings.Cut(f.want, " ")
	if !found {
		return false, fmt.Errorf("figure %s wants %q, which is no comparison", f.name, f.want)
	}
	n, err := number(value)
	if err != nil {
		return false, fmt.Errorf("figure %s is %q, which is no number", f.name, value)
	}
	b, err := number(bound)
	if err != nil {
		return false, err
	}
	switch op {
	case "=":
		return n == b, nil
	case "<=":
		return n <= b, nil
	case ">=":
		return n >= b, nil
	}
	return false, fmt.Errorf("figure %s wants %q, which is no comparison", f.name, f.want)
}

// fill puts figures into a template. A name without a figure stays as it is, and is returned.
func fill(template string, figures map[string]string) (text string, missing []string) {
	text = regexp.MustCompile(`\{[a-z0-9-]+\}`).ReplaceAllStringFunc(template, func(name string) string {
		value, ok := figures[name[1:len(name)-1]]
		if !ok {
			missing = append(missing, name)
			return name
		}
		if name == "{seed}" { // to be copied
			return value
		}
		return grouped(value)
	})
	return text, missing
}

// grouped writes 1234567 as 1,234,567.
func grouped(value string) string {
	if len(value) < 4 || strings.Trim(value, "0123456789") != "" {
		return value
	}
	var b strings.Builder
	for i, digit := range value {
		if i > 0 && (len(value)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}
