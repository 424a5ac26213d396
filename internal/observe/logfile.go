// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// LogFile is a file that is appended to and survives rotation in both ways that are in use: it is opened for append,
// so that logrotate's copytruncate leaves no hole, and it is opened anew once its name leads to another file. While it cannot be opened,
// what is written goes to a stream instead.
type LogFile struct {
	path    string
	instead io.Writer
	now     func() time.Time

	mu      sync.Mutex
	f       *os.File
	err     error // why there is none
	checked time.Time
}

// recheck bounds how often the name is looked up; between two lines of a busy moment it cannot have changed in a way
// that matters.
const recheck = time.Second

// OpenLogFile opens or creates the file, and its directory. While that fails, it is tried again before lines are written.
func OpenLogFile(path string, instead io.Writer) *LogFile {
	l := &LogFile{path: path, instead: instead, now: time.Now}
	l.open()
	return l
}

// open opens the file, and leaves the one that is open where that fails.
func (l *LogFile) open() {
	l.checked = l.now()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if os.IsNotExist(err) && os.MkdirAll(filepath.Dir(l.path), 0o755) == nil {
		f, err = os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	}
	if err != nil {
		l.err = fmt.Errorf("opening the log: %w", err)
		return
	}
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f, l.err = f, nil
}

// Err is why the file cannot be opened; nil: it is open.
func (l *LogFile) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Write implements io.Writer.
func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.checked) >= recheck {
		l.checked = now
		l.followRotation()
	}
	if l.f == nil {
		return l.instead.Write(b)
	}
	return l.f.Write(b)
}

// followRotation opens the file anew when it was renamed or removed. When that fails the old file goes on being
// written: a line in the wrong file beats a lost line.
func (l *LogFile) followRotation() {
	named, err := os.Stat(l.path)
	if err == nil && l.f != nil {
		ours, err := l.f.Stat()
		if err == nil && os.SameFile(named, ours) {
			return
		}
	}
	l.open()
}

// Close closes the file.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
