// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

func newSpansCommand() *cobra.Command {
	var f askFlags
	var to string
	var watch bool
	cmd := &cobra.Command{
		Use:   "spans",
		Short: "Export the wiring of ports to an OpenTelemetry collector",
		Long: `Export the wiring of ports to an OpenTelemetry collector: one trace for each port, from plugging until neutron-server
has confirmed it as up, with a span each for the pull of its details, the switch and the report.

The command makes the traces from the agent's admin socket. The same port gives the same trace each time. Without --to
it prints the document: OTLP in JSON, as a collector accepts it at /v1/traces.`,
		Example: "  patchbay spans --watch --to http://collector:4318/v1/traces",
		Args:    argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			send := func(doc otlp) error { return writeJSON(cmd.OutOrStdout(), doc) }
			if to != "" {
				if u, err := url.Parse(to); err != nil || u.Host == "" {
					return usage{fmt.Errorf("--to %q is no address such as http://HOST:4318/v1/traces", to)}
				}
				send = func(doc otlp) error { return post(ctx, to, doc) }
			}
			return exportSpans(ctx, f.client(), watch, send, cmd.ErrOrStderr())
		},
	}
	f.addSocket(cmd)
	cmd.Flags().StringVar(&to, "to", "", "address of the collector: http://HOST:4318/v1/traces")
	addWatch(cmd, &watch, "export more ports as they come up")
	return cmd
}

// spanPause separates looks for ports that have come up.
const spanPause = 5 * time.Second

// wiringSource is what spans are made of.
type wiringSource interface {
	Status(ctx context.Context) (inspect.Status, error)
	Ports(ctx context.Context) ([]inspect.Port, error)
}

// exportSpans sends the traces of ports that are up, each once. While it follows, what fails is said and tried again.
func exportSpans(ctx context.Context, src wiringSource, follow bool, send func(otlp) error, errs io.Writer) error {
	sent := map[string]bool{}
	for {
		err := exportNew(ctx, src, sent, send)
		switch {
		case !follow:
			return err
		case err != nil && ctx.Err() == nil:
			fmt.Fprintln(errs, "patchbay:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(spanPause):
		}
	}
}

// exportNew sends what has not been sent.
func exportNew(ctx context.Context, src wiringSource, sent map[string]bool, send func(otlp) error) error {
	status, err := src.Status(ctx)
	if err != nil {
		return err
	}
	ports, err := src.Ports(ctx)
	if err != nil {
		return err
	}
	var spans []span
	var fresh []string
	seen := map[string]bool{}
	for i := range ports {
		list := wiringSpans(status.Host, &ports[i])
		if len(list) == 0 {
			continue
		}
		id := list[0].TraceID
		seen[id] = true
		if !sent[id] {
			spans, fresh = append(spans, list...), append(fresh, id)
		}
	}
	for id := range sent {
		if !seen[id] {
			delete(sent, id) // the port is gone
		}
	}
	if len(spans) == 0 {
		return nil
	}
	if err := send(otlpOf(status.Host, status.Version, spans)); err != nil {
		return err
	}
	for _, id := range fresh {
		sent[id] = true
	}
	return nil
}

// wiringSpans is the trace of a port that is up: the whole, and below it the parts. Ids follow from what it is about.
func wiringSpans(host string, p *inspect.Port) []span {
	l := p.Timeline
	if l.Plugged.IsZero() || l.Reported.Before(l.Plugged) {
		return nil
	}
	id := func(part string, size int) string {
		sum := sha256.Sum256([]byte(host + "\x00" + p.ID + "\x00" + nano(l.Plugged) + "\x00" + part))
		return hex.EncodeToString(sum[:size])
	}
	trace, root := id("", 16), id("port", 8)
	spans := []span{{
		TraceID: trace, SpanID: root, Name: "port wired", Kind: spanInternal, Start: nano(l.Plugged), End: nano(l.Reported),
		Attributes: attributes("port.id", p.ID, "port.name", p.Name, "network.id", p.Network, "interface", p.Interface, "vlan", strconv.Itoa(int(p.VLAN))),
	}}
	from := l.Plugged
	for _, part := range []struct {
		name string
		end  time.Time
	}{{"details from the server", l.Answered}, {"flows and rows", l.Applied}, {"report to the server", l.Reported}} {
		if part.end.Before(from) {
			continue // it was known before, or took no time of its own
		}
		spans = append(spans, span{
			TraceID: trace, SpanID: id(part.name, 8), ParentID: root, Name: part.name, Kind: spanInternal, Start: nano(from), End: nano(part.end),
		})
		from = part.end
	}
	return spans
}

func nano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// The document that collectors take, as OTLP 1 defines it in JSON: as much of it as is used.
type (
	otlp struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	span struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		ParentID   string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value struct {
			Text string `json:"stringValue"`
		} `json:"value"`
	}
)

// spanInternal is the kind of a span that is neither a request nor its answer.
const spanInternal = 1

func otlpOf(host, version string, spans []span) otlp {
	return otlp{[]resourceSpans{{
		resource{attributes("service.name", "patchbay", "service.version", version, "host.name", host)},
		[]scopeSpans{{scope{"patchbay/wiring", version}, spans}},
	}}}
}

// attributes makes them of names and values; those without a value are left out.
func attributes(pairs ...string) []attribute {
	var list []attribute
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			a := attribute{Key: pairs[i]}
			a.Value.Text = pairs[i+1]
			list = append(list, a)
		}
	}
	return list
}

// post hands a document to a collector.
func post(ctx context.Context, to string, doc otlp) error {
	body, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("sending spans: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("sending spans: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("sending spans: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("sending spans: the collector answers %s", resp.Status)
	}
	return nil
}
