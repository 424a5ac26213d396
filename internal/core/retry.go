// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// unanswered records a call that the server did not answer, or not as it should: err is nil for an answer that names k as failed.
// What the server refuses it will refuse again.
func unanswered[K comparable](b pace.Backoff[K], k K, now time.Time, err error) time.Duration {
	return b.FailCall(k, now, err == nil || refused(err))
}

// refused says whether the server stumbles over what was asked. Without its database it stumbles over everything, and for no
// reason of ours.
func refused(err error) bool {
	var remote *messaging.RemoteError
	return errors.As(err, &remote) && !strings.HasPrefix(remote.Class, "DB")
}
