// SPDX-License-Identifier: Apache-2.0

// Command sbom writes what a Go binary is made of: a bill of materials in CycloneDX JSON, or the licence texts that have
// to travel with the binary.
//
// It reads the module list that the linker wrote into the binary, so it tells what is inside and not what go.mod allows.
// The same binary gives the same bytes. A module whose licence it does not know stops it: nothing unclear is shipped.
//
//	sbom -o bom.json BINARY
//	sbom -notices -o NOTICES BINARY
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	notices := flags.Bool("notices", false, "write the licence texts instead of the bill of materials")
	output := flags.String("o", "", "file to write")
	version := flags.String("version", "", "version of the binary, which the module list does not know")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *output == "" {
		return fmt.Errorf("usage: sbom [-notices] [-version V] -o FILE BINARY")
	}
	info, err := buildinfo.ReadFile(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("reading the module list: %w", err)
	}
	parts, err := partsOf(info)
	if err != nil {
		return err
	}
	if *notices {
		return os.WriteFile(*output, noticesOf(parts), 0o644)
	}
	text, err := billOf(info, parts, *version)
	if err != nil {
		return err
	}
	return os.WriteFile(*output, text, 0o644)
}
