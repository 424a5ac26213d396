// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// Input is everything that Load looks at besides the files themselves.
type Input struct {
	Args []string // the command line without the program's name
	Env  []string // "NAME=value", as os.Environ gives; nil: no environment

	// Project and Program are used to find files when the command line names
	// none: Project.conf and Program.conf, Project.conf.d and Program.conf.d, in
	// ~/.Project, ~, /etc/Project and /etc.
	Project, Program string

	// DefaultFiles and DefaultDirs replace that search when they are not nil.
	DefaultFiles, DefaultDirs []string

	// Version makes --version a valid option; Load then returns ErrVersion.
	Version bool
}

// Config is a loaded configuration. It is safe for concurrent reading; Reload
// must not run at the same time as anything else.
type Config struct {
	schema *Schema
	input  Input
	env    map[string]string
	flags  *flags

	first   *namespace // what was read at the start
	current *namespace // what was read last: mutable options take their values from here
}

// namespace is the outcome of reading the command line and the files once.
type namespace struct {
	files []*parsedFile // in the order of reading
	args  map[string]raw
	dirs  []string

	missing, denied []error
	defaults        map[string]raw // of config_file and config_dir
}

// Load reads the command line, the files it names (or the default ones) and the
// environment.
//
// It fails when the command line or a file cannot be understood, when a file is
// missing, when the value of an option that may stand on the command line is
// not valid, and when a required option has no value. Other values are looked
// at when they are read. Several faults are returned together as [Errors].
func Load(schema *Schema, input Input) (*Config, error) {
	c, err := Inspect(schema, input)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Inspect is Load for tools that examine a configuration: beside the error it
// returns what could be read. The Config is nil after ErrHelp and ErrVersion.
func Inspect(schema *Schema, input Input) (*Config, error) {
	f, err := newFlags(schema, input.Version)
	if err != nil {
		return nil, err
	}
	c := &Config{schema: schema, input: input, flags: f, env: map[string]string{}}
	for _, entry := range input.Env {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := c.env[name]; !twice {
			c.env[name] = value
		}
	}
	ns, err := c.read()
	if ns == nil {
		return nil, err
	}
	c.first, c.current = ns, ns
	return c, err
}

// read does what Load and Reload have in common.
func (c *Config) read() (*namespace, error) {
	ns := &namespace{args: map[string]raw{}, defaults: map[string]raw{}}
	var errs []error
	c.readDefaults(ns, &errs)
	err := c.flags.parse(c.input.Args, func(g given) { c.use(ns, g, &errs) })
	stopped := errors.Is(err, ErrHelp) || errors.Is(err, ErrVersion)
	if stopped && len(errs) == 0 {
		return nil, err
	}
	if err != nil && !stopped {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, c.validateArgs(ns)...)
	}
	errs = append(errs, ns.missing...)
	errs = append(errs, ns.denied...)
	if len(errs) == 0 {
		errs = append(errs, c.checkRequired(ns)...)
	}
	return ns, join(errs)
}

// readDefaults reads the files that count when the command line names none.
// Files and directories are decided on separately.
func (c *Config) readDefaults(ns *namespace, errs *[]error) {
	asks := func(name string) bool {
		return slices.ContainsFunc(c.input.Args, func(a string) bool {
			return a == name || strings.HasPrefix(a, name+"=")
		})
	}
	files := c.input.DefaultFiles
	if files == nil {
		files = c.search(".conf")
	}
	dirs := c.input.DefaultDirs
	if dirs == nil {
		dirs = c.search(".conf.d")
	}
	ns.defaults["config_file"] = rawList(files, true)
	ns.defaults["config_dir"] = rawList([]string{strings.Join(dirs, ",")}, false)
	if !asks("--config-file") {
		for _, path := range files {
			c.readFile(ns, path, errs)
		}
	}
	if !asks("--config-dir") {
		for _, dir := range dirs {
			if _, err := os.Stat(dir); err == nil {
				c.readDir(ns, dir, errs)
			}
		}
	}
}

func rawList(texts []string, multi bool) raw {
	r := raw{multi: multi}
	for _, t := range texts {
		r.items = append(r.items, rawItem{text: t})
	}
	return r
}

// use takes one option of the command line over.
func (c *Config) use(ns *namespace, g given, errs *[]error) {
	id := g.flag.option.ID()
	attr := attribute(id.Group, id.Option)
	item := rawItem{text: g.value, origin: Origin{Kind: FromCommandLine, Name: g.spelling}}
	if g.flag.set != nil {
		item.parsed, item.text = *g.flag.set, text(*g.flag.set)
	}
	if g.flag.option.Multi {
		ns.args[attr] = raw{items: append(ns.args[attr].items, item), multi: true}
	} else {
		ns.args[attr] = raw{items: []rawItem{item}}
	}
	if id.Group == topLevel {
		switch id.Option {
		case "config_file":
			c.readFile(ns, g.value, errs)
		case "config_dir":
			ns.dirs = append(ns.dirs, g.value)
			dir := c.expandUser(g.value)
			if _, err := os.Stat(dir); err != nil {
				*errs = append(*errs, &FileError{Path: dir, Dir: true, Err: err})
				return
			}
			c.readDir(ns, dir, errs)
		}
	}
}

func isBuiltin(o *Option) bool {
	return o.Group == topLevel && (o.Name == "config-file" || o.Name == "config-dir")
}

// lookup finds the value of an option. inFile reports that some file sets it,
// even when the value comes from the command line.
func (ns *namespace) lookup(o *Option, group string) (found raw, inFile, ok bool) {
	places := o.places(group)
	file, inFile := ns.lookupFiles(places, o.Multi)
	for _, p := range places {
		if r, ok := ns.args[p.attribute]; ok {
			return r, inFile, true
		}
	}
	return file, inFile, inFile
}

func (ns *namespace) lookupFiles(places []place, multi bool) (raw, bool) {
	found := raw{multi: multi}
	for _, file := range slices.Backward(ns.files) {
		for _, p := range places {
			items := file.values[Name{sectionName(p.Group), p.Option}]
			if items == nil {
				continue
			}
			if !multi {
				return raw{items: items[len(items)-1:]}, true
			}
			found.items = append(slices.Clip(items), found.items...)
		}
	}
	return found, found.items != nil
}

// validateArgs checks the options that may stand on the command line, in the
// order of the original: by name, those declared last first.
func (c *Config) validateArgs(ns *namespace) []error {
	options := slices.Clone(c.schema.options)
	slices.Reverse(options)
	slices.SortStableFunc(options, func(a, b *Option) int { return strings.Compare(a.Name, b.Name) })
	var errs []error
	for _, o := range options {
		if !o.CLI {
			continue
		}
		found, _, ok := ns.lookup(o, o.Group)
		if !ok {
			continue
		}
		_, err := c.reader(ns).finish(o, o.Group, found)
		var value *ValueError
		if errors.As(err, &value) {
			value.onLoad = true
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (c *Config) checkRequired(ns *namespace) []error {
	var errs []error
	for _, o := range c.inOrder() {
		if !o.Required {
			continue
		}
		v, err := c.reader(ns).get(o.Group, o.dest())
		switch {
		case err != nil:
			errs = append(errs, err)
		case !v.IsSet():
			errs = append(errs, &RequiredError{Group: o.Group, Option: o.dest()})
		}
	}
	return errs
}

// inOrder lists the top level first, then the groups as they were declared.
func (c *Config) inOrder() []*Option {
	var groups []string
	for _, o := range c.schema.options {
		if !slices.Contains(groups, o.Group) {
			groups = append(groups, o.Group)
		}
	}
	options := slices.Clone(c.schema.options)
	slices.SortStableFunc(options, func(a, b *Option) int {
		return slices.Index(groups, a.Group) - slices.Index(groups, b.Group)
	})
	return options
}
