// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestContrast holds the style to the contrasts of WCAG 2: 4.5 for text, 3 for signs and lines, in light and in dark.
func TestContrast(t *testing.T) {
	light, rest, ok := strings.Cut(pageCSS, "@media (prefers-color-scheme: dark)")
	dark, _, ok2 := strings.Cut(rest, "@media")
	if !ok || !ok2 {
		t.Fatal("the style has no dark part")
	}
	pairs := map[[2]string]float64{
		{"ink", "page"}: 4.5, {"ink", "card"}: 4.5, {"soft", "page"}: 4.5, {"soft", "card"}: 4.5, {"soft", "off-bg"}: 4.5, {"ink", "off-bg"}: 4.5,
		{"wire", "page"}: 3, {"tile", "card"}: 3, {"off", "card"}: 3, {"aside", "card"}: 3,
	}
	for _, level := range []string{"fine", "wait", "bad"} {
		pairs[[2]string{level, "card"}] = 4.5
		pairs[[2]string{level, level + "-bg"}] = 4.5
		pairs[[2]string{"ink", level + "-bg"}] = 4.5
		pairs[[2]string{"soft", level + "-bg"}] = 4.5
		pairs[[2]string{"on", level}] = 3
	}
	for i := range hues {
		pairs[[2]string{"h" + strconv.Itoa(i), "page"}] = 4.5
	}
	for name, css := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{3,6});`).FindAllStringSubmatch(css, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		for pair, want := range pairs {
			a, ok := colours[pair[0]]
			b, ok2 := colours[pair[1]]
			if !ok || !ok2 {
				t.Errorf("%s: no colour %s or %s", name, pair[0], pair[1])
				continue
			}
			if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < want {
				t.Errorf("%s: %s on %s has a contrast of %.2f, less than %.1f", name, pair[0], pair[1], got, want)
			}
		}
	}
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for i, weight := range []float64{0.0722, 0.7152, 0.2126} {
		c := float64(n>>(8*i)&0xff) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
