// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// build is what `patchbay version` prints.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Long:  "Print the version of this binary. patchbay status prints the version of the running agent.",
		Args:  argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := build{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if f.forPrograms() {
				return f.write(cmd.OutOrStdout(), b)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "patchbay %s (%s, %s)\n", b.Version, b.Go, b.Platform)
			return err
		},
	}
	f.add(cmd)
	return cmd
}
