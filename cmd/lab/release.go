// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/release"
)

// releases has the commands about other releases of OpenStack than the machine's.
func (c *cli) releases() *cobra.Command {
	cmd := &cobra.Command{Use: "release", Short: "Other releases of Neutron, RabbitMQ and Open vSwitch, as root directories of Debian suites"}
	var dir string
	cmd.PersistentFlags().StringVar(&dir, "releases", "", "directory of root directories and archives (default $"+release.EnvDir+" or the user's cache directory)")
	open := func(cmd *cobra.Command) (*release.Store, error) {
		store, err := release.Open(dir)
		if err == nil {
			start := time.Now()
			store.Report = func(note string) {
				fmt.Fprintf(cmd.OutOrStdout(), "%6.1fs  %s\n", time.Since(start).Seconds(), note)
			}
		}
		return store, err
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "Show the installed suites, their versions, age and size",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := open(cmd)
			if err != nil {
				return err
			}
			return listReleases(cmd, store)
		},
	}
	var again bool
	makes := &cobra.Command{
		Use:   "make RELEASE|SUITE...",
		Short: "Install suites that are missing by debootstrap and keep their archives; takes minutes each",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := open(cmd)
			if err != nil {
				return err
			}
			return makeReleases(cmd, store, args, again)
		},
	}
	makes.Flags().BoolVar(&again, "again", false, "install the suites again: forky and sid change from day to day")
	var rootsOnly bool
	remove := &cobra.Command{
		Use:   "remove RELEASE|SUITE...",
		Short: "Remove suites; no lab may run from them",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := open(cmd)
			if err != nil {
				return err
			}
			for _, name := range args {
				n, err := store.Remove(cmd.Context(), name, rootsOnly)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: removed %d\n", name, n)
			}
			return nil
		},
	}
	remove.Flags().BoolVar(&rootsOnly, "unpacked", false, "remove the unpacked root directories and leave the archives")
	root := &cobra.Command{
		Use:   "root RELEASE|SUITE",
		Short: "Print the root directory of a suite, nothing for the machine's own; a suite that is missing is installed",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := release.Open(dir)
			if err != nil {
				return err
			}
			return rootOf(cmd, store, args[0])
		},
	}
	cmd.AddCommand(list, makes, remove, root)
	return cmd
}

func makeReleases(cmd *cobra.Command, store *release.Store, names []string, again bool) error {
	machine, err := release.MachineSuite()
	if err != nil {
		return err
	}
	for _, name := range names {
		r, err := release.Find(name)
		if err != nil {
			return err
		}
		if r.Suite == machine {
			continue // its packages are installed
		}
		if _, err := lab.Install(cmd.Context(), release.Tools()...); err != nil {
			return err
		}
		if again {
			_, err = store.Make(cmd.Context(), r.Suite)
		} else {
			_, err = store.Root(cmd.Context(), r.Suite)
		}
		if err != nil {
			return err
		}
	}
	return listReleases(cmd, store)
}

func rootOf(cmd *cobra.Command, store *release.Store, name string) error {
	machine, err := release.MachineSuite()
	if err != nil {
		return err
	}
	r, err := release.Find(name)
	if err != nil || r.Suite == machine {
		return err
	}
	path, err := store.Root(cmd.Context(), r.Suite)
	if err == nil {
		fmt.Fprintln(cmd.OutOrStdout(), path)
	}
	return err
}

func listReleases(cmd *cobra.Command, store *release.Store) error {
	entries, err := store.List()
	if err != nil {
		return err
	}
	machine, err := release.MachineSuite()
	if err != nil {
		return err
	}
	own, err := release.Versions(cmd.Context(), "")
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "release\tsuite\tversions\tage\tarchive\tunpacked")
	for _, r := range release.All() {
		if r.Suite == machine {
			fmt.Fprintf(w, "%d\t%s\t%s\tthe machine's own packages\t\t\n", r.Number, r.Suite, partsOf(release.Entry{Versions: own}))
		}
		found := false
		for _, e := range entries {
			if e.Suite != r.Suite {
				continue
			}
			found = true
			archive, unpacked, note := "no", "no", ""
			if e.Archive > 0 {
				archive = fmt.Sprintf("%d MB", e.Archive/1e6)
			}
			if e.Unpacked {
				unpacked = "yes"
			}
			if !e.Current {
				note = ", with packages of another time: remove and make it anew"
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s%s\t%s\t%s\n", e.Number, e.Suite, partsOf(e), age(time.Since(e.Made)), note, archive, unpacked)
		}
		if !found && r.Suite != machine {
			fmt.Fprintf(w, "%d\t%s\tnot made\t\t\t\n", r.Number, r.Suite)
		}
	}
	fmt.Fprintf(w, "\nin %s\n", store.Dir)
	return w.Flush()
}

func partsOf(e release.Entry) string {
	var list []string
	for _, name := range []string{"neutron", "rabbitmq", "openvswitch"} {
		if v := e.Versions[name]; v != "" {
			list = append(list, name+" "+release.Upstream(v))
		}
	}
	return strings.Join(list, ", ")
}

func age(d time.Duration) string {
	if d < 48*time.Hour {
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}
