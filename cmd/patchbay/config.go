// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/oslo/config"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or show the configuration",
		Args:  argumentsOf(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigShowCommand())
	return cmd
}

// checkFlags are the flags of the command itself. Everything else on its
// command line is read as the agent would read it, in order, which is why cobra
// does not parse it.
type checkFlags struct {
	Output  format
	Changed bool
	Verbose bool
	Strict  bool
	Connect bool
}

const configCheckHelp = `Read the configuration exactly as the agent would. Print what is wrong with it, and the
file and line of each value. The command starts nothing and changes nothing.
With --connect the command also connects to ovsdb-server, the broker and neutron-server,
as the agent would. It prints their releases, and what these releases do not support.

Give the same arguments as in the agent's unit file. Without --config-file the command
searches the agent's default places. It masks secrets.

Usage:
  patchbay config check [--changed] [--connect] [-o json|yaml] [--verbose] [--strict] [agent options]

Flags of this command:
  --changed            show only values that a file, the command line or the environment sets
  --connect            connect to ovsdb-server, broker and neutron-server for their releases, if the agent
                       would start; a warning names each that does not answer
  -o, --output FORMAT  print one document: json or yaml; --json is the same as -o json
  --strict             end with status 1 also when there are only warnings
  -v, --verbose        show notes too: settings without effect, and settings of other programs
  -h, --help           this text

Exit status:
  0  the agent would start; there may be warnings
  1  the agent would not start, or there are warnings and --strict was given
  2  the command line cannot be understood

Options of the agent:
`

func newConfigCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:                   "check [--changed] [--connect] [-o json|yaml] [--verbose] [--strict] [agent options]",
		Short:                 "Check configuration files and show the effective values with file and line",
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeConfigCheck,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runConfigCheck(cmd, args, os.Environ())
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(cmd.OutOrStdout(), configCheckHelp)
		if schema, err := options.Schema(); err == nil {
			// A writer that fails here fails for the reader, who will notice.
			_ = schema.WriteFlags(cmd.OutOrStdout())
		}
	})
	return cmd
}

func runConfigCheck(cmd *cobra.Command, args, env []string) error {
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return cmd.Help() // even beside a file that cannot be read
	}
	flags, rest, err := splitCheckFlags(args)
	if err != nil {
		return usage{err}
	}
	report, err := options.Check(rest, env)
	switch {
	case errors.Is(err, config.ErrHelp): // abbreviated
		return cmd.Help()
	case errors.Is(err, config.ErrVersion):
		fmt.Fprintln(cmd.OutOrStdout(), "patchbay", version)
		return nil
	case err != nil:
		return err
	}
	url := checkTransportURL(report)
	var found *peerDocument
	if flags.Connect && report.Count(options.Fatal) == 0 {
		found = peersOf(report.Options, url).ask(cmd.Context())
		found.warn(report)
	}
	if flags.Output.forPrograms() {
		err = flags.Output.write(cmd.OutOrStdout(), documentOf(report, found, flags))
	} else {
		err = writeReport(cmd.OutOrStdout(), report, found, flags)
	}
	if err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return verdict(report, flags)
}

// checkTransportURL looks into the URL as the agent will, and at the options of the connection: the URL's form and what options exclude each other belong to
// oslo/messaging, the keys of its query to the options.
func checkTransportURL(report *options.Report) messaging.URL {
	v, ok := report.Value("DEFAULT", "transport_url")
	if !ok {
		return messaging.URL{} // reported already
	}
	url, err := messaging.ParseURL(v.Text())
	if err != nil {
		report.Refuse(options.ProblemWith(v, "cannot be used: "+err.Error()))
		return url
	}
	if report.Options == nil {
		return url
	}
	var problem options.Problem
	if err := report.Options.Override(url.Query); errors.As(err, &problem) {
		report.Refuse(problem)
	} else if err := report.Options.Rabbit.Validate(); err != nil {
		report.Refuse(refusedOption(report, v, err))
	}
	return url
}

// refusedOption is an error of oslo/messaging, at the option of [oslo_messaging_rabbit] with which it begins, or else at the transport URL.
func refusedOption(report *options.Report, url config.Value, err error) options.Problem {
	name, reason, _ := strings.Cut(err.Error(), " ")
	if v, ok := report.Value("oslo_messaging_rabbit", name); ok {
		return options.ProblemWith(v, reason)
	}
	return options.ProblemWith(url, "cannot be used: "+err.Error())
}

// splitCheckFlags takes the command's own flags out of the agent's arguments.
func splitCheckFlags(args []string) (checkFlags, []string, error) {
	var flags checkFlags
	args, err := flags.Output.take(args)
	if err != nil {
		return flags, nil, err
	}
	var rest []string
	for _, a := range args {
		switch a {
		case "--changed":
			flags.Changed = true
		case "--connect":
			flags.Connect = true
		case "--verbose", "-v":
			flags.Verbose = true
		case "--strict":
			flags.Strict = true
		default:
			rest = append(rest, a)
		}
	}
	return flags, rest, nil
}

// verdict is the exit status, with a sentence for the error output.
func verdict(report *options.Report, flags checkFlags) error {
	fatal, warnings := report.Count(options.Fatal), report.Count(options.Warning)
	switch {
	case usageFault(report):
		return usage{errors.New("the command line cannot be understood")}
	case fatal > 0:
		return ended{exitFinding, "the agent would not start with this configuration: " + plural(fatal, "error")}
	case warnings > 0 && flags.Strict:
		return ended{exitFinding, plural(warnings, "warning") + ", and --strict was given"}
	}
	return nil
}

func usageFault(report *options.Report) bool {
	return slices.ContainsFunc(report.Findings, func(f options.Finding) bool { return f.Kind == "command-line" })
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// completeConfigCheck serves shells: values of file options are paths, anything
// else is an option.
func completeConfigCheck(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		switch args[len(args)-1] {
		case "--config-file", "--log-file", "--log-config-append":
			return nil, cobra.ShellCompDirectiveDefault
		case "--config-dir", "--log-dir", "--state-path", "--state_path":
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	}
	if strings.HasPrefix(toComplete, "--config-file=") || strings.HasPrefix(toComplete, "--config-dir=") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	candidates := []string{
		"--config-file\tconfiguration file; may be given several times, a later file wins",
		"--config-dir\tdirectory whose *.conf files are read in the order of their names",
		"--changed\tshow only values that are set somewhere",
		"--connect\task switch, broker and server for their releases",
		"--output\tprint one document: json or yaml",
		"--verbose\tshow notes too",
		"--strict\tend with status 1 also when there are only warnings",
		"--help\texplain the command",
	}
	candidates = slices.DeleteFunc(candidates, func(c string) bool { return !strings.HasPrefix(c, toComplete) })
	return candidates, cobra.ShellCompDirectiveNoFileComp
}
