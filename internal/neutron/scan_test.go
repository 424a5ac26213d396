// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// functions returns the functions of a file by name, as text in lower case.
func functions(t *testing.T, file string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			var text bytes.Buffer
			if err := format.Node(&text, set, fn); err != nil {
				t.Fatal(err)
			}
			all[strings.ToLower(fn.Name.Name)] = strings.ToLower(text.String())
		}
	}
	return all
}

// TestScanIsThatOfMessaging: a fault that is mended in one of the two copies is mended in the other.
func TestScanIsThatOfMessaging(t *testing.T) {
	ours, theirs := functions(t, "scan.go"), functions(t, "../../oslo/messaging/internal/rawjson/rawjson.go")
	compared := 0
	for name, text := range ours {
		if name == "text" || name == "plain" {
			continue
		}
		compared++
		if diff := cmp.Diff(theirs[name], text); diff != "" {
			t.Errorf("%s differs from that of oslo/messaging/internal/rawjson:\n%s", name, diff)
		}
	}
	if compared < 8 {
		t.Errorf("%d functions compared", compared)
	}
}

func TestText(t *testing.T) {
	for _, in := range []string{`"Port"`, `""`, `"a\"b"`, `"\u00e9\n"`, `"é"`, `null`, `1`, `{}`, `true`, "\"a\x01\"", "\"\xff\"", `"\x"`, `"`, ``} {
		got, n, err := text([]byte(in))
		var want string
		if wantErr := json.Unmarshal([]byte(in), &want); (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %v, encoding/json says %v", in, err, wantErr)
		} else if err == nil && (got != want || n != len(in)) {
			t.Errorf("%q: %q of %d bytes, want %q", in, got, n, want)
		}
	}
	in := []byte(`"versioned_object" , "rest"`)
	if allocs := testing.AllocsPerRun(100, func() { _, _, _ = text(in) }); allocs > 1 {
		t.Errorf("%v allocations", allocs)
	}
}
