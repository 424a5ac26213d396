// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// redactor takes secrets out of text: those that it knows, and what looks like one.
type redactor struct{ known [][]byte }

// hidden stands where a secret was.
const hidden = "***"

// minSecret is the length from which on a secret is looked for everywhere; shorter ones would hit innocent text.
const minSecret = 4

// learn takes the values of all secret options, and of URLs the passwords in them, as they are and as they are escaped.
func (r *redactor) learn(o *options.Options) {
	for _, s := range o.Effective().Settings {
		if option := s.Option(); !option.Secret || !s.IsSet() {
			continue
		}
		text := s.Text()
		if !strings.Contains(text, "://") {
			r.hide(text)
			continue
		}
		for _, m := range userInfo.FindAllStringSubmatch(text, -1) {
			r.hide(m[3])
			if plain, err := url.PathUnescape(m[3]); err == nil {
				r.hide(plain)
			}
		}
	}
	// The longest first: one may be the beginning of another.
	slices.SortFunc(r.known, func(a, b []byte) int { return len(b) - len(a) })
}

func (r *redactor) hide(secret string) {
	if len(secret) >= minSecret {
		r.known = append(r.known, []byte(secret))
	}
}

var (
	// userInfo is the user and password of an URL, of each of its hosts.
	userInfo = regexp.MustCompile(`(://|,)([^\s/@:,"']*):([^\s/@"']*)@`)
	// named is a value whose name says that it is one.
	named = regexp.MustCompile(`(?i)\b([\w.-]*(?:password|passwd|secret|psk|token|hmac|api_key|credential)[\w.-]*"?\s*[=:]\s*)("[^"\n]*"|'[^'\n]*'|[^\s,;}'"]+)`)
	// key is one in PEM.
	key = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
)

// clean returns text without secrets.
func (r *redactor) clean(text []byte) []byte {
	for _, s := range r.known {
		text = bytes.ReplaceAll(text, s, []byte(hidden))
	}
	text = userInfo.ReplaceAll(text, []byte("${1}${2}:"+hidden+"@"))
	text = named.ReplaceAll(text, []byte("${1}"+hidden))
	return key.ReplaceAll(text, []byte(hidden))
}
