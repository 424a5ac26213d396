// SPDX-License-Identifier: Apache-2.0

// Package capture reads the frames that pass an interface of this host, and says in a line what each is.
//
// Input is a kernel interface ([Open]). Outputs are frames ([Frame]), which a [Filter] chooses from, and what is in them
// ([Read]). Nothing is sent and nothing is changed. Frames are what guests send: whatever cannot be decoded is a line, too.
package capture
