// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"

	"github.com/patchbay-sdn/patchbay/lab/release"
)

// UpgradeServer ends the server, upgrades the schema to that of another release, and starts the server of that release. Broker, switches and agents stay as they are.
func (l *Lab) UpgradeServer(ctx context.Context, to string) error {
	r, err := release.Find(to)
	if err != nil {
		return err
	}
	machine, err := release.MachineSuite()
	if err != nil {
		return err
	}
	next := Source{Suite: r.Suite}
	if r.Suite != machine {
		if next.Root, err = l.root(ctx, Options{SkipInstall: true}, r.Suite); err != nil {
			return err
		}
	}
	if next.Beside, err = release.Versions(ctx, next.Root); err != nil {
		return err
	}
	next.Version = next.Beside["neutron"]
	if err := l.StopServer(ctx); err != nil { // the processes of the release that it is of
		return err
	}
	if err := l.update(func(s *state) error { s.Sources.Neutron = next; return nil }); err != nil {
		return err
	}
	if err := l.migrate(ctx); err != nil {
		return fmt.Errorf("upgrading the schema to that of %s: %w", next, err)
	}
	return l.StartServer(ctx)
}
