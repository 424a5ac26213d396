// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// Exit statuses of all commands but agent and health. docs/reference/cli.md lists them.
const (
	exitFinding = 1 // the command did its work, and the answer is not the good one
	exitUsage   = 2 // the command line cannot be understood
	exitNoAgent = 3 // no agent answers
	exitFailed  = 4 // anything else: a file, the switch, the server
)

// agentFailed is the exit status of an agent that cannot start, as of neutron-openvswitch-agent: service managers know it.
const agentFailed = 1

// ended ends a command with a status. Its text may be empty: the command has printed the reason already.
type ended struct {
	status int
	text   string
}

func (e ended) Error() string   { return e.text }
func (e ended) ExitStatus() int { return e.status }

// usage is an error about the command line.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// ExitStatus implements the interface that exitStatus looks for.
func (u usage) ExitStatus() int { return exitUsage }

// exitStatus returns the status with which the process ends for an error.
func exitStatus(err error) int {
	var status interface{ ExitStatus() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return status.ExitStatus()
	case errors.Is(err, admin.ErrNoAgent):
		return exitNoAgent
	case errors.Is(err, inspect.ErrNotFound), errors.Is(err, inspect.ErrAmbiguous):
		return exitFinding
	}
	return exitFailed
}

// runCommand runs the command that the arguments name, prints its error and returns the exit status.
func runCommand(root *cobra.Command, args []string) int {
	began := false // the command itself: what fails before is about the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if !began {
		err = usage{err}
	}
	text := strings.TrimRight(err.Error(), "\n")
	if text != "" {
		fmt.Fprintln(root.ErrOrStderr(), "patchbay:", text)
	}
	var wrong usage
	if errors.As(err, &wrong) {
		fmt.Fprintf(root.ErrOrStderr(), "See %s --help.\n", cmd.CommandPath())
	}
	return exitStatus(err)
}

// argumentsOf checks the number of a command's arguments.
func argumentsOf(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, names, _ := strings.Cut(cmd.Use, " ")
		switch n := len(args); {
		case n > most && most == 0:
			return fmt.Errorf("%s takes no argument, and %q is one", cmd.CommandPath(), args[0])
		case n < least || n > most:
			return fmt.Errorf("%s takes %s, and got %s", cmd.CommandPath(), names, plural(n, "argument"))
		}
		return nil
	}
}

// flagError says what is wrong with a flag: the one that was probably meant, or what its value has to be.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		why := value.Unwrap().Error()
		switch kind := value.GetFlag().Value.Type(); {
		case kind == "duration":
			why = "it is no time such as 90s or 5m"
		case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
			why = "it is no number, or too large"
		}
		return fmt.Errorf("--%s %q: %s", value.GetFlag().Name, value.GetValue(), why)
	}
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := options.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}
