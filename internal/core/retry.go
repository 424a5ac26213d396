// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// refused says whether the server stumbles over what was asked. Without its database it stumbles over everything, and for no
// reason of ours.
func refused(err error) bool {
	var remote *messaging.RemoteError
	return errors.As(err, &remote) && !strings.HasPrefix(remote.Class, "DB")
}
