// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// openEnvelope is how a Python peer reads a body.
func openEnvelope(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var env map[string]string
	if err := json.Unmarshal(body, &env); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if len(env) != 2 || env["oslo.version"] != "2.0" {
		t.Fatalf("envelope %v", env)
	}
	var inner map[string]any
	if err := json.Unmarshal([]byte(env["oslo.message"]), &inner); err != nil {
		t.Fatalf("%s: %v", env["oslo.message"], err)
	}
	return inner
}

func TestRequest(t *testing.T) {
	fields := map[string]any{"is_admin": true, "user": nil, "roles": []string{}}
	body, err := request(Target{Topic: "t", Version: "1.4"}, "m", nil, fields, "uid", "", "reply_x")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"method": "m", "args": map[string]any{}, "version": "1.4", "_unique_id": "uid",
		"_context_is_admin": true, "_context_user": nil, "_context_roles": []any{},
	}
	if d := cmp.Diff(want, openEnvelope(t, body)); d != "" {
		t.Errorf("cast: -want +got\n%s", d)
	}
	body, err = request(Target{Topic: "t", Namespace: "ns"}, "m", map[string]int{"a": 1}, nil, "uid", "mid", "reply_x")
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]any{
		"method": "m", "args": map[string]any{"a": 1.0}, "namespace": "ns", "_unique_id": "uid",
		"_msg_id": "mid", "_reply_q": "reply_x", "_timeout": nil,
	}
	if d := cmp.Diff(want, openEnvelope(t, body)); d != "" {
		t.Errorf("call: -want +got\n%s", d)
	}
	if body, err = request(Target{}, "m", map[string]string{"a": "<&>"}, nil, "uid", "", ""); err != nil || !strings.Contains(string(body), "<&>") {
		t.Errorf("%s, %v", body, err)
	}
	if _, err := request(Target{}, "m", nil, map[string]any{"f": func() {}}, "", "", ""); err == nil {
		t.Error("a context that does not encode is accepted")
	}
	if _, err := request(Target{}, "m", map[string]any{"f": func() {}}, nil, "", "", ""); err == nil {
		t.Error("arguments that do not encode are accepted")
	}
}

func TestReply(t *testing.T) {
	body, err := reply("mid", "uid", []int{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"result": []any{1.0}, "failure": nil, "ending": true, "_msg_id": "mid", "_unique_id": "uid"}
	if d := cmp.Diff(want, openEnvelope(t, body)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	body, err = reply("mid", "uid", nil, errors.New("it \"broke\" ☃"))
	if err != nil {
		t.Fatal(err)
	}
	inner := openEnvelope(t, body)
	var f map[string]any
	if err := json.Unmarshal([]byte(inner["failure"].(string)), &f); err != nil {
		t.Fatal(err)
	}
	want = map[string]any{
		"class": "RuntimeError", "module": "builtins", "message": "it \"broke\" ☃", "tb": []any{},
		"args": []any{"it \"broke\" ☃"}, "kwargs": map[string]any{},
	}
	if d := cmp.Diff(want, f); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	w, err := decodeMessage(body)
	if err != nil {
		t.Fatal(err)
	}
	e := decodeFailure(w.failure)
	if e.Class != "RuntimeError" || e.Message != "it \"broke\" ☃" || !errors.Is(fmt.Errorf("x: %w", e), Class("RuntimeError")) {
		t.Errorf("%#v", e)
	}
	if errors.Is(e, Class("ValueError")) {
		t.Error("matches another class")
	}
}

func TestDecodeFailureOfAnyKind(t *testing.T) {
	for raw, want := range map[string]RemoteError{
		`"plain text"`:                  {Message: "plain text"},
		`"{\"class\":\"X\",\"tb\":17}"`: {Class: "X"},
		`{"class":"X"}`:                 {Class: "X"},
		`17`:                            {},
	} {
		got := decodeFailure([]byte(raw))
		if got.Class != want.Class || want.Message != "" && got.Message != want.Message {
			t.Errorf("%s: %#v", raw, got)
		}
		_ = got.Error()
	}
}

// TestDecodeMatchesEncodingJSON: for any arguments and texts, what was sent arrives.
func TestDecodeMatchesEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.StringN(1, -1, -1).Draw(t, "method")
		args := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "args")
		fields := map[string]any{}
		for k, v := range rapid.MapOf(rapid.StringMatching(`[a-z_]+`), rapid.String()).Draw(t, "fields") {
			fields[k] = v
		}
		body, err := request(Target{Version: "1.0"}, method, args, fields, "u", "m", "q")
		if err != nil {
			t.Fatal(err)
		}
		w, err := decodeMessage(body)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		if err := json.Unmarshal(w.args, &got); err != nil {
			t.Fatal(err)
		}
		if w.method != method || w.uniqueID != "u" || w.msgID != "m" || w.replyQ != "q" || !cmp.Equal(got, args) {
			t.Fatalf("%+v %v", w, got)
		}
		ctx := w.context()
		if len(ctx) != len(fields) {
			t.Fatalf("context %v, want %v", ctx, fields)
		}
	})
}

func TestCompression(t *testing.T) {
	body := []byte(strings.Repeat("text ", 1000))
	small, err := compress(body)
	if err != nil || len(small) > 200 {
		t.Fatalf("%d bytes, %v", len(small), err)
	}
	if back, err := decompress(small, headerGzip, 1<<20); err != nil || !bytes.Equal(back, body) {
		t.Errorf("%d bytes back, %v", len(back), err)
	}
	if _, err := decompress(small, headerGzip, 100); err == nil {
		t.Error("more than the limit is accepted")
	}
	var zipped bytes.Buffer // what calls itself gzip may be so
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(body)
	_ = z.Close()
	for _, kind := range []string{headerGzip, "gzip"} {
		if back, err := decompress(zipped.Bytes(), kind, int64(len(body))); err != nil || !bytes.Equal(back, body) {
			t.Errorf("%s: %d bytes back, %v", kind, len(back), err)
		}
		if _, err := decompress(zipped.Bytes(), kind, int64(len(body)-1)); err == nil {
			t.Errorf("%s: one byte more than the limit is accepted", kind)
		}
		if _, err := decompress(zipped.Bytes()[:20], kind, 1<<20); err == nil {
			t.Errorf("%s: half of it is accepted", kind)
		}
	}
	if _, err := decompress(small, "x", 100); err == nil {
		t.Error("an unknown kind is accepted")
	}
	bz := []byte("\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x8f\x84\xf5\x87\x00\x00\x01\x19\x80\x40\x00\x10\x00\x12\x00\x04\x50\x20\x00\x22\x1a\x63\x50\x86\x01\x17\x08\x1e\x2e\xe4\x8a\x70\xa1\x21\x1f\x09\xeb\x0e")
	if back, err := decompress(bz, headerBzip, 100); err != nil || string(back) != "bz2 text" {
		t.Errorf("bz2: %q, %v", back, err)
	}
}

func TestVersionServed(t *testing.T) {
	for _, tt := range []struct {
		served, requested string
		want              bool
	}{
		{"1.9", "1.0", true}, {"1.9", "1.9", true}, {"1.9", "1.10", false}, {"1.9", "2.0", false}, {"1.9", "", true},
		{"2.0", "1.9", false}, {"1.9", "x", false}, {"1", "1.0", true}, {"2.0", "2.0", true}, {"2.0", "2.1", false},
	} {
		if got := VersionServed(tt.served, tt.requested); got != tt.want {
			t.Errorf("VersionServed(%q, %q) = %t", tt.served, tt.requested, got)
		}
	}
}

func BenchmarkDecodePush(b *testing.B) {
	args := map[string]any{"resource_list": []any{strings.Repeat(`{"k":"v"},`, 800)}, "event_type": "updated"}
	fields := map[string]any{}
	for i := range 24 {
		fields[fmt.Sprint("field", i)] = "value"
	}
	body, err := request(Target{Version: "1.1"}, "push", args, fields, "u", "", "")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	received := make([]byte, len(body))
	for b.Loop() {
		copy(received, body)
		if _, err := decodeMessage(received); err != nil {
			b.Fatal(err)
		}
	}
}
