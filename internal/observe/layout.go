// SPDX-License-Identifier: Apache-2.0

package observe

import "strings"

// Layout returns the layout, as package time has them, of a format of Python's time.strftime; not ok where it has no equal.
func Layout(format string) (layout string, ok bool) {
	codes := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002",
		'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'z': "-0700", 'Z': "MST", 'T': "15:04:05", 'F': "2006-01-02", '%': "%",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '%' && i+1 < len(format) && codes[format[i+1]] != "":
			i++
			b.WriteString(codes[format[i]])
		case c == 'T' || strings.IndexByte(" -/:.,[]()", c) >= 0:
			b.WriteByte(c)
		default: // package time could take it for something else
			return "", false
		}
	}
	return b.String(), format != ""
}
