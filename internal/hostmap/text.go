// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// number writes 12345 as 12,345.
func number[T int | int64 | uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count writes "1 port", "2,000 ports".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return number(n) + " " + what
}

// size writes a number of bytes with three digits.
func size(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n), 0
	for v >= 999.5 && unit < 5 {
		v /= 1000
		unit++
	}
	digits := 2
	if v >= 99.95 {
		digits = 0
	} else if v >= 9.995 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + []string{"B", "kB", "MB", "GB", "TB", "PB"}[unit]
}

// short is the beginning of an identifier: enough to tell apart what is on one host.
func short(id string) string {
	if len(id) == 36 && id[8] == '-' {
		return id[:8]
	}
	return id
}

// since writes how long ago, in the largest unit.
func since(then, now time.Time) string {
	d := now.Sub(then)
	switch {
	case then.IsZero() || d < 0:
		return ""
	case d < time.Minute:
		return count(int(d/time.Second), "second")
	case d < time.Hour:
		return count(int(d/time.Minute), "minute")
	case d < 48*time.Hour:
		return count(int(d/time.Hour), "hour")
	}
	return count(int(d/(24*time.Hour)), "day")
}

// traffic writes counters, with the words for what the switch received and what it sent. It receives what a port sends.
func traffic(c *inspect.Counters, rx, tx string) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s in %s (%s dropped)\n%s %s in %s (%s dropped)",
		rx, size(c.RxBytes), count(int(c.RxPackets), "packet"), number(c.RxDropped),
		tx, size(c.TxBytes), count(int(c.TxPackets), "packet"), number(c.TxDropped))
}

// lines joins what is not empty.
func lines(parts ...string) string { return join("\n", parts...) }

// dots joins what is not empty.
func dots(parts ...string) string { return join(" · ", parts...) }

func join(by string, parts ...string) string {
	kept := make([]string, 0, len(parts))
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, by)
}

// labelled writes "label value", or nothing without a value.
func labelled(label, value string) string {
	if value == "" {
		return ""
	}
	return label + " " + value
}

// compareNames orders names as people do: web-2 before web-10.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if x != y {
				return strings.Compare(x, y)
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits is the number of digits that s begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
