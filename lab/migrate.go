// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
)

// Twin makes the VM a second time, on another host, as the target of a live migration: the same port, MAC and interface, without addresses. The port's
// bindings stay what they are, and the switch has no row for the interface until Insert makes it.
func (vm *VM) Twin(ctx context.Context, h *Host) (*VM, error) {
	twin := *vm
	twin.Host, twin.Name = h.name, vm.Name+"-"+h.name
	twin.Netns = h.lab.snapshot().Prefix + "vm-" + twin.Name
	if err := h.lab.update(func(s *state) error {
		for _, other := range s.VMs {
			if other.Name == twin.Name || other.PortID == twin.PortID && other.Host == twin.Host {
				return fmt.Errorf("a VM %s with port %s exists already, on %s", other.Name, other.PortID, other.Host)
			}
		}
		s.VMs = append(s.VMs, twin)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := twin.make(ctx, h, nil); err != nil {
		undo := twin.Unplug(context.WithoutCancel(ctx), false)
		return nil, errors.Join(fmt.Errorf("making %s on %s: %w", twin.Name, h.name, err), undo)
	}
	return &twin, nil
}
