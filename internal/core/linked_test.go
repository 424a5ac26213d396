// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// hung is a connection on which nothing happens.
type hung struct {
	Conn
	closed bool
}

func (h *hung) Close() error { h.closed = true; return nil }
