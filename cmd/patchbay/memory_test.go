// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func files(of map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range of {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestGroupMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing to see": {nil, math.MaxInt64},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/agent.service\n", "sys/fs/cgroup/system.slice/agent.service/memory.max": "1073741824\n",
			"sys/fs/cgroup/system.slice/memory.max": "max\n",
		}, 1 << 30},
		"the slice has less": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/agent.service\n", "sys/fs/cgroup/system.slice/agent.service/memory.max": "1073741824\n",
			"sys/fs/cgroup/system.slice/memory.max": "536870912\n",
		}, 1 << 29},
		"a container that sees only its own": {map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/c\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 1 << 29},
		"version 1": {map[string]string{
			"proc/self/cgroup": "12:cpu:/x\n4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "536870912\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 29},
		"version 1 without a limit": {map[string]string{
			"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
		}, math.MaxInt64},
	} {
		if got := groupMemory(files(tt.files)); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	group := files(map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1000000000\n"})
	limitMemory(func(string) string { return "1GiB" }, group)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("GOMEMLIMIT is overruled by %d", got)
	}
	limitMemory(func(string) string { return "" }, group)
	if got := debug.SetMemoryLimit(-1); got != 900_000_000 {
		t.Errorf("limit %d, want nine tenths of the group's", got)
	}
}

// The unit's limits fit together: Go's lies below the kernel's.
func TestUnitLimitsMemory(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/systemd/50-patchbay.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`(?m)^MemoryMax=1G$`, `(?m)^Environment=GOMEMLIMIT=920MiB$`} {
		if !regexp.MustCompile(line).Match(unit) {
			t.Errorf("the unit has no %s", line)
		}
	}
}
