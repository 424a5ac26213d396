// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// script answers programs by their names, and notes what was run.
type script struct {
	answers map[string]string
	errs    map[string]error
	ran     *[]string
}

// Run implements Runner.
func (s script) Run(_ context.Context, input, name string, args ...string) (string, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	*s.ran = append(*s.ran, line+": "+strings.ReplaceAll(input, "\n", ";"))
	return s.answers[name], s.errs[name]
}

func newScript() script { return script{map[string]string{}, map[string]error{}, &[]string{}} }

func TestApplyOrder(t *testing.T) {
	s := newScript()
	h := &Host{Runner: s, LockDir: t.TempDir()}
	c := Changes{Sets: "add a b\n", Rules: [2]string{"*filter\nCOMMIT\n", "*raw\nCOMMIT\n"}, Unused: "destroy c\n"}
	want := []string{
		"ipset restore -exist: add a b;", "iptables-restore --noflush -w 10: *filter;COMMIT;", "ip6tables-restore --noflush -w 10: *raw;COMMIT;",
		"ipset restore -exist: destroy c;",
	}
	if err := h.Apply(t.Context(), &c); err != nil || !slices.Equal(*s.ran, want) {
		t.Errorf("%v, %q", err, *s.ran)
	}
	for _, name := range []string{rulesLock, setsLock} {
		if found, _ := filepath.Glob(filepath.Join(h.LockDir, name)); len(found) != 1 {
			t.Errorf("no lock %s", name)
		}
	}
	*s.ran = nil
	s.errs["iptables-restore"] = errors.New("exit status 1: iptables-restore: line 2 failed")
	err := h.Apply(t.Context(), &c)
	if err == nil || !strings.Contains(err.Error(), `line 2 is "COMMIT"`) || !slices.Equal(*s.ran, want[:2]) {
		t.Errorf("%v, %q: a set must not go while rules may refer to it", err, *s.ran)
	}
	*s.ran = nil
	if err := h.Apply(t.Context(), &Changes{}); err != nil || len(*s.ran) > 0 {
		t.Errorf("%v, %q", err, *s.ran)
	}
}

func TestRead(t *testing.T) {
	s := newScript()
	h := &Host{Runner: s, NoIPv6: true}
	s.answers["iptables-save"] = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
	have, err := h.Read(t.Context())
	if err != nil || have.Rules[0] == nil || have.Rules[1] != nil || have.Sets == nil || slices.Contains(*s.ran, "ip6tables-save: ") {
		t.Errorf("%v, %v", have, err)
	}
	h.NoIPv6 = false
	for _, name := range []string{"iptables-save", "ip6tables-save", "ipset"} {
		s.errs[name] = errors.New("no")
		if _, err := h.Read(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		delete(s.errs, name)
	}
	s.answers["ip6tables-save"] = "*filter\n:INPUT ACCEPT [0:0]\n"
	if _, err := h.Read(t.Context()); err == nil {
		t.Error("half a dump is taken for a whole one")
	}
}

func TestOther(t *testing.T) {
	for _, c := range []struct{ version, other, text, want string }{
		{"iptables v1.8.9 (nf_tables)", "iptables-legacy-save", "*filter\n:neutron-openvswi-INPUT - [0:0]\nCOMMIT\n", "iptables-legacy-save"},
		{"iptables v1.8.9 (nf_tables)", "iptables-legacy-save", "*filter\nCOMMIT\n", ""},
		{"iptables v1.8.4 (legacy)", "iptables-nft-save", "*filter\n:neutron-openvswi-INPUT - [0:0]\nCOMMIT\n", "iptables-nft-save"},
	} {
		s := newScript()
		s.answers["iptables"], s.answers[c.other] = c.version, c.text
		if got, err := (&Host{Runner: s}).Other(t.Context()); got != c.want || err != nil {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		s.errs[c.other] = exec.ErrNotFound
		if got, err := (&Host{Runner: s}).Other(t.Context()); got != "" || err != nil {
			t.Errorf("no other back end: %q, %v", got, err)
		}
		s.errs[c.other] = errors.New("no")
		if _, err := (&Host{Runner: s}).Other(t.Context()); err == nil {
			t.Error("a failure is taken for an answer")
		}
	}
}

func TestLockWaits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := &Host{LockDir: file}
	if _, err := h.lock(t.Context(), rulesLock); err == nil {
		t.Error("a lock in no directory")
	}
	h.LockDir = filepath.Join(t.TempDir(), "new")
	if unlock, err := h.lock(t.Context(), rulesLock); err != nil {
		t.Errorf("the directory is not made: %v", err)
	} else {
		unlock()
	}
	h.LockDir = t.TempDir()
	// Another process holds the lock: a lock of this process would not keep it out.
	held := exec.CommandContext(t.Context(), "python3", "-c",
		"import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()", filepath.Join(h.LockDir, rulesLock))
	in, errIn := held.StdinPipe()
	out, errOut := held.StdoutPipe()
	if err := errors.Join(errIn, errOut, held.Start()); err != nil {
		t.Skipf("python3 is missing: %v", err)
	}
	if _, err := out.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.lock(ctx, rulesLock); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	_ = in.Close()
	_ = held.Wait()
	unlock, err := h.lock(t.Context(), rulesLock)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestUnbridged(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const v4, v6 = "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"
	for _, c := range []struct {
		sys  fstest.MapFS
		ipv6 bool
		want int
	}{
		{fstest.MapFS{}, true, 1},
		{fstest.MapFS{v4: file("1\n"), v6: file("1\n")}, true, 0},
		{fstest.MapFS{v4: file("0\n"), v6: file("0\n")}, true, 2},
		{fstest.MapFS{v4: file("1\n"), v6: file("0\n")}, false, 0},
		{fstest.MapFS{v4: file("0\n"), v6: file("1\n")}, true, 1},
	} {
		if got := Unbridged(c.sys, c.ipv6); len(got) != c.want {
			t.Errorf("%v: %q", c.sys, got)
		}
	}
}
