// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

type parsedFile struct {
	*iniFile
	values map[Name][]rawItem // section names normalised
}

// search finds the default files or directories: at most one for the project
// and one for the program.
func (c *Config) search(extension string) []string {
	project := c.input.Project
	var dirs []string
	if project != "" {
		dirs = append(dirs, c.absolute("~/."+project))
	}
	dirs = append(dirs, c.absolute("~"))
	if project != "" {
		dirs = append(dirs, filepath.Join("/etc", project))
	}
	dirs = append(dirs, "/etc")
	for _, name := range []string{"SNAP_COMMON", "SNAP"} {
		if snap := c.env[name]; snap != "" && project != "" {
			dirs = append(dirs, filepath.Join(snap, "etc", project))
		}
	}
	found := []string{}
	for _, base := range []string{project, c.input.Program} {
		if base == "" {
			continue
		}
		for _, dir := range dirs {
			path := filepath.Join(dir, base+extension)
			if _, err := os.Stat(path); err == nil {
				found = append(found, path)
				break
			}
		}
	}
	return found
}

func (c *Config) readDir(ns *namespace, dir string, errs *[]error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		// Like a pattern that matches nothing.
		return
	}
	for _, e := range entries { // sorted by name
		if name := e.Name(); strings.HasSuffix(name, ".conf") && name[0] != '.' {
			c.readFile(ns, filepath.Join(dir, name), errs)
		}
	}
}

func (c *Config) readFile(ns *namespace, path string, errs *[]error) {
	path = c.absolute(path)
	data, err := os.ReadFile(path)
	if err != nil {
		ferr := &FileError{Path: path, Err: err}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			ns.missing = append(ns.missing, ferr)
		case errors.Is(err, fs.ErrPermission):
			ns.denied = append(ns.denied, ferr)
		default:
			*errs = append(*errs, ferr)
		}
		return
	}
	file, err := parseFile(path, data)
	if err != nil {
		*errs = append(*errs, err)
		return
	}
	c.addFile(ns, file)
}

// addFile puts a file after those already read.
func (c *Config) addFile(ns *namespace, file *iniFile) {
	parsed := &parsedFile{iniFile: file, values: map[Name][]rawItem{}}
	for _, a := range file.Assignments {
		at := Name{sectionName(a.Section), a.Key}
		parsed.values[at] = append(parsed.values[at], rawItem{
			text: a.Value, origin: Origin{Kind: FromFile, File: file.Path, Line: a.Line}, name: Name{a.Section, a.Key},
		})
	}
	ns.files = append(ns.files, parsed)
	c.overrideArgs(ns, parsed)
}

// overrideArgs lets a file take its place in the order of the command line: its
// values for command line options count as if they stood there.
func (c *Config) overrideArgs(ns *namespace, file *parsedFile) {
	alone := &namespace{files: []*parsedFile{file}}
	for _, o := range c.schema.options {
		if !o.CLI || isBuiltin(o) {
			continue
		}
		r, _, found := alone.lookup(o, o.Group)
		if !found {
			continue
		}
		attr := attribute(o.Group, o.dest())
		if o.Multi {
			r.items = append(slices.Clip(ns.args[attr].items), r.items...)
		}
		ns.args[attr] = r
	}
}

func (c *Config) absolute(path string) string {
	path = c.expandUser(path)
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// expandUser replaces a leading ~ or ~name by a home directory.
func (c *Config) expandUser(path string) string {
	if path == "" || path[0] != '~' {
		return path
	}
	name, rest, _ := strings.Cut(path[1:], "/")
	home := c.env["HOME"]
	switch {
	case name != "":
		u, err := user.Lookup(name)
		if err != nil {
			return path
		}
		home = u.HomeDir
	case home == "":
		u, err := user.Current()
		if err != nil {
			return path
		}
		home = u.HomeDir
	}
	if rest == "" {
		return home
	}
	return strings.TrimRight(home, "/") + "/" + rest
}
