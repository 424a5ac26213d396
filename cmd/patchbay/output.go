// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// The values of -o. A command for one thing takes the first two, one that lists things takes all.
const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatWide = "wide" // for people, with more columns
	formatName = "name" // one name or id a line, for loops in a shell
	formatHTML = "html" // a picture for a browser
)

// format is the value of -o: how a command prints what it found. The zero format is for people.
type format struct {
	name    string
	allowed []string
}

// add declares -o, and --json, which is short for -o json.
func (f *format) add(cmd *cobra.Command, more ...string) {
	f.allowed = append([]string{formatJSON, formatYAML}, more...)
	cmd.Flags().VarP(f, "output", "o", "output format: "+strings.Join(f.allowed, ", ")+" (default: text)")
	cmd.Flags().BoolFunc("json", "the same as -o json", func(string) error { return f.Set(formatJSON) })
	// The flag exists, so registering cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.allowed, cobra.ShellCompDirectiveNoFileComp
	})
}

// noColor is the flag that all commands have. They print no colours in any case.
const noColor = "no-color"

// redraws says whether a command may write over a line that it has written: on a terminal, unless --no-color, NO_COLOR or a dumb terminal forbid it.
func redraws(cmd *cobra.Command, to io.Writer) bool {
	forbidden, err := cmd.Flags().GetBool(noColor)
	return err == nil && !forbidden && isTerminal(to) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// take takes -o, --json and --no-color out of arguments that the agent's options are among, which a flag set does not read.
func (f *format) take(args []string, more ...string) (rest []string, err error) {
	f.allowed = append([]string{formatJSON, formatYAML}, more...)
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--"+noColor:
			continue
		case args[i] == "--json":
			value = formatJSON
		case name == "--output" || name == "-o":
			if !given && i+1 < len(args) {
				i++
				value = args[i]
			}
		default:
			rest = append(rest, args[i])
			continue
		}
		if err := f.Set(value); err != nil {
			return nil, fmt.Errorf("-o %q: %w", value, err)
		}
	}
	return rest, nil
}

// String implements pflag.Value.
func (f *format) String() string { return f.name }

// Type implements pflag.Value: the word in the help.
func (f *format) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	if err := oneOf(s, f.allowed); err != nil {
		return err
	}
	f.name = s
	return nil
}

// forPrograms says that a document is printed, and no text.
func (f *format) forPrograms() bool { return f.name == formatJSON || f.name == formatYAML }

// write prints a document for programs.
func (f *format) write(w io.Writer, doc any) error {
	if f.name == formatYAML {
		text, err := yaml.Marshal(doc)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	return writeJSON(w, doc)
}

// writeNext prints one document of many: JSON on one line, YAML after a line of dashes.
func (f *format) writeNext(w io.Writer, doc any) error {
	if f.name == formatYAML {
		fmt.Fprintln(w, "---")
		return f.write(w, doc)
	}
	return encoder(w).Encode(doc)
}

// writeJSON prints a document over many lines.
func writeJSON(w io.Writer, doc any) error {
	enc := encoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// oneOf returns an error for a word that is none of those known. It names them, and the one that was probably meant.
func oneOf(word string, known []string) error {
	if slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("it is none of %s%s", strings.Join(known, ", "), meant(word, known))
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	word  string
	known []string
}

// String implements pflag.Value.
func (c *choice) String() string { return c.word }

// Type implements pflag.Value.
func (c *choice) Type() string { return "string" }

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if err := oneOf(s, c.known); err != nil {
		return err
	}
	c.word = s
	return nil
}

// meant ends a sentence about an unknown name with the one that was probably meant, if there is one.
func meant(name string, known []string) string {
	if near := options.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
