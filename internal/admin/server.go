// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Limits of a request. They are wide for people and programs that mean well.
const (
	// askTime is how long the loop may take to answer. It is also what livez means by alive.
	askTime = 5 * time.Second
	// writeTime is how long a reader may take for an answer.
	writeTime = 30 * time.Second
	// readTime is how long a request may take to arrive, idleTime how long a connection may be kept without one.
	readTime = 5 * time.Second
	idleTime = 30 * time.Second
	// maxHeader bounds a request; it has no body.
	maxHeader = 8 << 10
	// maxConnections and maxRequests (of a kind) bound how many there are at a time, maxLarge those whose answers may be megabytes.
	maxConnections = 256
	maxRequests    = 16
	maxLarge       = 2
	// queueTime is how long a request waits for its turn.
	queueTime = 10 * time.Second
)

// Options are what is served besides the source's documents.
type Options struct {
	// Settings is the effective configuration as JSON, without secrets.
	Settings func() ([]byte, error)
	// Metrics answers /metrics.
	Metrics http.Handler
	// Pages are further documents, by path.
	Pages map[string]http.Handler
}

// Server answers requests. Make it with [New].
type Server struct {
	src  inspect.Source
	opts Options
	mux  *http.ServeMux
	// Room for requests: short answers (health and status), lists, and lists that may be megabytes. A reader of one kind that
	// does not read keeps nobody from another.
	short, lists, large chan struct{}
}

// New returns a server of what the source knows.
func New(src inspect.Source, opts Options) *Server {
	s := newServer(src, opts)
	s.handle("/v1/status", s.short, one(src.Status))
	s.handle("/v1/ports", s.lists, many(src.Ports))
	s.handle("/v1/ports/{ref}", s.lists, s.port)
	s.handle("/v1/networks", s.lists, many(src.Networks))
	s.handle("/v1/tunnels", s.lists, many(src.Tunnels))
	s.handle("/v1/groups", s.lists, many(src.Groups))
	s.handle("/v1/groups/{ref}", s.lists, s.group)
	s.handle("/v1/bridges", s.lists, many(src.Bridges))
	s.handle("/v1/flows", s.large, s.flows)
	s.handle("/v1/events", s.lists, s.events)
	s.handle("/v1/config", s.short, s.config)
	for path, h := range opts.Pages {
		s.handle(path, s.large, h.ServeHTTP)
	}
	return s
}

// NewHealth returns a server that answers about health alone: livez, readyz and metrics. It tells nothing about ports.
func NewHealth(src inspect.Source, metrics http.Handler) *Server {
	return newServer(src, Options{Metrics: metrics})
}

func newServer(src inspect.Source, opts Options) *Server {
	s := &Server{
		src: src, opts: opts, mux: http.NewServeMux(),
		short: make(chan struct{}, maxRequests), lists: make(chan struct{}, maxRequests), large: make(chan struct{}, maxLarge),
	}
	s.handle("/livez", s.short, s.livez)
	s.handle("/readyz", s.short, s.readyz)
	if opts.Metrics != nil {
		s.handle("/metrics", s.short, opts.Metrics.ServeHTTP)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, errors.New("no such document; see patchbay help"))
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		fail(w, http.StatusMethodNotAllowed, errors.New("there is nothing to change here"))
		return
	}
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		fail(w, http.StatusBadRequest, errors.New("requests have no body"))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// handle answers a path while there is room.
func (s *Server) handle(path string, room chan struct{}, h http.HandlerFunc) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		wait := time.NewTimer(queueTime)
		defer wait.Stop()
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			h(w, r)
		case <-r.Context().Done():
		case <-wait.C:
			w.Header().Set("Retry-After", "10")
			fail(w, http.StatusServiceUnavailable, errors.New("too many requests are being answered"))
		}
	})
}

// Serve answers on a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime + askTime + queueTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: discardLog(),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(&bounded{Listener: l, room: make(chan struct{}, maxConnections)}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// one answers with a document, many with a list.
func one[T any](ask func(context.Context) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		doc, err := ask(ctx)
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		write(w, doc)
	}
}

func many[T any](ask func(context.Context) ([]T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		list, err := ask(ctx)
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		writeList(w, list)
	}
}

func (s *Server) port(w http.ResponseWriter, r *http.Request) {
	one(func(ctx context.Context) (inspect.Port, error) {
		ports, err := s.src.Ports(ctx)
		if err != nil {
			return inspect.Port{}, err
		}
		return inspect.FindPort(ports, r.PathValue("ref"))
	})(w, r)
}

func (s *Server) group(w http.ResponseWriter, r *http.Request) {
	one(func(ctx context.Context) (inspect.Group, error) {
		groups, err := s.src.Groups(ctx)
		if err != nil {
			return inspect.Group{}, err
		}
		return inspect.FindGroup(groups, r.PathValue("ref"))
	})(w, r)
}

func (s *Server) flows(w http.ResponseWriter, r *http.Request) {
	many(func(ctx context.Context) ([]inspect.Flow, error) {
		return s.src.Flows(ctx, r.URL.Query().Get("bridge"))
	})(w, r)
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	after := uint64(0)
	if text := r.URL.Query().Get("after"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			fail(w, http.StatusBadRequest, errors.New("after is not a number"))
			return
		}
		after = n
	}
	many(func(ctx context.Context) ([]inspect.Event, error) {
		all, err := s.src.Events(ctx)
		for i := range all {
			if all[i].Seq > after {
				return all[i:], err
			}
		}
		return nil, err
	})(w, r)
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	if s.opts.Settings == nil {
		fail(w, http.StatusNotFound, errors.New("the configuration is not served"))
		return
	}
	doc, err := s.opts.Settings()
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(doc)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, inspect.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, inspect.ErrAmbiguous):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// failure is what an answer says instead of a document.
type failure struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{err.Error()})
}

func write(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(doc) // a reader that is gone does not want it
}

// writeList writes one line an element, as it goes: the text of a list is never in memory as a whole.
func writeList[T any](w http.ResponseWriter, list []T) {
	w.Header().Set("Content-Type", "application/json")
	// The time to read begins when there is something to read.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	out := bufio.NewWriterSize(w, 32<<10)
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	sep := "[\n"
	for i := range list {
		line.Reset()
		if err := enc.Encode(&list[i]); err != nil {
			return
		}
		_, _ = out.WriteString(sep)
		sep = ",\n"
		if _, err := out.Write(bytes.TrimRight(line.Bytes(), "\n")); err != nil {
			return
		}
	}
	if len(list) == 0 {
		_, _ = out.WriteString("[")
	}
	_, _ = out.WriteString("\n]\n")
	_ = out.Flush()
}
