// SPDX-License-Identifier: Apache-2.0

// Package repo holds the tests of the rules of this repository that no linter knows: the direction of imports, that every package
// says what it is for, licence lines, and how the code is built: the size of types and files, who starts goroutines,
// references that run upward. `go test ./internal/repo -run TestStructure -v` prints the measures; `-root DIR` prints those of another
// checkout. It has no code of its own.
package repo
