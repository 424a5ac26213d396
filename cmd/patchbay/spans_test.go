// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/admin"
)

// A port that is up is one trace: the whole and its parts, one after the other. One that is not up is none.
func TestSpans(t *testing.T) {
	socket := served(t, exampleAgent(), admin.Options{})
	out, status := run(t, "spans", "--socket", socket)
	var doc otlp
	if err := json.Unmarshal([]byte(out), &doc); err != nil || status != 0 {
		t.Fatalf("status %d, %v:\n%s", status, err, out)
	}
	spans := doc.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 4 {
		t.Fatalf("%d spans:\n%s", len(spans), out)
	}
	root, end := spans[0], spans[0].Start
	for _, s := range spans[1:] {
		if s.ParentID != root.SpanID || s.TraceID != root.TraceID || s.Start != end || s.SpanID == root.SpanID {
			t.Errorf("%+v does not belong to %+v", s, root)
		}
		end = s.End
	}
	if root.End != end || root.ParentID != "" || root.Start != nano(noon) || root.End != nano(noon.Add(time.Second)) {
		t.Errorf("%+v", root)
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(root.TraceID) || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(root.SpanID) {
		t.Errorf("ids %s, %s", root.TraceID, root.SpanID)
	}
	for _, part := range []string{`"key": "host.name"`, `"stringValue": "hv1"`, `"stringValue": "4f1c-1"`} {
		if !strings.Contains(out, part) {
			t.Errorf("no %s in\n%s", part, out)
		}
	}
}

// While it follows, each port is sent once; one that was plugged in anew is another; what a collector did not take is sent again.
func TestSpansFollow(t *testing.T) {
	src, sent := exampleAgent(), map[string]bool{}
	var got [][]span
	var refused error
	look := func() error {
		return exportNew(t.Context(), src, sent, func(doc otlp) error {
			if refused == nil {
				got = append(got, doc.ResourceSpans[0].ScopeSpans[0].Spans)
			}
			return refused
		})
	}
	refused = io.ErrUnexpectedEOF
	if err := look(); !errors.Is(err, refused) {
		t.Error(err)
	}
	refused = nil
	if err := errors.Join(look(), look()); err != nil || len(got) != 1 {
		t.Errorf("sent %d times: %v", len(got), err)
	}
	src.ports[0].Timeline.Plugged, src.ports[0].Timeline.Reported = noon.Add(time.Hour), noon.Add(time.Hour+time.Second)
	if err := errors.Join(look(), look()); err != nil || len(got) != 2 || got[0][0].TraceID == got[1][0].TraceID {
		t.Errorf("sent %d times: %v, %v", len(got), got, err)
	}
}

// What fails is said and tried again after a pause, until it is told to end.
func TestSpansTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var said strings.Builder
		tries, start := 0, time.Now()
		err := exportSpans(ctx, exampleAgent(), true, func(otlp) error {
			if tries++; tries == 3 {
				cancel()
			}
			return io.ErrUnexpectedEOF
		}, &said)
		if err != nil || tries != 3 || time.Since(start) != 2*spanPause || strings.Count(said.String(), "unexpected EOF") != 2 {
			t.Errorf("%d tries in %v: %v\n%s", tries, time.Since(start), err, said.String())
		}
	})
}

func TestPostSpans(t *testing.T) {
	status := http.StatusOK
	var body, kind string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, kind = string(text), r.Header.Get("Content-Type")
		w.WriteHeader(status)
	}))
	defer s.Close()
	socket := served(t, exampleAgent(), admin.Options{})
	if out, code := run(t, "spans", "--socket", socket, "--to", s.URL); code != 0 || kind != "application/json" || !strings.Contains(body, `"port wired"`) {
		t.Errorf("%d %s\n%s %s", code, out, kind, body)
	}
	status = http.StatusServiceUnavailable
	if out, code := run(t, "spans", "--socket", socket, "--to", s.URL); code != exitFailed || !strings.Contains(out, "503") {
		t.Errorf("%d %s", code, out)
	}
}
