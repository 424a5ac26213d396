// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strings"
)

// Nearest finds the candidate that needs the fewest edits to become name; "" when
// none is near enough to be what was meant.
func Nearest(name string, candidates []string) string {
	best, least := "", len(name)/3+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < least || d == least && best == "" && d <= 2 {
			best, least = c, d
		}
	}
	return best
}

// distance counts insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, prev := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(y)]
}

// nearestKey ends a sentence about an unknown query key. The key itself is
// shown only through the option that it resembles: it comes from a secret URL.
func nearestKey(key string, table []row) string {
	var names []string
	for _, r := range table {
		if r.Group == groupRabbit {
			names = append(names, r.Name)
		}
	}
	if n := Nearest(key, names); n != "" {
		return fmt.Sprintf("; did you mean %s?", n)
	}
	return "."
}
