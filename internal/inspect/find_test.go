// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"strings"
	"testing"
)

func TestFindPort(t *testing.T) {
	ports := []Port{
		{ID: "aaaa-1", Name: "web", Interface: "tapaaaa-1", MAC: "fa:16:3e:00:00:01", Addresses: []string{"10.0.0.5"}},
		{ID: "aaab-2", Name: "web-2", Interface: "tapaaab-2", Device: "vm7"},
		{ID: "web", Name: ""},
	}
	tests := []struct {
		ref, want string
		err       error
	}{
		{"aaaa-1", "aaaa-1", nil}, {"aaaa", "aaaa-1", nil}, {"10.0.0.5", "aaaa-1", nil}, {"vm7", "aaab-2", nil},
		{"web-2", "aaab-2", nil}, {"tapaaab", "aaab-2", nil}, {"fa:16:3e:00:00:01", "aaaa-1", nil},
		{"aa", "", ErrAmbiguous}, {"web", "", ErrAmbiguous}, {"zzz", "", ErrNotFound}, {"", "", ErrNotFound},
	}
	for _, tt := range tests {
		p, err := FindPort(ports, tt.ref)
		if p.ID != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: %q, %v", tt.ref, p.ID, err)
		}
	}
	if _, err := FindPort(ports, "aa"); !strings.Contains(err.Error(), "aaaa-1 (web), aaab-2 (web-2)") {
		t.Errorf("candidates: %v", err)
	}
}

func TestFindGroup(t *testing.T) {
	groups := []Group{{ID: "1234", Name: "web"}, {ID: "1299", Name: "db"}}
	if g, err := FindGroup(groups, "web"); g.ID != "1234" || err != nil {
		t.Error(g, err)
	}
	if _, err := FindGroup(groups, "12"); !errors.Is(err, ErrAmbiguous) {
		t.Error(err)
	}
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{"web-1 é→": "web-1 é→", "a\nb\x1b[2J\u009b\u2028c": "a?b?[2J??c", "": ""} {
		if got := Printable(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
