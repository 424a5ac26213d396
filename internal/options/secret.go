// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// Secret is text that must not be shown. Every way to print it gives "***".
type Secret struct{ text string }

// NewSecret hides text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal is the text itself, for the one place that needs it.
func (s Secret) Reveal() string { return s.text }

func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return "***"
}

// Format masks the secret for every verb of package fmt.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue masks the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON masks the secret in JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MaskURL shows of a transport URL what is certainly not secret: the scheme,
// user names, hosts, ports, the virtual host and the names of query keys. A
// character that belongs percent-encoded in a password makes the URL ambiguous;
// then nothing but the scheme is shown.
func MaskURL(url string) string {
	if url == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || !regexp.MustCompile(`^[a-z+]{1,20}$`).MatchString(scheme) {
		return "***"
	}
	hidden := scheme + "://***"
	hosts, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, tail = rest[:i], rest[i:]
	}
	if strings.ContainsAny(tail, "@#") {
		return hidden
	}
	if hosts, ok = maskHosts(hosts); !ok {
		return hidden
	}
	path, query, asked := strings.Cut(tail, "?")
	if !asked {
		return scheme + "://" + hosts + path
	}
	var keys []string
	for pair := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(pair, "=")
		if !regexp.MustCompile(`^[a-z_]{1,60}$`).MatchString(key) {
			return hidden
		}
		keys = append(keys, key+"=***")
	}
	return scheme + "://" + hosts + path + "?" + strings.Join(keys, "&")
}

// maskHosts refuses a list in which some hosts carry credentials and others do
// not, or others: the comma could belong to a password.
func maskHosts(list string) (string, bool) {
	if list == "" {
		return "", true
	}
	host := regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)?(:[0-9]{1,5})?$`)
	user := regexp.MustCompile(`^[A-Za-z0-9._%-]*$`)
	var out []string
	with, credentials := 0, ""
	for entry := range strings.SplitSeq(list, ",") {
		at := strings.LastIndex(entry, "@")
		if !host.MatchString(entry[at+1:]) {
			return "", false
		}
		if at < 0 {
			out = append(out, entry)
			continue
		}
		if with++; with > 1 && entry[:at] != credentials {
			return "", false
		}
		credentials = entry[:at]
		name, _, password := strings.Cut(entry[:at], ":")
		if !user.MatchString(name) {
			return "", false
		}
		if password {
			name += ":***"
		}
		out = append(out, name+entry[at:])
	}
	return strings.Join(out, ","), with == 0 || with == len(out)
}
