// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"compress/zlib"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/rawjson"
)

// wire is a decoded message: a request or a reply. Byte slices may alias the received body.
type wire struct {
	inner []byte // the whole inner object, for the context fields

	method, version, namespace string
	args                       json.RawMessage
	uniqueID, msgID, replyQ    string

	result, failure json.RawMessage
	ending          bool
	refused         error // why the reply was not read
}

const contextPrefix = "_context_"

// decodeMessage opens the envelope, if there is one, and locates the members of the message. It writes over the body.
func decodeMessage(body []byte) (*wire, error) {
	w := &wire{}
	err := w.open(body)
	if err == nil {
		err = w.scan()
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}
	return w, nil
}

// open finds the inner message: the content of the envelope, or the body itself if it is none.
func (w *wire) open(body []byte) error {
	var version, message []byte
	n, err := rawjson.Members(body, func(key, rest []byte) (n int, err error) {
		if string(key) == "oslo.message" && version != nil && bytes.HasPrefix(rest, []byte{'"'}) {
			// Everybody sends the version first. The message is decoded as it is read, since it is nearly all of the body.
			w.inner, n, err = rawjson.UnquoteInPlace(rest)
			return n, err
		}
		if n, err = rawjson.Skip(rest); err != nil {
			return 0, err
		}
		switch string(key) {
		case "oslo.version":
			version = rest[:n]
		case "oslo.message":
			message = rest[:n]
		}
		return n, nil
	})
	if err != nil {
		return err
	}
	if !rawjson.Blank(body[n:]) {
		return rawjson.ErrSyntax
	}
	if version == nil || message == nil && w.inner == nil {
		w.inner = body
		return nil
	}
	if v, err := rawjson.String(version); err != nil || !VersionServed("2.0", v) {
		return errors.New("unknown envelope version")
	}
	if message != nil {
		w.inner, err = rawjson.Unquote(message)
	}
	return err
}

func (w *wire) scan() error {
	var bad error
	text := func(dst *string, raw []byte) {
		s, err := rawjson.String(raw)
		if err != nil {
			bad = err
		}
		*dst = s
	}
	err := rawjson.Object(w.inner, func(key, value []byte) {
		switch string(key) {
		case "method":
			text(&w.method, value)
		case "version":
			text(&w.version, value)
		case "namespace":
			text(&w.namespace, value)
		case "args":
			w.args = value
		case "_unique_id":
			text(&w.uniqueID, value)
		case "_msg_id":
			text(&w.msgID, value)
		case "_reply_q":
			text(&w.replyQ, value)
		case "result":
			w.result = value
		case "failure":
			w.failure = value
		case "ending":
			w.ending = string(value) == "true"
		}
	})
	return errors.Join(err, bad)
}

// context collects the context fields, under their names without prefix.
func (w *wire) context() map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	_ = rawjson.Object(w.inner, func(key, value []byte) { // scanned before, so it cannot fail
		if name, ok := strings.CutPrefix(string(key), contextPrefix); ok {
			m[name] = value
		}
	})
	return m
}

// seal puts an inner message into the envelope.
func seal(inner []byte) []byte {
	// Nearly every byte that must be escaped is a quote; an eighth more is what typical messages need.
	out := make([]byte, 0, len(inner)+len(inner)/8+64)
	out = append(out, `{"oslo.version":"2.0","oslo.message":`...)
	return append(rawjson.AppendQuoted(out, inner), '}')
}

// request builds the body of a call (msgID not empty) or cast.
func request(t Target, method string, args any, fields map[string]any, uniqueID, msgID, replyQ string) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, 1024))
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	member := func(name string, v any) error {
		buf.Write(rawjson.AppendQuoted(buf.AvailableBuffer(), []byte(name)))
		buf.WriteByte(':')
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("encoding %s of %s: %w", name, method, err)
		}
		buf.Truncate(buf.Len() - 1) // the encoder's newline
		buf.WriteByte(',')
		return nil
	}
	buf.WriteByte('{')
	if args == nil {
		args = struct{}{}
	}
	errs := member("args", args)
	for k, v := range fields {
		errs = errors.Join(errs, member(contextPrefix+k, v))
	}
	text := func(name, v string) { errs = errors.Join(errs, member(name, v)) }
	text("method", method)
	if t.Version != "" {
		text("version", t.Version)
	}
	if t.Namespace != "" {
		text("namespace", t.Namespace)
	}
	if msgID != "" {
		text("_msg_id", msgID)
		text("_reply_q", replyQ)
		buf.WriteString(`"_timeout":null,`)
	}
	text("_unique_id", uniqueID)
	if errs != nil {
		return nil, errs
	}
	inner := buf.Bytes()
	inner[len(inner)-1] = '}'
	return seal(inner), nil
}

// reply builds the body of a reply; failed is nil for success.
func reply(msgID, uniqueID string, result any, failed error) ([]byte, error) {
	res, fail := []byte("null"), []byte("null")
	var err error
	if failed != nil {
		if fail, err = encodeFailure(failed); err == nil {
			fail = rawjson.AppendQuoted(nil, fail)
		}
	} else {
		res, err = json.Marshal(result)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding a reply: %w", err)
	}
	inner := make([]byte, 0, len(res)+len(fail)+160)
	inner = append(append(inner, `{"result":`...), res...)
	inner = append(append(inner, `,"failure":`...), fail...)
	inner = append(inner, `,"ending":true,"_msg_id":`...)
	inner = rawjson.AppendQuoted(inner, []byte(msgID))
	inner = append(inner, `,"_unique_id":`...)
	inner = append(rawjson.AppendQuoted(inner, []byte(uniqueID)), '}')
	return seal(inner), nil
}

// VersionServed is the version rule of oslo.messaging: a server of version served answers requests of the same major
// and the same or a lower minor version. An empty request counts as 1.0.
func VersionServed(served, requested string) bool {
	if requested == "" {
		requested = "1.0"
	}
	sMajor, sMinor, ok1 := splitVersion(served)
	rMajor, rMinor, ok2 := splitVersion(requested)
	return ok1 && ok2 && sMajor == rMajor && rMinor <= sMinor
}

func splitVersion(v string) (major, minor int, ok bool) {
	a, b, _ := strings.Cut(v, ".")
	if b == "" {
		b = "0"
	}
	b, _, _ = strings.Cut(b, ".")
	major, err1 := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	return major, minor, err1 == nil && err2 == nil
}

// newID is 32 hexadecimal digits, formed like the uuid4 that Python peers use.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b[:])
}

// Values of the header that kombu peers announce compression with. What kombu calls gzip is in fact the zlib format.
const (
	headerGzip = "application/x-gzip"
	headerBzip = "application/x-bz2"
)

func compress(body []byte) ([]byte, error) {
	var buf bytes.Buffer
	z := zlib.NewWriter(&buf)
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return buf.Bytes(), nil
}

// decompress gives at most limit bytes; more is an error.
func decompress(body []byte, kind string, limit int64) ([]byte, error) {
	var r io.Reader
	switch kind {
	case "":
		return body, nil
	case headerGzip, "gzip":
		var err error
		if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			r, err = gzip.NewReader(bytes.NewReader(body))
		} else {
			r, err = zlib.NewReader(bytes.NewReader(body))
		}
		if err != nil {
			return nil, fmt.Errorf("decompressing: %w", err)
		}
	case headerBzip, "bz2":
		r = bzip2.NewReader(bytes.NewReader(body))
	default:
		return nil, fmt.Errorf("unknown compression %q", kind)
	}
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	if int64(len(out)) > limit {
		return nil, &TooLargeError{Size: limit + 1, Limit: limit}
	}
	return out, nil
}
