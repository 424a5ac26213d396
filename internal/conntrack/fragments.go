// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/unixctl"
)

// soundFragments is the first release of Open vSwitch whose userspace datapath lets no fragment out with packets of another connection.
const soundFragments = 4

// dropFragments has a userspace datapath before [soundFragments] hold no fragments. Connection tracking then calls them invalid, and the
// filters drop them. The switch forgets it when it starts again. To say it twice changes nothing.
func (l Limiter) dropFragments(ctx context.Context) error {
	c, err := unixctl.Dial(ctx, l.RunDir)
	if err != nil {
		return err
	}
	defer c.Close()
	line, err := c.Call(commandVersion)
	if err != nil || parseVersion(line)[0] >= soundFragments {
		return err
	}
	for _, family := range []string{"v4", "v6"} {
		if _, err := c.Call("dpctl/ipf-set-disabled", l.Datapath, family); err != nil {
			return fmt.Errorf("of IP%s: %w", family, err)
		}
	}
	return nil
}
