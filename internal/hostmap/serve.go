// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// readTime bounds how long the documents of one page may take.
const readTime = 10 * time.Second

// Handler answers every request with the page of now.
func Handler(from inspect.Source, now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTime)
		defer cancel()
		// The page is complete before the first byte goes out, so that an error is never half a page.
		var page bytes.Buffer
		h, err := Read(ctx, from, now())
		if err == nil {
			err = Render(&page, h)
		}
		if err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // as the other documents of the socket fail
			return
		}
		head := w.Header()
		head.Set("Content-Type", "text/html; charset=utf-8")
		head.Set("Content-Length", strconv.Itoa(page.Len()))
		head.Set("Content-Security-Policy", Policy()+"; frame-ancestors 'none'")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Cache-Control", "no-store")
		_, _ = page.WriteTo(w) // a reader that is gone does not want it
	})
}
