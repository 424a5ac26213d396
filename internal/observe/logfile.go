// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// LogFile is a file that is appended to and survives rotation in both ways that are in use: it is opened for append,
// so that logrotate's copytruncate leaves no hole, and it is opened anew once its name leads to another file.
type LogFile struct {
	path string
	now  func() time.Time

	mu      sync.Mutex
	f       *os.File
	checked time.Time
}

// recheck bounds how often the name is looked up; between two lines of a busy moment it cannot have changed in a way
// that matters.
const recheck = time.Second

// OpenLogFile opens or creates the file.
func OpenLogFile(path string) (*LogFile, error) {
	l := &LogFile{path: path, now: time.Now}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return l, nil
}

func (l *LogFile) open() error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f, l.checked = f, l.now()
	return nil
}

// Write implements io.Writer.
func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.checked) >= recheck {
		l.checked = now
		l.followRotation()
	}
	return l.f.Write(b)
}

// followRotation opens the file anew when it was renamed or removed. When that fails the old file goes on being
// written: a line in the wrong file beats a lost line.
func (l *LogFile) followRotation() {
	named, err := os.Stat(l.path)
	if err == nil {
		ours, err := l.f.Stat()
		if err == nil && os.SameFile(named, ours) {
			return
		}
	}
	_ = l.open()
}

// Close closes the file.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
