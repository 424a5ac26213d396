// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	const began = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
`
	for name, c := range map[string]struct {
		in, last string
		good     bool
	}{
		"passed":       {began + `{"Action":"pass","Package":"p"}`, "1 passed, 0 failed, 0 skipped", true},
		"killed":       {began, "1 passed, 1 failed, 0 skipped", false},
		"failed":       {began + `{"Action":"fail","Package":"p"}`, "1 passed, 1 failed, 0 skipped", false},
		"one failed":   {began + `{"Action":"fail","Package":"p","Test":"B"}` + "\n" + `{"Action":"fail","Package":"p"}`, "1 passed, 1 failed, 0 skipped", false},
		"nothing":      {"", "0 passed, 0 failed, 0 skipped", false},
		"without text": {`{"Action":"start","Package":"p"}` + "\n" + `{"Action":"skip","Package":"p"}`, "0 passed, 0 failed, 0 skipped", false},
	} {
		var out strings.Builder
		s := newSummary(&out)
		if err := s.read(strings.NewReader(c.in)); err != nil {
			t.Fatal(err)
		}
		good := s.close()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; good != c.good || last != c.last {
			t.Errorf("%s: good %v, ends with %q", name, good, last)
		}
	}
}
