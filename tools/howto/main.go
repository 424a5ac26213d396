// SPDX-License-Identifier: Apache-2.0

// Howto follows a page of docs to the letter: it runs the commands of its console blocks in order, in one shell, and compares what they print with what
// the page shows below them.
//
//	howto [-timeout 5m] [-root PROGRAM] PAGE
//	howto -list PAGE...
//
// With -root there are two shells: PROGRAM is the one for commands after "#", of root on a host, and commands after "$", of an operator, run here.
//
// A page is the script, so that there is no second text that could say something else; internal/script, which plays scripts of tests, rewrites answers
// word by word, and rogpeppe/go-internal/testscript has a language of its own. `make how-to` prepares a host for each page and runs this program on it.
//
// The first command that ends with another status or prints something else ends the run with status 1.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/tools/howto/page"
)

func main() {
	timeout := flag.Duration("timeout", 5*time.Minute, "how long a command may take")
	root := flag.String("root", "", "a program that runs bash where commands after # belong; without it all commands run here, in one shell")
	list := flag.Bool("list", false, "list the commands that are not run, and why, and run nothing")
	flag.Parse()
	err := errors.New("give a page")
	if flag.NArg() > 0 {
		err = nil
	}
	for _, path := range flag.Args() {
		if *list {
			err = errors.Join(err, listPage(os.Stdout, path))
		} else {
			err = errors.Join(err, follow(os.Stdout, path, *root, *timeout))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "howto:", err)
		os.Exit(1)
	}
}

func read(path string) ([]page.Step, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller's page
	if err != nil {
		return nil, err
	}
	all, err := page.Steps(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func listPage(out io.Writer, path string) error {
	all, err := read(path)
	if err != nil {
		return err
	}
	run := 0
	for _, s := range all {
		if s.NotRun == "" {
			run++
		} else {
			fmt.Fprintf(out, "%s:%d: not run: %s (%s)\n", path, s.Line, s.Command, s.NotRun)
		}
	}
	fmt.Fprintf(out, "%s: %d commands run, %d not run\n", path, run, len(all)-run)
	return nil
}

// follow runs a page, and says how long each command took.
func follow(out io.Writer, path, root string, timeout time.Duration) error {
	all, err := read(path)
	if err != nil {
		return err
	}
	here, err := newShell("bash")
	if err != nil {
		return err
	}
	defer here.close()
	host := here
	if root != "" {
		if host, err = newShell(root); err != nil {
			return err
		}
		defer host.close()
	}
	begin := time.Now()
	ran, compared := 0, 0
	for _, s := range all {
		if s.NotRun != "" {
			fmt.Fprintf(out, "   not run  %s  (%s)\n", s.Command, s.NotRun)
			continue
		}
		started := time.Now()
		sh := here
		if s.Root {
			sh = host
		}
		got, status, err := sh.run(s.Command, timeout)
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w\n%s", path, s.Line, s.Command, err, strings.Join(got, "\n"))
		}
		fmt.Fprintf(out, "%8.1f s  %s\n", time.Since(started).Seconds(), s.Command)
		if status != s.Status {
			return fmt.Errorf("%s:%d: %s: ended with %d, not with %d\n%s", path, s.Line, s.Command, status, s.Status, strings.Join(got, "\n"))
		}
		if len(s.Want) > 0 {
			if line, ok := page.Mismatch(s.Want, got); !ok {
				return fmt.Errorf("%s:%d: %s: page and output differ at\n%s\nthe output is\n%s", path, s.Line, s.Command, line, strings.Join(got, "\n"))
			}
			compared++
		}
		ran++
	}
	if ran == 0 {
		return fmt.Errorf("%s has no command to run", path)
	}
	fmt.Fprintf(out, "%s: %d commands in %.1f s, the output of %d compared, %d not run\n", filepath.Base(path), ran, time.Since(begin).Seconds(), compared, len(all)-ran)
	return nil
}

// shell is one bash for all commands of a page that belong to one place: directories and variables stay.
type shell struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func newShell(program string) (*shell, error) {
	cmd := exec.Command(program) //nolint:noctx,gosec // the caller's program; ended by close, also after a time limit
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	return &shell{cmd, in, lines}, nil
}

// marker comes after the output of a command, before its status.
const marker = "howto: ended with "

// run runs a command and returns its output, lines of both streams, and its status.
func (s *shell) run(command string, timeout time.Duration) (lines []string, status int, err error) {
	late := time.AfterFunc(timeout, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} 2>&1 </dev/null\nprintf '\\n%s%%d\\n' $?\n", command, marker); err != nil {
		return nil, 0, err
	}
	for s.out.Scan() {
		number, last := strings.CutPrefix(s.out.Text(), marker)
		if !last {
			lines = append(lines, s.out.Text())
			continue
		}
		for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
			lines = lines[:len(lines)-1]
		}
		status, err = strconv.Atoi(number)
		return lines, status, err
	}
	return lines, 0, fmt.Errorf("the shell ended, or the command took longer than %v", timeout)
}

func (s *shell) close() {
	_ = s.in.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}
