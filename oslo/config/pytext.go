// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// The functions of this file reproduce how Python reads and writes text, where
// Go's own functions differ from it.

// isSpace also accepts the four ASCII separators that Go does not count as
// white space.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f)
}

func strip(s string) string  { return strings.TrimFunc(s, isSpace) }
func rstrip(s string) string { return strings.TrimRightFunc(s, isSpace) }
func lstrip(s string) string { return strings.TrimLeftFunc(s, isSpace) }

// lower differs from strings.ToLower in one letter that matters for a
// comparison with ASCII names: a dotted capital I keeps its dot.
func lower(s string) string {
	if strings.ContainsRune(s, 'İ') {
		s = strings.ReplaceAll(s, "İ", "i̇")
	}
	return strings.ToLower(s)
}

// isLetterFold is [a-z] as a case-insensitive Unicode pattern of Python sees
// it: four letters outside ASCII fold into the range.
func isLetterFold(r rune) bool {
	return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') ||
		r == 'İ' || r == 'ı' || r == 'ſ' || r == 'K'
}

var errNumber = errors.New("is not a number")

// asciiDigits replaces every decimal digit of any script by its ASCII digit.
// Each script has its ten digits in one run, and Unicode's table keeps runs
// whole, so the distance from the start of the table range gives the digit.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 || !unicode.Is(unicode.Nd, r) {
			return r
		}
		for _, t := range unicode.Nd.R16 {
			if rune(t.Lo) <= r && r <= rune(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		for _, t := range unicode.Nd.R32 {
			if rune(t.Lo) <= r && r <= rune(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		return r
	}, s)
}

// digits consumes digits with single underscores between them and returns them
// without the underscores.
func digits(s string) (read, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			b.WriteByte(c)
		case c == '_' && i > 0 && s[i-1] != '_' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9':
		default:
			return b.String(), s[i:]
		}
	}
	return b.String(), ""
}

func sign(s string) (sign, rest string) {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return s[:1], s[1:]
	}
	return "", s
}

// maxIntDigits is the length beyond which Python refuses to convert.
const maxIntDigits = 4300

// parseInt returns an int64, or a *big.Int for what does not fit.
func parseInt(s string) (any, error) {
	neg, s := sign(asciiDigits(strings.TrimSpace(s))) // not strip: a number may not carry the ASCII separators
	num, rest := digits(s)
	if num == "" || rest != "" || len(num) > maxIntDigits {
		return nil, errNumber
	}
	if neg == "-" {
		num = neg + num
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil {
		return n, nil
	}
	n, ok := new(big.Int).SetString(num, 10)
	if !ok {
		return nil, errNumber
	}
	return n, nil
}

func parseFloat(s string) (float64, error) {
	neg, s := sign(asciiDigits(strings.TrimSpace(s))) // not strip: a number may not carry the ASCII separators
	switch lower(s) {
	case "inf", "infinity":
		if neg == "-" {
			return math.Inf(-1), nil
		}
		return math.Inf(1), nil
	case "nan":
		return math.NaN(), nil
	}
	whole, s := digits(s)
	frac := ""
	if strings.HasPrefix(s, ".") {
		frac, s = digits(s[1:])
	}
	if whole == "" && frac == "" {
		return 0, errNumber
	}
	exp := ""
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		expSign, rest := sign(s[1:])
		num, rest := digits(rest)
		if num == "" {
			return 0, errNumber
		}
		exp, s = "e"+expSign+num, rest
	}
	if s != "" {
		return 0, errNumber
	}
	// Out of range gives an infinity, in both languages.
	f, err := strconv.ParseFloat(neg+whole+"."+frac+"0"+exp, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errNumber
	}
	return f, nil
}

func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+"))
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a < 1e-4 || a >= 1e16 {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// text is str(v): what a reference to an option inserts.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return floatText(v)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = repr(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []Pair:
		parts := make([]string, len(v))
		for i, p := range v {
			parts[i] = repr(p.Key) + ": " + repr(p.Value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return ""
}

func repr(v any) string {
	s, ok := v.(string)
	if !ok {
		return text(v)
	}
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			b.WriteString(`\x` + hex(r, 2))
		case r < 0x10000:
			b.WriteString(`\u` + hex(r, 4))
		default:
			b.WriteString(`\U` + hex(r, 8))
		}
	}
	b.WriteRune(quote)
	return b.String()
}

func hex(r rune, width int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", width-len(s)) + s
}
