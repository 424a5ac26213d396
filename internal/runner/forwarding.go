// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
)

// Forwarding is what effects use of forwarding tables of devices: [forwarding.Host].
type Forwarding interface {
	Read(ctx context.Context, devices []string) (forwarding.Tables, error)
	Change(ctx context.Context, c forwarding.Changes) error
	// Watch calls changed for each change of a device's link, until ctx ends.
	Watch(ctx context.Context, devices []string, changed func(device string)) error
}

// forwardingTimeout bounds one reading or changing of tables.
const forwardingTimeout = time.Minute

// forwarding carries out an effect of forwarding tables.
func (r *Runner) forwarding(ctx context.Context, e effect.Effect) effect.Event {
	if e, ok := e.(effect.WatchDevices); ok {
		return effect.DeviceChanged{Extension: e.Extension, Err: r.try("following links of devices", func() error {
			return r.cfg.Forwarding.Watch(ctx, e.Devices, func(device string) { r.put(effect.DeviceChanged{Extension: e.Extension, Device: device}) })
		})}
	}
	ctx, cancel := context.WithTimeout(ctx, forwardingTimeout)
	defer cancel()
	switch e := e.(type) {
	case effect.ReadForwarding:
		out := effect.ForwardingRead{Extension: e.Extension, Devices: e.Devices}
		out.Err = r.try("reading forwarding tables", func() (err error) {
			out.Tables, err = r.cfg.Forwarding.Read(ctx, e.Devices)
			return err
		})
		return out
	case effect.ChangeForwarding:
		return effect.ForwardingChanged{Extension: e.Extension, Changes: e.Changes, Err: r.try("changing forwarding tables", func() error {
			return r.cfg.Forwarding.Change(ctx, e.Changes)
		})}
	}
	return nil
}
