// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Password is a secret. Every way of formatting it gives "***", so it cannot slip into a log or an error text together
// with the struct it is part of.
type Password string

const masked = "***"

func (Password) String() string { return masked }

// MarshalText covers JSON.
func (Password) MarshalText() ([]byte, error) { return []byte(masked), nil }

// Format covers all verbs, also those that make no sense for a text.
func (Password) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, masked) }

// Host is one broker address of a transport URL. What the URL leaves out is the zero value.
type Host struct {
	Name     string // host name or address, IPv6 without brackets; "" means localhost
	Port     int    // 0 means 5672
	Username string // "" means guest
	Password Password
}

// Addr is host:port with the defaults filled in.
func (h Host) Addr() string {
	name, port := h.Name, h.Port
	if name == "" {
		name = "localhost"
	}
	if port == 0 {
		port = 5672
	}
	return net.JoinHostPort(name, strconv.Itoa(port))
}

// URL is a parsed transport_url.
type URL struct {
	Transport   string // as written: "rabbit", "kombu", "kombu+rabbit" …
	VirtualHost string // as written after the slash, decoded once; "" means "/"
	Hosts       []Host // may be empty, which means one guest:guest@localhost:5672
	// Query overrides options of [oslo_messaging_rabbit]; see [Rabbit.Set].
	Query map[string]string
}

// ParseURL parses an oslo.messaging transport_url,
//
//	rabbit://[user:pass@]host[:port][,[user:pass@]host2[:port2]…]/[vhost][?option=value]
//
// the way oslo.messaging does. Its errors never contain the text of the URL.
func ParseURL(text string) (URL, error) {
	u := URL{}
	text = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\r' || r == '\n' {
			return -1
		}
		return r
	}, strings.TrimLeft(text, " \x00\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\t\r\n"))
	scheme, rest, ok := cutScheme(text)
	if !ok {
		return u, errors.New("transport URL has no scheme")
	}
	u.Transport = scheme
	if u.driver() != "rabbit" {
		// The name is not quoted: in a mistyped URL anything can stand before the colon.
		return u, errors.New("transport URL names another driver than rabbit, the only one supported")
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	netloc, path := "", rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		netloc, path = after, ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			netloc, path = after[:i], after[i:]
		}
	}
	if strings.Contains(netloc, "[") != strings.Contains(netloc, "]") {
		return u, errors.New("transport URL has an unclosed bracket around an IPv6 address")
	}
	u.Query = parseQuery(query)
	if after, ok := strings.CutPrefix(path, "/"); ok {
		u.VirtualHost = unquotePercent(after)
	}
	n := 0
	for _, part := range strings.Split(netloc, ",") {
		if part == "" {
			continue
		}
		n++
		h, err := parseHost(part)
		if err != nil {
			return u, fmt.Errorf("transport URL, host %d: %w", n, err)
		}
		u.Hosts = append(u.Hosts, h)
	}
	return u, nil
}

// driver is the Python driver behind a transport name: rabbit and kombu are the same one.
func (u URL) driver() string {
	t := strings.TrimPrefix(u.Transport, "kombu+")
	if t == "kombu" || t == "amqp" && t != u.Transport {
		return "rabbit"
	}
	return t
}

func cutScheme(s string) (scheme, rest string, ok bool) {
	i := strings.IndexByte(s, ':')
	if i <= 0 {
		return "", "", false
	}
	for j, c := range []byte(s[:i]) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (j == 0 || !strings.ContainsRune("0123456789+-.", rune(c))) {
			return "", "", false
		}
	}
	return strings.ToLower(s[:i]), s[i+1:], true
}

func parseHost(s string) (Host, error) {
	var h Host
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		user, pass, _ := strings.Cut(s[:i], ":")
		h.Username, h.Password = unquotePercent(user), Password(unquotePercent(pass))
		s = s[i+1:]
	}
	var port string
	switch {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return h, errors.New("unclosed bracket around an IPv6 address")
		}
		h.Name = s[1:end]
		_, port, _ = strings.Cut(s[end:], ":")
	default:
		h.Name, port, _ = strings.Cut(s, ":")
	}
	if port == "" {
		return h, nil
	}
	n, err := parsePort(port)
	if err != nil {
		// The text is not quoted: an unescaped @ in a password can end up here.
		return h, errors.New("the port is not a number from 0 to 65535")
	}
	h.Port = n
	return h, nil
}

// parsePort reads a number as Python's int() does: blanks around it, a sign, single underscores between digits.
func parsePort(s string) (int, error) {
	s = strings.TrimPrefix(strings.Trim(s, " \t\n\r\v\f"), "+")
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(s, "_", ""), 10, 16)
	return int(n), err
}

// parseQuery drops keys without a value and joins repeated ones with commas.
func parseQuery(s string) map[string]string {
	m := map[string]string{}
	for _, pair := range strings.Split(s, "&") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || v == "" {
			continue
		}
		k = unquotePercent(strings.ReplaceAll(k, "+", " "))
		v = unquotePercent(strings.ReplaceAll(v, "+", " "))
		if old, dup := m[k]; dup {
			v = old + "," + v
		}
		m[k] = v
	}
	return m
}

// unquotePercent decodes %XX; what is not a valid escape stays as it is, and bytes that are not UTF-8 become U+FFFD.
func unquotePercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return string([]rune(b.String())) // each byte that is not part of a valid sequence becomes U+FFFD
}

// vhost is what the connection is opened with. The Python driver hands the decoded text to a second URL parser, which
// decodes it once more; the same text must lead to the same virtual host here.
func (u URL) vhost() string {
	v := u.VirtualHost
	// The second parser sees a URL again, in which these begin the query, the fragment and the parameters.
	if i := strings.IndexAny(v, "?#"); i >= 0 {
		v = v[:i]
	}
	if i := strings.IndexByte(v[strings.LastIndexByte(v, '/')+1:], ';'); i >= 0 {
		v = v[:strings.LastIndexByte(v, '/')+1+i]
	}
	if v = unquotePercent(v); v == "" {
		return "/"
	}
	return v
}

// hosts gives the broker addresses with all defaults filled in.
func (u URL) hosts() []Host {
	hosts := append([]Host(nil), u.Hosts...)
	if len(hosts) == 0 {
		hosts = []Host{{}}
	}
	for i := range hosts {
		if hosts[i].Name == "" {
			hosts[i].Name = "localhost"
		}
		if hosts[i].Port == 0 {
			hosts[i].Port = 5672
		}
		if hosts[i].Username == "" {
			hosts[i].Username = "guest"
		}
		if hosts[i].Password == "" {
			hosts[i].Password = "guest"
		}
	}
	return hosts
}

// GoString is String: the query of a mistyped URL can hold anything.
func (u URL) GoString() string { return u.String() }

// String gives the URL with its passwords masked and without the query.
func (u URL) String() string {
	parts := make([]string, len(u.Hosts))
	for i, h := range u.Hosts {
		addr := h.Name
		if strings.Contains(addr, ":") {
			addr = "[" + addr + "]"
		}
		if h.Port != 0 {
			addr += ":" + strconv.Itoa(h.Port)
		}
		if h.Username != "" || h.Password != "" {
			addr = h.Username + ":" + masked + "@" + addr
		}
		parts[i] = addr
	}
	return u.Transport + "://" + strings.Join(parts, ",") + "/" + u.VirtualHost
}
