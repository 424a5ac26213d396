// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func testSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := NewSchema(
		Option{Name: "host", Type: HostAddress{}, Default: "localhost"},
		Option{Name: "debug", Short: "d", Type: Bool{}, Default: false, CLI: true, Mutable: true},
		Option{Name: "log-file", CLI: true, Deprecated: []Name{{Option: "logfile"}}},
		Option{Name: "state_path", Default: "/var/lib/x", CLI: true},
		Option{Name: "lock_path", Default: "$state_path/lock"},
		Option{Name: "password", Secret: true},
		Option{Name: "strict_password", Secret: true, Type: String{Regexp: regexp.MustCompile(`^[a-z]+$`)}},
		Option{Name: "backend", Multi: true, Default: []string{}, CLI: true},
		Option{Name: "label", Mutable: true},
		Option{Group: "OVS", Name: "local_ip", Type: IP{}},
		Option{Group: "OVS", Name: "bridge", Default: "br-int", Deprecated: []Name{{Option: "integration_bridge"}, {Group: "DEFAULT", Option: "ovs_bridge"}}},
		Option{Group: "OVS", Name: "mappings", Type: List{}, Default: ""},
		Option{Group: "OVS", Name: "limits", Type: Dict{Value: Int{}}, Default: ""},
		Option{Group: "OVS", Name: "port", Type: Port(), Default: 6633},
		Option{Group: "OVS", Name: "interval", Type: Float{Min: Limit(0.0)}, Default: 2.5},
		Option{Group: "OVS", Name: "old", Default: "x", Removal: "nothing uses it"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load reads texts as files named 0.conf, 1.conf, … in this order.
func load(t testing.TB, args, env []string, texts ...string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range texts {
		path := filepath.Join(dir, fmt.Sprintf("%d.conf", i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config-file", path)
	}
	return Load(testSchema(t), Input{Args: args, Env: env, DefaultFiles: []string{}, DefaultDirs: []string{}})
}

func mustLoad(t testing.TB, args, env []string, texts ...string) *Config {
	t.Helper()
	c, err := load(t, args, env, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestValuesAndOrigins(t *testing.T) {
	c := mustLoad(t, []string{"--log-file=/cli", "--debug", "--backend", "a"},
		[]string{"OS_OVS__PORT=6653", "OS_OVS__LOCAL_IP=192.0.2.9"},
		"[DEFAULT]\nhost = first\nbackend = b\n[ovs]\nlocal_ip = 192.0.2.1\nmappings = p1:b1, p2:b2,\n",
		"[DEFAULT]\nhost = second\nbackend = c\nbackend = d\nstate_path = /s\n[Ovs]\nintegration_bridge = br-x\nlimits = a:1,b: 2\n")
	for _, test := range []struct{ group, name, value, origin string }{
		{"", "host", "second", "1.conf:2"},
		{"DEFAULT", "debug", "true", "command line --debug"},
		{"", "log_file", "/cli", "command line --log-file"},
		{"", "state_path", "/s", "1.conf:5"},
		{"", "lock_path", "/s/lock", "default"},
		{"", "backend", "a,b,c,d", "1.conf:4"},
		{"OVS", "local_ip", "192.0.2.9", "environment OS_OVS__LOCAL_IP"},
		{"OVS", "port", "6653", "environment OS_OVS__PORT"},
		{"OVS", "bridge", "br-x", "1.conf:7"},
		{"OVS", "mappings", "p1:b1,p2:b2", "0.conf:6"},
		{"OVS", "limits", "a:1,b:2", "1.conf:8"},
		{"OVS", "interval", "2.5", "default"},
	} {
		v, err := c.Get(test.group, test.name)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		origin := filepath.Base(v.Origin().String())
		if test.name == "bridge" && v.Name() != (Name{"Ovs", "integration_bridge"}) {
			t.Errorf("bridge was found as %s", v.Name())
		}
		if v.String() != test.value || origin != test.origin {
			t.Errorf("%s = %q from %q, want %q from %q", test.name, v, origin, test.value, test.origin)
		}
	}
}

func TestUnknownAndDeprecated(t *testing.T) {
	c := mustLoad(t, nil, nil, "[ovs]\nlocal_ip = ::1\nlocalip = ::1\nold = 1\n[DEFAULT]\novs_bridge = b\nlogfile = /x\n[x]\ny = 1\n")
	var unknown []string
	for _, s := range c.Unknown() {
		unknown = append(unknown, fmt.Sprintf("%s %s %d", s.Section, s.Key, s.Origin().Line))
	}
	if diff := cmp.Diff([]string{"ovs localip 3", "x y 9"}, unknown); diff != "" {
		t.Error(diff)
	}
	var deprecated []string
	for _, d := range c.Deprecations() {
		deprecated = append(deprecated, fmt.Sprintf("%s → %s %q %d", d.Used, d.Option, d.Reason, d.Origin.Line))
	}
	if diff := cmp.Diff([]string{
		`[OVS] old → [OVS] old "nothing uses it" 4`,
		`[DEFAULT] ovs_bridge → [OVS] bridge "" 6`,
		`[DEFAULT] logfile → [DEFAULT] log_file "" 7`,
	}, deprecated); diff != "" {
		t.Error(diff)
	}
	if s := c.Settings("OVS", "bridge"); len(s) != 1 || s[0].Key != "ovs_bridge" {
		t.Error(s)
	}
}

func TestLoadCollectsErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := load(t, []string{"--config-dir", dir + "/absent", "--config-file", dir + "/missing"}, nil, "[a\n", "x = 1\n")
	var several Errors
	if !errors.As(err, &several) || len(several) != 4 || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v", err)
	}
	// As the original would: the command line is read from left to right.
	var file *FileError
	if !errors.As(several[0], &file) || !file.Dir {
		t.Errorf("first is %v", several[0])
	}
}

func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.conf")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("[DEFAULT]\nhost = a\nlabel = one\n")
	c, err := Load(testSchema(t), Input{Args: []string{"--config-file", path}, DefaultDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	put("[DEFAULT]\nhost = b\nlabel = two\ndebug = true\n")
	changes, err := c.Reload()
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for _, ch := range changes.Changed {
		changed = append(changed, fmt.Sprintf("%s: %s → %s", ch.Option, ch.Old, ch.New))
	}
	if diff := cmp.Diff([]string{"[DEFAULT] debug: false → true", "[DEFAULT] label: one → two"}, changed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Name{{"DEFAULT", "host"}}, changes.Ignored); diff != "" {
		t.Error(diff)
	}
	if v, _ := c.Get("", "host"); v.Text() != "a" {
		t.Errorf("host is %q", v)
	}
	if v, _ := c.Get("", "label"); v.Text() != "two" || v.Origin().Line != 3 {
		t.Errorf("label is %q from %s", v, v.Origin())
	}
	put("[DEFAULT]\nlabel = $nothing\n")
	if _, err := c.Reload(); err == nil {
		t.Error("a bad value was taken over")
	}
	put("broken\n")
	if _, err := c.Reload(); err == nil {
		t.Error("a broken file was taken over")
	}
	if v, _ := c.Get("", "label"); v.Text() != "two" {
		t.Errorf("label is %q after a failed reload", v)
	}
}

func TestSchemaErrors(t *testing.T) {
	for _, options := range [][]Option{
		{{Name: ""}}, {{Name: "_x"}}, {{Name: "x"}, {Name: "x"}},
		{{Name: "n", Type: Int{}, Default: "many"}},
		{{Name: "a", CLI: true}, {Name: "b", CLI: true, Deprecated: []Name{{Option: "a"}}}},
		{{Name: "help", CLI: true}},
	} {
		if _, err := NewSchema(options...); err == nil {
			t.Errorf("%v was accepted", options)
		}
	}
}

func TestNumbers(t *testing.T) {
	huge, err := Int{}.Parse("99999999999999999999")
	if err != nil || text(huge) != "99999999999999999999" {
		t.Errorf("%v %v", huge, err)
	}
	if n := (Value{any: huge}).Int(); n != 1<<63-1 {
		t.Error(n)
	}
	if v, err := (Int{}).Parse("  "); v != nil || err != nil {
		t.Errorf("%v %v", v, err)
	}
	for text, want := range map[string]string{"1e22": "1e+22", "0.0001": "0.0001", "1e-5": "1e-05", "5.": "5.0", "-inf": "-inf", "NaN": "nan", "1_0": "10.0"} {
		v, err := Float{}.Parse(text)
		if err != nil || floatText(v.(float64)) != want {
			t.Errorf("%s: %v %v, want %s", text, v, err, want)
		}
	}
}

func TestExpansionIsBounded(t *testing.T) {
	options := []Option{{Name: "a0", Default: strings.Repeat("x", 64)}}
	for i := range 40 {
		options = append(options, Option{Name: fmt.Sprintf("a%d", i+1), Default: fmt.Sprintf("$a%d$a%d", i, i)})
	}
	s, err := NewSchema(options...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load(s, Input{DefaultFiles: []string{}, DefaultDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	var value *ValueError
	if _, err := c.Get("", "a40"); !errors.As(err, &value) {
		t.Errorf("%v", err)
	}
}

// TestSecretsStaySecret puts a secret into every place that can go wrong.
func TestSecretsStaySecret(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		secret := "S3cr3t" + rapid.StringMatching(`[A-Z0-9$@:/?=,]{4,12}`).Draw(r, "secret")
		marker := "S3cr3t"
		texts := []string{
			"[DEFAULT]\npassword = " + secret + "\nlabel = $password\n",
			"[DEFAULT]\npassword = " + secret + "$x$host.y\n",
			"[DEFAULT]\nstrict_password = " + secret + "\n",
			"[DEFAULT]\npassword = x" + marker + "\nhost = $password!\n[ovs]\nport = ${password}\n",
			"[DEFAULT]\npassword " + strings.NewReplacer("=", "", ":", "").Replace(secret) + "\n",
			"[DEFAULT]\npassword =\n\n  " + secret + "\n",
			"[" + secret + "\n",
			"password = " + secret + "\n",
		}
		text := rapid.SampledFrom(texts).Draw(r, "text")
		args := rapid.SampledFrom([][]string{nil, {"--password=" + secret}, {"rabbit://u:" + secret + "@h"}}).Draw(r, "args")
		dir, err := os.MkdirTemp("", "secrets")
		if err != nil {
			r.Fatal(err)
		}
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				r.Error(err)
			}
		}()
		path := filepath.Join(dir, "x.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
		c, err := Inspect(testSchema(t), Input{Args: append(slices.Clone(args), "--config-file", path), Env: []string{"OS_DEFAULT__PASSWORD=" + marker}, DefaultDirs: []string{}})
		var out strings.Builder
		fmt.Fprintln(&out, err)
		values, err := c.Values()
		fmt.Fprintln(&out, err)
		for _, v := range values {
			fmt.Fprintln(&out, v, v.Option().Name)
			data, _ := json.Marshal(v)
			out.Write(data)
			slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", v)
		}
		if strings.Contains(out.String(), marker) {
			r.Fatalf("leaked: %s", out.String())
		}
	})
}

// FuzzGet: no file makes reading options fail otherwise than with an error that
// says where, and no value of a secret option shows.
func FuzzGet(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed, "x")
	}
	f.Add([]byte("[DEFAULT]\nhost = $label\nlabel = ${OVS.bridge}\n[OVS]\nbridge = $$x\n"), "$host")
	schema := testSchema(f)
	f.Fuzz(func(t *testing.T, data []byte, env string) {
		file, err := parseFile("f", data)
		if err != nil {
			return
		}
		c := &Config{schema: schema, env: map[string]string{"OS_DEFAULT__LABEL": env, "OS_OVS__MAPPINGS": env}}
		ns := &namespace{args: map[string]raw{}}
		c.addFile(ns, file)
		c.first, c.current = ns, ns
		for _, o := range schema.options {
			v, err := c.Get(o.Group, o.dest())
			var value *ValueError
			var ref *ReferenceError
			switch {
			case err == nil:
				if o.Secret && v.IsSet() && v.Text() != "" && v.String() != masked {
					t.Errorf("%s shows", o.ID())
				}
				if v.Origin().Kind == FromFile && (v.Origin().Line < 1 || v.Origin().File != "f") {
					t.Errorf("%s comes from %s", o.ID(), v.Origin())
				}
			case !errors.As(err, &value) && !errors.As(err, &ref):
				t.Errorf("%s: %T", o.ID(), err)
			}
		}
		c.Unknown()
		c.Deprecations()
	})
}
