// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"crypto/rand"
	"fmt"
	"time"
)

// RequestContext gives the fields of the context that every call carries: an administrator without a session, in words
// that every server release understands. Each call has a request id of its own, under which the server logs it.
func RequestContext(now time.Time) map[string]any {
	fields := map[string]any{
		"is_admin":           true,
		"is_admin_project":   true,
		"has_global_access":  true,
		"can_set_project_id": true,
		"read_only":          false,
		"show_deleted":       false,
		"roles":              []string{"admin", "member", "reader"},
		"request_id":         "req-" + newUUID(),
		"timestamp":          now.UTC().Format("2006-01-02 15:04:05.000000"),
		"user_identity":      "- - - - -",
	}
	for _, name := range []string{
		"auth_token", "domain", "global_request_id", "project", "project_domain", "project_id", "project_name",
		"resource_uuid", "system_scope", "tenant_id", "tenant_name", "user", "user_domain", "user_id", "user_name",
	} {
		fields[name] = nil
	}
	return fields
}

// newUUID returns a random UUID of version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
