// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

const (
	// maxWaiting is how many inputs may wait to be written. The loop makes more of them only while the disk stands still: they are written
	// at once when there are half as many.
	maxWaiting = 1 << 12
	// flushPause separates writes to the disk: what is older is there when the agent is killed.
	flushPause = 2 * time.Second
)

// Why a tape ends.
const (
	endFull   = "the tape is full"
	endBehind = "the disk was too slow"
)

// Recorder writes a tape to a file, beside the loop. A nil one records nothing.
type Recorder struct {
	path  string
	limit int64 // bytes on disk
	log   func(msg string, args ...any)

	mu      sync.Mutex
	waiting []Input
	lost    bool          // some did not fit
	wake    chan struct{} // has a token while something waits
	hurry   chan struct{} // has a token when many wait
	closing chan struct{} // closed by Close
	done    chan struct{}
}

// Previous returns the file with the tape of the agent before the one whose tape is at a path.
func Previous(path string) string { return path + ".old" }

// NewRecorder returns a recorder to a file that takes up so many bytes at most. A tape that is there is kept as [Previous]. Log is called with what
// an operator has to know.
func NewRecorder(path string, limit int64, log func(msg string, args ...any)) *Recorder {
	return &Recorder{path: path, limit: limit, log: log, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
}

// Begin starts the tape of a core. Nothing that fails here or later keeps the agent from its work.
func (r *Recorder) Begin(h Header) {
	if r != nil {
		go r.run(h)
	}
}

// Put has an input written. It does not wait.
func (r *Recorder) Put(in Input) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.lost = r.lost || len(r.waiting) >= maxWaiting; !r.lost {
		r.waiting = append(r.waiting, in)
	}
	many := len(r.waiting) >= maxWaiting/2
	r.mu.Unlock()
	token(r.wake)
	if many {
		token(r.hurry)
	}
}

// token puts one into a channel, unless it has one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what waits, and ends the tape. It is called once, after Begin.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	close(r.closing)
	<-r.done
}

// take returns what waits.
func (r *Recorder) take() (inputs []Input, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	inputs, r.waiting = r.waiting, nil
	return inputs, r.lost
}

// stop has nothing written any more.
func (r *Recorder) stop() {
	r.mu.Lock()
	r.lost, r.waiting = true, nil
	r.mu.Unlock()
}

func (r *Recorder) run(h Header) {
	defer close(r.done)
	defer r.stop()
	if err := r.record(h); err != nil {
		r.log("recording of inputs to the tape stopped until the next start, patchbay replay ends here", "file", r.path, "err", err)
	}
}

// record writes until the tape is closed or full.
func (r *Recorder) record(h Header) (err error) {
	if err := os.Rename(r.path, Previous(r.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	to := &counting{Writer: f}
	// The fastest one: the memory and the time are the host's, and ids compress well with any.
	z, _ := gzip.NewWriterLevel(to, gzip.BestSpeed) // the level is a good one
	defer func() { err = errors.Join(err, z.Close(), f.Close()) }()
	w, err := NewWriter(z, h)
	if err != nil {
		return err
	}
	for closed := false; ; {
		if err := z.Flush(); err != nil {
			return err
		}
		select {
		case <-r.wake:
		case <-r.closing:
			closed = true
		}
		inputs, lost := r.take()
		for i, in := range inputs {
			if err := w.Write(in); err != nil {
				return err
			}
			if inputs[i] = (Input{}); to.n >= r.limit {
				return errors.Join(w.End(in.now, endFull), fmt.Errorf("%d bytes: %s", to.n, endFull))
			}
		}
		switch {
		case lost:
			return errors.Join(w.End(time.Now(), endBehind), errors.New(endBehind))
		case closed:
			return nil
		}
		select {
		case <-time.After(flushPause):
		case <-r.hurry:
		case <-r.closing:
		}
	}
}

// counting counts what is written.
type counting struct {
	io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += int64(n)
	return n, err
}
