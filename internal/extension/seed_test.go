// SPDX-License-Identifier: Apache-2.0

package extension_test

import (
	"flag"

	_ "pgregory.net/rapid" // has the flag
)

// The same cases in every run, so that a change is judged by what it changes; -rapid.seed looks for new ones.
var _ = flag.Set("rapid.seed", "1")
