// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/rawjson"
)

// ErrClosed is what calls on a closed Client, and calls that Close interrupts, end with.
var ErrClosed = errors.New("messaging: client is closed")

// ErrTimeout is matched (errors.Is) by every [TimeoutError].
var ErrTimeout = errors.New("messaging: timed out")

// TimeoutError says that no reply, or for casts no confirmation by the broker, came in time. The method may have run.
type TimeoutError struct {
	Topic, Method string
	After         time.Duration // how long was waited
	// RetryAfter is a random time up to After, at most a minute. Whoever repeats the call should wait so long first:
	// the usual reason for a timeout is a server that is overloaded by many hosts at once. (oslo.messaging clients in
	// Neutron sleep that long inside the call; here the caller decides.)
	RetryAfter time.Duration
	// Last is the latest connection problem seen while waiting, if any.
	Last error
}

func (e *TimeoutError) Error() string {
	s := fmt.Sprintf("no answer to %s on %s after %s", e.Method, e.Topic, e.After.Round(time.Millisecond))
	if e.Last != nil {
		s += ": " + e.Last.Error()
	}
	return s
}

func (e *TimeoutError) Unwrap() error { return e.Last }

// Is makes the error match ErrTimeout and context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// RemoteError is an exception raised by the remote method. A [Handler] that returns one sends it as it is, so that a
// Python caller sees that class.
type RemoteError struct {
	Class   string // e.g. "UnsupportedVersion"
	Module  string // e.g. "oslo_messaging.rpc.dispatcher"
	Message string
	// Args and Kwargs are what the exception was made with, Traceback its lines; all may be missing.
	Args      json.RawMessage
	Kwargs    json.RawMessage
	Traceback []string
}

func (e *RemoteError) Error() string {
	class := e.Class
	if class == "" {
		class = "remote error"
	}
	// Python puts the traceback behind the message of exceptions that it forwards; the first line says it all.
	first, _, _ := strings.Cut(e.Message, "\n")
	if first == "" {
		return class
	}
	return class + ": " + first
}

// Is compares classes: errors.Is(err, messaging.Class("PortNotFound")) matches a RemoteError of that class.
func (e *RemoteError) Is(target error) bool {
	var c Class
	return errors.As(target, &c) && string(c) == e.Class
}

// Class is the class name of a remote exception, as a target for errors.Is.
type Class string

func (c Class) Error() string { return "remote exception " + string(c) }

// Exceptions of the RPC layer itself.
const (
	UnsupportedVersion Class = "UnsupportedVersion" // the server does not speak the version asked for
	NoSuchMethod       Class = "NoSuchMethod"
	InvalidArguments   Class = "TypeError" // the Python method was given other arguments than it takes
)

const dispatcherModule = "oslo_messaging.rpc.dispatcher"

// NewUnsupportedVersion is what a handler returns for a version it does not serve.
func NewUnsupportedVersion(version, method string) *RemoteError {
	return &RemoteError{
		Class: string(UnsupportedVersion), Module: dispatcherModule,
		Message: fmt.Sprintf("Endpoint does not support RPC version %s. Attempted method: %s", version, method),
		Args:    mustJSON([]string{version}), Kwargs: mustJSON(map[string]string{"method": method}),
	}
}

// NewNoSuchMethod is what a handler returns for a method it does not know.
func NewNoSuchMethod(method string) *RemoteError {
	return &RemoteError{
		Class: string(NoSuchMethod), Module: dispatcherModule,
		Message: "Endpoint does not support RPC method " + method, Args: mustJSON([]string{method}),
	}
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only called with strings
	}
	return b
}

// failure is the JSON form of an exception inside a reply.
type failure struct {
	Class   string          `json:"class"`
	Module  string          `json:"module"`
	Message string          `json:"message"`
	TB      []string        `json:"tb"`
	Args    json.RawMessage `json:"args"`
	Kwargs  json.RawMessage `json:"kwargs"`
}

func encodeFailure(err error) ([]byte, error) {
	var re *RemoteError
	if !errors.As(err, &re) {
		// A class every Python caller can rebuild.
		re = &RemoteError{Class: "RuntimeError", Module: "builtins", Message: err.Error(), Args: mustJSON([]string{err.Error()})}
	}
	f := failure{re.Class, re.Module, re.Message, re.Traceback, re.Args, re.Kwargs}
	if f.TB == nil {
		f.TB = []string{}
	}
	if f.Args == nil {
		f.Args = mustJSON([]string{re.Message})
	}
	if f.Kwargs == nil {
		f.Kwargs = json.RawMessage("{}")
	}
	return json.Marshal(f)
}

// decodeFailure never fails: a failure that cannot be read is still a failure.
func decodeFailure(raw []byte) *RemoteError {
	text, err := rawjson.String(raw)
	if err != nil {
		text = string(raw)
	}
	var f struct {
		failure
		TB json.RawMessage `json:"tb"`
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return &RemoteError{Message: text}
	}
	e := &RemoteError{Class: f.Class, Module: f.Module, Message: f.Message, Args: f.Args, Kwargs: f.Kwargs}
	_ = json.Unmarshal(f.TB, &e.Traceback)
	return e
}
