// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// writeFile makes a file for an example.
func writeFile(text string) string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "service.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path
}

func removeFile(path string) {
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		panic(err)
	}
}

func Example() {
	schema, err := config.NewSchema(
		config.Option{Name: "state_path", Default: "/var/lib/service"},
		config.Option{Name: "lock_path", Default: "$state_path/lock"},
		config.Option{Name: "debug", Type: config.Bool{}, Default: false, CLI: true, Mutable: true},
		config.Option{Group: "api", Name: "workers", Type: config.Int{Min: config.Limit[int64](1)}, Default: 4},
		config.Option{Group: "api", Name: "listen", Type: config.List{Item: config.IP{}}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	path := writeFile(`[DEFAULT]
state_path = /srv
[api]
listen = 192.0.2.1,
         2001:db8::1
`)
	defer removeFile(path)
	conf, err := config.Load(schema, config.Input{
		Args: []string{"--debug", "--config-file", path},
		Env:  []string{"OS_API__WORKERS=8"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []config.Name{{Option: "debug"}, {Option: "lock_path"}, {Group: "api", Option: "workers"}, {Group: "api", Option: "listen"}} {
		v, err := conf.Get(name.Group, name.Option)
		if err != nil {
			fmt.Println(err)
			continue
		}
		origin := v.Origin()
		origin.File = filepath.Base(origin.File)
		fmt.Printf("%s = %s (%s)\n", name.Option, v, origin)
	}
	// Output:
	// debug = true (command line --debug)
	// lock_path = /srv/lock (default)
	// workers = 8 (environment OS_API__WORKERS)
	// listen = 192.0.2.1,2001:db8::1 (service.conf:4)
}

func ExampleConfig_Get_error() {
	schema, err := config.NewSchema(config.Option{Group: "api", Name: "port", Type: config.Port()})
	if err != nil {
		fmt.Println(err)
		return
	}
	path := writeFile("[api]\nport = 70000\n")
	defer removeFile(path)
	conf, err := config.Load(schema, config.Input{Args: []string{"--config-file", path}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = conf.Get("api", "port")
	var bad *config.ValueError
	if errors.As(err, &bad) {
		fmt.Printf("line %d: [%s] %s %s\n", bad.Origin.Line, bad.Group, bad.Option, bad.Reason)
	}
	// Output:
	// line 2: [api] port is 70000, but the greatest value is 65535
}

// Which settings no declared option reads, and where: most are misspelt.
func ExampleConfig_Unknown() {
	schema, err := config.NewSchema(config.Option{Group: "api", Name: "port", Type: config.Port()})
	if err != nil {
		fmt.Println(err)
		return
	}
	path := writeFile("[api]\nprot = 80\n")
	defer removeFile(path)
	conf, err := config.Load(schema, config.Input{Args: []string{"--config-file", path}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range conf.Unknown() {
		fmt.Printf("line %d: nothing reads [%s] %s\n", s.Line, s.Section, s.Key)
	}
	// Output: line 2: nothing reads [api] prot
}

// A file that cannot be understood names the line, and never quotes it: it could hold a secret.
func ExampleParseError() {
	schema, err := config.NewSchema(config.Option{Group: "api", Name: "port", Type: config.Port()})
	if err != nil {
		fmt.Println(err)
		return
	}
	path := writeFile("[api]\nport 80\n")
	defer removeFile(path)
	_, err = config.Load(schema, config.Input{Args: []string{"--config-file", path}})
	var bad *config.ParseError
	if errors.As(err, &bad) {
		fmt.Printf("line %d: %s\n", bad.Line, bad.Kind)
	}
	// Output: line 2: this line is neither a section, a comment nor an option: there is no "=" or ":" in it
}

func ExampleConfig_Reload() {
	schema, err := config.NewSchema(
		config.Option{Name: "debug", Type: config.Bool{}, Default: false, Mutable: true},
		config.Option{Name: "host"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	path := writeFile("[DEFAULT]\nhost = one\n")
	defer removeFile(path)
	conf, err := config.Load(schema, config.Input{Args: []string{"--config-file", path}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := os.WriteFile(path, []byte("[DEFAULT]\nhost = two\ndebug = yes\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	changes, err := conf.Reload()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range changes.Changed {
		fmt.Printf("%s: %s → %s\n", c.Option, c.Old, c.New)
	}
	fmt.Println("needs a restart:", changes.Ignored)
	// Output:
	// [DEFAULT] debug: false → true
	// needs a restart: [[DEFAULT] host]
}
