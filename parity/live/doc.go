// SPDX-License-Identifier: Apache-2.0

// Package live plays the parity scenarios on the lab's real servers: the same steps through the same API and on equal
// switches, once with the Python agent and once with Patchbay. All of it is test code with the build tag "parity"; see
// docs/explanation/parity.md and the targets parity, parity-record and parity-repeat of the Makefile.
package live
