// SPDX-License-Identifier: Apache-2.0

// Package options is everything that an operator can set: the options of
// neutron-openvswitch-agent as Patchbay reads them.
//
// The rows_*.go files hold one table. Each row is one option: its name, type,
// default and old names, as the Python agent declares them, what it means,
// where its value goes in [Options], and how far Patchbay honours it. What the
// agent reads, what `patchbay config check` reports and the table in
// docs/reference/configuration.md all come from these rows.
//
// [Load] reads everything at once. A value that the option's type refuses, or
// values that contradict each other, are errors. A value that is fine but asks
// for something that Patchbay cannot do yet is listed by [Options.Unsupported];
// the agent refuses to start on any, because doing something else than what was
// asked is worse than not starting.
package options
