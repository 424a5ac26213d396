// SPDX-License-Identifier: Apache-2.0

// Package observe is how the agent is seen from outside: its log and its word to the service manager.
//
//   - [NewLogger] gives a log/slog logger whose lines look like oslo.log's, so that what parses the Python agent's log
//     goes on working, and whose file survives rotation.
//   - [Notifier] speaks systemd's notification protocol: ready, reloading, stopping, watchdog.
//
// The package reads nothing of the agent's state.
package observe
