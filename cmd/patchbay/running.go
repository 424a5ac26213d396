// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// runningSocket returns the admin socket of an agent that runs here, as the files say that it was started with; "": there is none that
// this process can tell. Proc is /proc. Exists says whether there is a socket at a path.
func runningSocket(proc fs.FS, env []string, exists func(path string) bool) string {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := fs.ReadFile(proc, e.Name()+"/cmdline")
		if err != nil {
			continue // it has ended
		}
		args, ok := agentArguments(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
		if !ok {
			continue
		}
		if o, err := options.Load(args, env); err == nil && o.Patchbay.AdminSocket != "" && exists(o.Patchbay.AdminSocket) {
			return o.Patchbay.AdminSocket
		}
	}
	return ""
}

// agentArguments returns what follows the agent's name on a command line, if it is one of an agent.
func agentArguments(line []string) (args []string, ok bool) {
	i := slices.IndexFunc(line, func(word string) bool { return filepath.Base(word) == daemonName })
	if i < 0 && len(line) > 1 && filepath.Base(line[0]) == "patchbay" && line[1] == "agent" {
		i = 1
	}
	if i < 0 {
		return nil, false
	}
	return line[i+1:], true
}
