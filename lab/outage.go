// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
)

// StopServer ends the server; StartServer starts it again from the files it has, and returns when its API answers.
func (l *Lab) StopServer(ctx context.Context) error {
	var failed []error
	for _, p := range l.serverProcesses() {
		failed = append(failed, p.Stop(ctx, l.grace()))
	}
	return errors.Join(failed...)
}

// StartServer starts the server unless it runs.
func (l *Lab) StartServer(ctx context.Context) error {
	_, err := l.ensureServer(ctx)
	return err
}

// KillDatabase ends MariaDB as a crash would; StartDatabase starts it on the same data, and returns when it answers.
func (l *Lab) KillDatabase() error { return l.database().Kill() }

// StartDatabase starts MariaDB unless it runs.
func (l *Lab) StartDatabase(ctx context.Context) error {
	_, err := l.ensureDatabase(ctx)
	return err
}
