// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// FuzzDecodeMessage: whatever comes from the wire is decoded or refused; what encoding/json accepts as a request is
// decoded to the same values; what is decoded can be sealed and decoded again.
func FuzzDecodeMessage(f *testing.F) {
	body, err := request(Target{Topic: "t", Version: "1.2", Namespace: "n"}, "m☃", map[string]any{"a": []any{nil, "\"\\\u0000"}},
		map[string]any{"user": nil, "roles": []string{"a"}}, "00112233445566778899aabbccddeeff", "id", "reply_x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	for _, failed := range []error{nil, errors.New("x"), NewUnsupportedVersion("9.9", "m")} {
		body, err := reply("id", "uid", map[string]any{"k": 1}, failed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	for _, s := range []string{
		`{"method":"plain","args":{},"_unique_id":"x"}`, `{}`, `{"oslo.version":"2.0","oslo.message":"{}"}`,
		`{"oslo.version":"3.0","oslo.message":"{}"}`, `{"oslo.version":"2.0","oslo.message":"{\"method\":\"\\ud83d\\ude00\"}"}`,
		`{"oslo.version":"2.0","oslo.message":"{\"method\":\"\\ud83d\"}"}`, `[1]`, ``, `{"a":`, `{"a":"\`, "{\"method\":\"\xff\"}",
		`{"oslo.version":2,"oslo.message":{}}`, ` { "method" : "m" , "args" : [ { "x" : "}" } ] } `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w, err := decodeMessage(bytes.Clone(body))
		if err != nil {
			return
		}
		w.context()
		if w.failure != nil {
			_ = decodeFailure(w.failure).Error()
		}
		var want struct {
			Method *string         `json:"method"`
			Args   json.RawMessage `json:"args"`
		}
		dec := map[string]json.RawMessage{}
		if json.Valid(w.inner) && json.Unmarshal(w.inner, &dec) == nil && !hasFold(dec, "method") && json.Unmarshal(w.inner, &want) == nil {
			if m := want.Method; m != nil && *m != w.method {
				t.Errorf("method %q, encoding/json says %q", w.method, *m)
			}
			if a, ok := dec["args"]; ok && !hasFold(dec, "args") && !bytes.Equal(bytes.TrimSpace(a), w.args) {
				t.Errorf("args %q, encoding/json says %q", w.args, a)
			}
		}
		again, err := decodeMessage(seal(w.inner))
		if err != nil {
			t.Fatalf("sealed message does not open: %v", err)
		}
		if again.method != w.method || again.uniqueID != w.uniqueID || again.msgID != w.msgID {
			t.Errorf("sealed and opened: %+v, before: %+v", again, w)
		}
	})
}

// hasFold finds keys that encoding/json takes for name and we do not: those that differ in case, are escaped or repeated.
func hasFold(m map[string]json.RawMessage, name string) bool {
	n := 0
	for k := range m {
		if strings.EqualFold(k, name) {
			n++
		}
	}
	return n > 1 || n == 1 && m[name] == nil
}

// FuzzParseURL: parsing never panics, never shows a password, and gives what connecting needs.
func FuzzParseURL(f *testing.F) {
	for _, s := range urlCorpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseURL(text)
		if err != nil {
			if secret := "hunter2"; strings.Contains(text, secret) && strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows the password: %v", err)
			}
			return
		}
		if len(u.hosts()) == 0 || u.vhost() == "" {
			t.Errorf("nothing to connect to in %+v", u)
		}
		const secret = "hunter2-hunter2"
		if strings.Contains(text, secret) {
			return
		}
		for i := range u.Hosts {
			u.Hosts[i].Password = secret
		}
		if shown := fmt.Sprintf("%v %+v %#v %v", u, u, u, u.Hosts); strings.Contains(shown, secret) {
			t.Errorf("the password is shown: %q", shown)
		}
	})
}

var urlCorpus = []string{
	"rabbit://", "rabbit:///", "rabbit://host", "rabbit://host:5673/", "rabbit://u:p@host/vh", "rabbit://u:hunter2@h1:1,u2:p2@h2:2/v",
	"rabbit://u:p@[::1]:5672/", "rabbit://[::1]", "rabbit://[::1", "rabbit://u%40x:p%2Fw%25@h/%2Fvh", "rabbit://h//", "rabbit://h/a%252Fb",
	"rabbit://u:p@h:port/", "rabbit://u:p@ss@h/", "rabbit://u@h/", "rabbit://:p@h/", "rabbit://u:@h/", "rabbit://h,,h2,/", "kombu://h", "kombu+rabbit://h/v",
	"rabbit://h/v?ssl=1&rabbit_quorum_queue=true", "rabbit://h/?a=1&a=2&b=&c", "rabbit://h?x=y", "rabbit://h/v#frag", "host", "", "://h", "RABBIT://H/V",
	"rabbit:h/v", "rabbit:/h/v", "rabbit://h:+5/", "rabbit://h: 5 /", "rabbit://h:5_6/", "rabbit://h:_5/", "rabbit://h:/", "rabbit://u:p:q@h/", "rabbit://u:p+q@h/?k=a+b",
	"rabbit://u:\u00fc\u2603@h/\u00fc", "rabbit://h/v?ssl_ca_file=%2Fetc%2Fca", "rabbit://h/v;p", "rabbit://u:%zz%4@h/", "rabbit://u:%ff%fe@h/%c3%28",
}
