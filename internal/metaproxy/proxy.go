// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Nova is where Nova's metadata service is, and how it is spoken to.
type Nova struct {
	URL      string // http or https, host and port
	Secret   string // metadata_proxy_shared_secret
	Insecure bool   // its certificate is not verified
	CACert   string // file with the authorities that may have signed it; "": the host's
	// Cert and Key are files with the certificate and private key of this client; "": it has none.
	Cert, Key string
}

// Bounds of requests and answers.
const (
	headerBytes  = 16 << 10
	bodyBytes    = 256 << 10 // Nova takes passwords of VMs by POST, which are shorter
	headerTime   = 10 * time.Second
	requestTime  = 30 * time.Second
	answerTime   = 90 * time.Second // of the whole answer
	idleTime     = 30 * time.Second
	novaTime     = 60 * time.Second // until Nova's answer begins
	connectTime  = 5 * time.Second
	novaConns    = 64
	novaIdle     = 4
	novaHeader   = 64 << 10
	novaIdleTime = 30 * time.Second
)

// Result is what became of a request: a label of a metric.
type Result int

// The results.
const (
	Answered    Result = iota // by Nova, whatever it said
	Unknown                   // no VM of this host asks from there
	Limited                   // too many
	Refused                   // not a request that is passed on
	Unreachable               // Nova is away, or its answer cannot be read
	TimedOut                  // Nova did not answer in time
	results
)

func (r Result) String() string {
	return [...]string{"answered", "unknown", "limited", "refused", "unreachable", "timeout"}[r]
}

// Proxy answers requests. Make it with [New].
type Proxy struct {
	nova    Nova
	service atomic.Pointer[Service]
	bounds  *bounds
	forward *httputil.ReverseProxy
	counts  [results]atomic.Uint64
	now     func() time.Time

	host     Kernel
	leftover string // the file with the process id of a Python agent's haproxy
	poke     chan struct{}
}

// New returns a proxy in front of Nova, on a host. Leftover is the file with the process id of the haproxy that a Python agent may have left behind.
func New(nova Nova, host Kernel, leftover string) (*Proxy, error) {
	target, err := url.Parse(nova.URL)
	if err != nil {
		return nil, fmt.Errorf("the address of Nova's metadata service: %w", err)
	}
	security, err := nova.tls()
	if err != nil {
		return nil, err
	}
	p := &Proxy{nova: nova, bounds: newBounds(), now: time.Now, host: host, leftover: leftover, poke: make(chan struct{}, 1)}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			p.nova.identify(r.In.Context(), r.Out.Header)
		},
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: connectTime}).DialContext, TLSClientConfig: security, TLSHandshakeTimeout: connectTime,
			ResponseHeaderTimeout: novaTime, MaxConnsPerHost: novaConns, MaxIdleConnsPerHost: novaIdle, IdleConnTimeout: novaIdleTime,
			MaxResponseHeaderBytes: novaHeader, DisableCompression: true,
		},
		ErrorHandler:   p.failed,
		ModifyResponse: func(*http.Response) error { p.counts[Answered].Add(1); return nil },
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), // what a VM sends is no reason for a line
	}
	return p, nil
}

// tls returns how Nova's certificate is verified and which one it gets; nil without https.
func (n *Nova) tls() (*tls.Config, error) {
	if !strings.HasPrefix(n.URL, "https:") {
		return nil, nil //nolint:nilnil // there is none
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: n.Insecure} //nolint:gosec // the operator asked for it
	if n.CACert != "" {
		text, err := os.ReadFile(n.CACert)
		if err != nil {
			return nil, fmt.Errorf("[METADATA] auth_ca_cert: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("[METADATA] auth_ca_cert: %s has no certificate", n.CACert)
		}
	}
	if n.Cert != "" {
		pair, err := tls.LoadX509KeyPair(n.Cert, n.Key)
		if err != nil {
			return nil, fmt.Errorf("[METADATA] nova_client_cert and nova_client_priv_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Signature returns what shows Nova that an instance id comes from one who knows the secret.
func (n *Nova) Signature(instance string) string {
	h := hmac.New(sha256.New, []byte(n.Secret))
	_, _ = h.Write([]byte(instance))
	return hex.EncodeToString(h.Sum(nil))
}

// Totals returns how many requests there were, by result; nothing without a proxy.
func (p *Proxy) Totals() map[string]uint64 {
	if p == nil {
		return nil
	}
	out := map[string]uint64{}
	for r := range results {
		out[r.String()] = p.counts[r].Load()
	}
	return out
}

// refuse answers a request that is not passed on.
func (p *Proxy) refuse(w http.ResponseWriter, r Result, status int, sentence string) {
	p.counts[r].Add(1)
	http.Error(w, sentence, status)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	source := addressOf(r.RemoteAddr)
	client, known := p.service.Load().Clients[source]
	if !known {
		p.refuse(w, Unknown, http.StatusNotFound, "No instance of this host has the address that the request came from.")
		return
	}
	end, ok := p.bounds.begin(source, p.now())
	if !ok {
		w.Header().Set("Retry-After", "1")
		p.refuse(w, Limited, http.StatusTooManyRequests, "The instance sends too many metadata requests.")
		return
	}
	defer end()
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		p.refuse(w, Refused, http.StatusMethodNotAllowed, "The metadata service takes GET, HEAD, POST, PUT and DELETE.")
		return
	}
	if r.ContentLength > bodyBytes {
		p.refuse(w, Refused, http.StatusRequestEntityTooLarge, "The body of the request is too large.")
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		p.refuse(w, Refused, http.StatusBadRequest, "The request names no path.")
		return
	}
	r.Body = sent{http.MaxBytesReader(w, r.Body, bodyBytes)}
	strip(r.Header)
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), asking{}, client), answerTime)
	defer cancel()
	p.forward.ServeHTTP(w, r.WithContext(ctx))
}

// sent is the body of a VM's request. Its errors are told from those of Nova's connection.
type sent struct{ io.ReadCloser }

type sentError struct{ error }

func (e sentError) Unwrap() error { return e.error }

// Read implements io.Reader.
func (b sent) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = sentError{err}
	}
	return n, err
}

// asking is the key under which the context of a request has its client.
type asking struct{}

// identify says in a request to Nova who asks. It comes last: a client may name headers in its own that the request loses on its way.
func (n *Nova) identify(ctx context.Context, h http.Header) {
	c, _ := ctx.Value(asking{}).(Client)
	h.Set("X-Instance-ID", c.Instance)
	h.Set("X-Tenant-ID", c.Project)
	h.Set("X-Instance-ID-Signature", n.Signature(c.Instance))
	h.Set("X-Forwarded-For", c.Address.String())
}

// strip takes out what a client says about who it is, and what asks for another protocol. WSGI servers read a name with an underscore as the one with a hyphen.
func strip(h http.Header) {
	for name := range h {
		upper := strings.ToUpper(strings.ReplaceAll(name, "_", "-"))
		switch {
		case strings.Contains(name, "_"), upper == "FORWARDED", upper == "UPGRADE", upper == "VIA", upper == "X-REAL-IP",
			strings.HasPrefix(upper, "X-INSTANCE-"), strings.HasPrefix(upper, "X-TENANT-"), strings.HasPrefix(upper, "X-PROJECT-"),
			strings.HasPrefix(upper, "X-FORWARDED-"), strings.HasPrefix(upper, "X-METADATA-"):
			delete(h, name)
		}
	}
}

// failed answers a request that Nova did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var large *http.MaxBytesError
	var body sentError
	var timeout net.Error
	switch {
	case errors.As(err, &large):
		p.refuse(w, Refused, http.StatusRequestEntityTooLarge, "The body of the request is too large.")
	case errors.Is(r.Context().Err(), context.Canceled): // the client has hung up
		p.refuse(w, Refused, http.StatusBadGateway, "The request was given up.")
	case errors.As(err, &body):
		p.refuse(w, Refused, http.StatusBadRequest, "The body of the request cannot be read.")
	case errors.As(err, &timeout) && timeout.Timeout():
		p.refuse(w, TimedOut, http.StatusGatewayTimeout, "Nova's metadata service did not answer in time.")
	default:
		p.refuse(w, Unreachable, http.StatusBadGateway, "Nova's metadata service cannot be reached.")
	}
}
