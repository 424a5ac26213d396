// SPDX-License-Identifier: Apache-2.0

// Package house holds the tests of the house rules that no linter knows: the direction of imports, that every package
// says what it is for, licence lines, and files short enough to read. It has no code of its own.
package house
