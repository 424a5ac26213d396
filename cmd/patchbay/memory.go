// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is the part of the control group's memory from which on Go collects garbage harder, so that the kernel does not
// have to end the process for garbage. The rest is for what the limit does not count: the binary, stacks of threads, sockets.
const memoryShare = 0.9

// limitMemory sets Go's soft limit from the control group's hard one. GOMEMLIMIT, which Go reads itself, wins.
func limitMemory(getenv func(string) string, root fs.FS) {
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	if most := groupMemory(root); most < math.MaxInt64 {
		debug.SetMemoryLimit(int64(memoryShare * float64(most)))
	}
}

// groupMemory is the smallest limit of the process's control group and those around it, of either version; MaxInt64 when none
// can be seen. Inside a container the path may be that of the host, and the files are at the top.
func groupMemory(root fs.FS) int64 {
	most := int64(math.MaxInt64)
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return most
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" { // version 1 names its controllers
			if parts[1] != "memory" {
				continue
			}
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if said, err := fs.ReadFile(root, path.Join(top, group, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64); err == nil && n > 0 {
					most = min(most, n)
				}
			}
			if group == "/" {
				break
			}
		}
	}
	if most >= 1<<60 { // how version 1 says that there is none
		return math.MaxInt64
	}
	return most
}
