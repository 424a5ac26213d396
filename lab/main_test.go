// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// envCrash makes the test program play a `lab up` that a test then kills.
const envCrash = "PATCHBAY_LAB_TEST_UP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envCrash); dir != "" {
		_, err := Up(context.Background(), Options{Dir: dir, Hosts: 2, SkipInstall: true, Report: func(p Progress) {
			fmt.Println(p.Step)
		}})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
