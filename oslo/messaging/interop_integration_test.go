// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/peer"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// python is a running testdata/peer.py.
type python struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

// startPython runs the interpreter of the distribution, whose python3-oslo.messaging the tests are about.
func startPython(t *testing.T, args ...string) *python {
	t.Helper()
	return startPythonOn(t, "neutron", args...)
}

func startPythonOn(t *testing.T, exchange string, args ...string) *python {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", append([]string{"testdata/peer.py"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTROL_EXCHANGE="+exchange)
	in, out := peer.Start(t, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		_ = cmd.Wait()
	})
	return &python{t, in, bufio.NewReaderSize(out, 1<<20)}
}

func (p *python) read(v any) {
	p.t.Helper()
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("reading from Python: %v", err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		p.t.Fatalf("reading from Python: %v", err)
	}
}

func (p *python) ready() *python {
	p.t.Helper()
	var s string
	if p.read(&s); s != "ready" {
		p.t.Fatalf("Python says %q", s)
	}
	return p
}

type outcome struct {
	Result      any
	Error, Text string
	Right       int
	Wrong       []any
}

func (p *python) do(cmd map[string]any) outcome {
	p.t.Helper()
	line, err := json.Marshal(cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatal(err)
	}
	var o outcome
	p.read(&o)
	return o
}

type args = map[string]any

// awkward values survive both directions.
var awkward = []any{
	nil, true, 0.0, -1.5, "", "grüße ☃ \U0001F600 \"quoted\" \\ \n\t\u0000\u007f\u2028", []any{}, args{},
	args{"ключ": []any{nil, args{"deep": []any{1.0, "x"}}}},
}

// TestGoCallsPython: Go client, Python server.
func TestGoCallsPython(t *testing.T) {
	noLeaks(t)
	startPython(t, "server", shared.URL(), "py", "pyhost").ready()
	client, _ := open(t, shared, "client", "c1", func(cfg *messaging.Config) {
		cfg.Context = func(context.Context) map[string]any {
			return map[string]any{"is_admin": true, "request_id": "req-1", "roles": []string{"admin"}, "user": nil}
		}
	})
	ctx := within(t, 60*time.Second)
	to := messaging.Target{Topic: "py", Version: "1.2"}

	for _, want := range awkward {
		var got any
		if err := client.Call(ctx, to, "echo", args{"value": want}, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("echo(%#v) = %#v, %v", want, got, err)
		}
	}
	var fields map[string]any
	if err := client.Call(ctx, to, "context", nil, &fields); err != nil || fields["is_admin"] != true || fields["request_id"] != "req-1" {
		t.Errorf("context %v, %v", fields, err)
	}

	var re *messaging.RemoteError
	err := client.Call(ctx, to, "fail", args{"text": "kaputt ☃"}, nil)
	if !errors.As(err, &re) || re.Class != "ValueError" || re.Module != "builtins" || re.Message != "kaputt ☃" || len(re.Traceback) == 0 {
		t.Errorf("remote exception: %#v", err)
	}
	if err := client.Call(ctx, to, "nosuch", nil, nil); !errors.Is(err, messaging.NoSuchMethod) {
		t.Errorf("unknown method: %v", err)
	}
	if err := client.Call(ctx, messaging.Target{Topic: "py", Version: "1.10"}, "echo", nil, nil); !errors.Is(err, messaging.UnsupportedVersion) {
		t.Errorf("version too new: %v", err)
	}
	if err := client.Call(ctx, to, "echo", args{"nosuch": 1}, nil); !errors.As(err, &re) {
		t.Errorf("wrong arguments: %v", err)
	}
	var spaced []any
	if err := client.Call(ctx, messaging.Target{Topic: "py", Namespace: "space", Version: "1.0"}, "echo", args{"value": "v"}, &spaced); err != nil || len(spaced) != 2 {
		t.Errorf("namespace: %v, %v", spaced, err)
	}

	// 10 MB there and back.
	big := strings.Repeat("0123456789", 1<<20)
	var n int
	if err := client.Call(ctx, to, "size", args{"value": big}, &n); err != nil || n != len(big) {
		t.Errorf("10 MB request: %d, %v", n, err)
	}
	var back string
	if err := client.Call(ctx, to, "make", args{"size": 10 << 20}, &back); err != nil || len(back) != 10<<20 {
		t.Errorf("10 MB reply: %d, %v", len(back), err)
	}

	for _, to := range []messaging.Target{{Topic: "py", Fanout: true}, {Topic: "py", Server: "pyhost"}, {Topic: "py"}} {
		if err := client.Cast(ctx, to, "note", args{"text": fmt.Sprintf("%t %s", to.Fanout, to.Server)}); err != nil {
			t.Error(err)
		}
	}
	eventually(t, 5*time.Second, "casts arrived", func() bool {
		var notes []string
		return client.Call(ctx, messaging.Target{Topic: "py", Server: "pyhost"}, "read_notes", nil, &notes) == nil && len(notes) == 3
	})

	// 1,000 in flight: the server works on 64 at a time.
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for i := range 1000 {
		wg.Go(func() {
			var got int
			err := client.Call(ctx, to, "echo", args{"value": i}, &got)
			if err == nil && got != i {
				err = fmt.Errorf("call %d got %d", i, got)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
			break
		}
	}
}

// TestPythonCallsGo: Python client, Go server.
func TestPythonCallsGo(t *testing.T) {
	noLeaks(t)
	const burst = 1000
	var mu sync.Mutex
	inFlight, most := 0, 0
	all := make(chan struct{})
	var contexts []map[string]json.RawMessage
	var casts []string
	server, _ := open(t, shared, "server", "gohost")
	serve(t, server, messaging.Service{Topics: []string{"go"}, Shared: true, Concurrency: burst, Handler: func(ctx context.Context, m *messaging.Message) (any, error) {
		if !messaging.VersionServed("1.9", m.Version) {
			return nil, messaging.NewUnsupportedVersion(m.Version, m.Method)
		}
		switch m.Method {
		case "note":
			mu.Lock()
			defer mu.Unlock()
			casts = append(casts, fmt.Sprintf("fanout=%t directed=%t", m.Fanout, m.Directed))
			contexts = append(contexts, m.Context())
			return nil, nil
		case "hold":
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			if inFlight == burst {
				close(all)
			}
			mu.Unlock()
			select {
			case <-all:
			case <-time.After(30 * time.Second):
			}
			m.Method = "echo"
		case "size":
			var a struct{ Value string }
			err := json.Unmarshal(m.Args, &a)
			return len(a.Value), err
		case "make":
			return strings.Repeat("x", 10<<20), nil
		}
		return echo(ctx, m)
	}})
	py := startPython(t, "client", shared.URL()).ready()
	call := func(method string, a args) outcome {
		return py.do(args{"op": "call", "topic": "go", "method": method, "args": a})
	}

	for _, want := range awkward {
		if o := call("echo", args{"value": want}); o.Error != "" || !reflect.DeepEqual(o.Result, want) {
			t.Errorf("echo(%#v) = %#v, %s %s", want, o.Result, o.Error, o.Text)
		}
	}
	if o := call("fail", nil); o.Error != "ValueError" && o.Error != "ValueError_Remote" || !strings.Contains(o.Text, "bad ☃") {
		t.Errorf("remote exception: %+v", o)
	}
	if o := call("nosuch", nil); o.Error != "NoSuchMethod_Remote" {
		t.Errorf("unknown method: %+v", o)
	}
	o := py.do(args{"op": "call", "topic": "go", "method": "echo", "version": "1.10"})
	if o.Error != "UnsupportedVersion_Remote" {
		t.Errorf("version too new: %+v", o)
	}
	if o := call("size", args{"value": strings.Repeat("y", 10<<20)}); o.Result != float64(10<<20) {
		t.Errorf("10 MB request: %v %s", o.Result, o.Error)
	}
	if o := call("make", nil); o.Error != "" || len(o.Result.(string)) != 10<<20 {
		t.Errorf("10 MB reply: %s %s", o.Error, o.Text)
	}
	for _, c := range []args{{"fanout": true}, {"server": "gohost"}, {}} {
		c["op"], c["topic"], c["method"], c["context"] = "cast", "go", "note", args{"tenant": "t☃", "roles": []any{"a"}}
		if o := py.do(c); o.Error != "" {
			t.Errorf("cast: %+v", o)
		}
	}
	eventually(t, 5*time.Second, "casts arrived", func() bool { mu.Lock(); defer mu.Unlock(); return len(casts) == 3 })
	// Each came by a queue of its own, and a broker promises no order between queues.
	slices.Sort(casts)
	if want := []string{"fanout=false directed=false", "fanout=false directed=true", "fanout=true directed=false"}; !reflect.DeepEqual(casts, want) {
		t.Errorf("casts %q", casts)
	}
	for _, fields := range contexts {
		if string(fields["tenant"]) != `"t\u2603"` || string(fields["roles"]) != `["a"]` {
			t.Errorf("context %s", fields)
		}
	}
	if o := py.do(args{"op": "burst", "topic": "go", "method": "hold", "n": burst, "timeout": 60}); o.Right != burst {
		t.Errorf("burst: %d right, %v", o.Right, o.Wrong)
	}
	mu.Lock()
	defer mu.Unlock()
	if most != burst {
		t.Errorf("%d calls were in flight at once, want %d", most, burst)
	}
}
