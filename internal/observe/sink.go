// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stream returns the sink of lines. With priorities each begins with <N>, as the journal reads them from a service's standard error.
func Stream(w io.Writer, priorities bool) Sink { return &stream{w, priorities} }

type stream struct {
	w          io.Writer
	priorities bool
}

// Put implements Sink.
func (s *stream) Put(r Record) error {
	line := make([]byte, 0, len(r.Text)+4)
	if s.priorities {
		line = fmt.Appendf(line, "<%d>", priority(r.Level))
	}
	_, err := s.w.Write(append(append(line, r.Text...), '\n'))
	return err
}

// InJournal returns whether a file, given by its device and inode, is the stream that systemd connected to the journal.
func InJournal(getenv func(string) string, device, inode uint64) bool {
	return getenv("JOURNAL_STREAM") == strconv.FormatUint(device, 10)+":"+strconv.FormatUint(inode, 10)
}

// priority is syslog's number of a level.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}

// Facility returns syslog's number of a facility: LOG_LOCAL0, local0.
func Facility(name string) (n int, ok bool) {
	all := []string{"KERN", "USER", "MAIL", "DAEMON", "AUTH", "SYSLOG", "LPR", "NEWS", "UUCP", "CRON", "AUTHPRIV", "FTP", "", "", "", "",
		"LOCAL0", "LOCAL1", "LOCAL2", "LOCAL3", "LOCAL4", "LOCAL5", "LOCAL6", "LOCAL7"}
	name = strings.TrimPrefix(strings.ToUpper(name), "LOG_")
	n = slices.Index(all, name)
	return n, n >= 0 && name != ""
}

// Socket is a sink of datagrams: the system log or the journal. What cannot be sent is written to a stream instead.
type Socket struct {
	network, address string
	message          func(Record) []byte
	instead          io.Writer
	now              func() time.Time

	conn  net.Conn
	err   error
	tried time.Time
}

// Syslog returns the sink of a system log, reached over a network such as unixgram or udp. Records have the program's name.
func Syslog(network, address, program string, facility int, instead io.Writer) *Socket {
	return &Socket{network: network, address: address, instead: instead, now: time.Now, message: func(r Record) []byte {
		return fmt.Appendf(nil, "<%d>%s: %s", facility<<3|priority(r.Level), program, r.Text)
	}}
}

// Journal returns the sink of systemd's journal at a socket, with the fields of oslo.log's OSJournalHandler.
func Journal(address, program string, facility int, instead io.Writer) *Socket {
	return &Socket{network: "unixgram", address: address, instead: instead, now: time.Now, message: func(r Record) []byte {
		at := place(r.PC)
		var b bytes.Buffer
		for _, f := range []struct{ name, value string }{
			{"MESSAGE", string(r.Text)}, {"PRIORITY", strconv.Itoa(priority(r.Level))}, {"SYSLOG_IDENTIFIER", program},
			{"SYSLOG_FACILITY", strconv.Itoa(facility)}, {"CODE_FILE", at.File}, {"CODE_LINE", strconv.Itoa(at.Line)},
			{"CODE_FUNC", function(at.Function)}, {"THREAD_NAME", mainThread}, {"PROCESS_NAME", mainProcess},
			{"LOGGER_NAME", r.Name}, {"LOGGER_LEVEL", levelName(r.Level)},
		} {
			appendField(&b, f.name, f.value)
		}
		return b.Bytes()
	}}
}

// appendField appends a field of the journal's protocol: a value with an end of line in it has its length before it.
func appendField(b *bytes.Buffer, name, value string) {
	b.WriteString(name)
	if strings.ContainsRune(value, '\n') {
		b.WriteByte('\n')
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	} else {
		b.WriteByte('=')
	}
	b.WriteString(value)
	b.WriteByte('\n')
}

// sendTime bounds how long a log that does not read may hold up a record.
const sendTime = 100 * time.Millisecond

// Put implements Sink.
func (s *Socket) Put(r Record) error {
	if s.err = s.send(s.message(r)); s.err != nil {
		return Stream(s.instead, false).Put(r)
	}
	return nil
}

// send sends a datagram, over a new connection if there is none or the other side was restarted.
func (s *Socket) send(b []byte) error {
	if s.conn != nil {
		err := s.write(b)
		if err == nil {
			return nil
		}
		_ = s.conn.Close()
		s.conn = nil
	} else if now := s.now(); s.err != nil && now.Sub(s.tried) < recheck {
		return s.err
	}
	s.tried = s.now()
	conn, err := net.DialTimeout(s.network, s.address, sendTime)
	if err != nil {
		return err
	}
	s.conn = conn
	return s.write(b)
}

func (s *Socket) write(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}
