// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// note is one entry. It is put into words when somebody reads it: most are never read.
type note struct {
	seq       uint64
	at, until int64 // nanoseconds since 1970
	kind      kind
	level     int8 // of a line of the log: 1 info, 2 warning, 3 error
	n         int  // things it is about; 0 if that does not matter
	repeated  int  // like it, in a row
	what      string
	subject   string // an id
	detail    string
	took      time.Duration
}

// kind is where an entry comes from.
type kind uint8

const (
	kindLog kind = iota
	kindSwitch
	kindPush
	kindReply
	kindReport
	kindFlows
	kindRows
	kindBroker
	kindServer
	kindPort
	kindConntrack
)

func (k kind) String() string {
	return [...]string{"log", "switch", "push", "reply", "report", "flows", "rows", "broker", "server", "port", "conntrack"}[k]
}

func (n *note) event() inspect.Event {
	text := []byte(n.what)
	if n.kind == kindPort {
		text = append([]byte("port "+n.subject+" is "), n.what...)
	}
	if n.subject != "" && n.level == 0 && n.kind != kindPort {
		text = append(append(text, ' '), n.subject...)
	}
	if n.n > 1 {
		text = strconv.AppendInt(append(text, ", "...), int64(n.n), 10)
	}
	if n.detail != "" {
		sep := ": "
		if n.level > 0 {
			sep = " "
		}
		text = append(append(text, sep...), n.detail...)
	}
	if n.took > 0 {
		text = append(append(text, " in "...), n.took.Round(10*time.Microsecond).String()...)
	}
	e := inspect.Event{
		Seq: n.seq, Time: time.Unix(0, n.at), Kind: n.kind.String(), Text: string(text), Subject: n.subject,
		Level: [...]string{"", "info", "warning", "error"}[n.level],
	}
	if n.repeated > 0 {
		e.Count, e.Until = n.repeated+1, time.Unix(0, n.until)
	}
	return e
}

// notes keeps the last entries of the recorder in a ring of bytes. Most are about an object with a UUID, in words that come again and again: so encoded an entry takes about 40
// bytes, a third of what it takes as a note with its strings. The ring has its size from the first entry on, so that an agent under load takes no more memory than one at rest.
type notes struct {
	ring    []byte
	head    int // of the oldest entry
	used    int // bytes
	count   int
	words   []string // what entries say, by number
	numbers map[string]uint16
	buffer  []byte // for the entry that is being written
}

const (
	// notesSize is for about 4,500 entries. A port takes about five from plug to report.
	notesSize = 180 << 10
	// maxWords bounds the numbered texts. Texts beyond that, and long ones, stand in the entries themselves.
	maxWords, longestWord = 512, 80
	// longestNote is how much of an entry is kept: its details are what may be long.
	longestNote = 4 << 10
)

// How a subject is written.
const (
	subjectText = iota
	subjectUUID
)

// unnumbered stands in the place of a text's number.
const unnumbered = 0xffff

// add takes an entry, and forgets old ones for it.
func (l *notes) add(n *note) {
	if l.ring == nil {
		l.ring, l.numbers = make([]byte, notesSize), map[string]uint16{}
	}
	l.buffer = l.encode(l.buffer[:0], n)
	size := 2 + len(l.buffer)
	for l.used+size > len(l.ring) {
		l.drop()
	}
	var length [2]byte
	binary.LittleEndian.PutUint16(length[:], uint16(len(l.buffer))) //nolint:gosec // at most longestNote and a little
	l.write(length[:])
	l.write(l.buffer)
	l.count++
}

// drop forgets the oldest entry.
func (l *notes) drop() {
	low, high := l.ring[l.head], l.ring[(l.head+1)%len(l.ring)]
	size := 2 + int(binary.LittleEndian.Uint16([]byte{low, high}))
	l.head, l.used, l.count = (l.head+size)%len(l.ring), l.used-size, l.count-1
}

// write appends bytes to the ring, which has room for them.
func (l *notes) write(b []byte) {
	at := (l.head + l.used) % len(l.ring)
	n := copy(l.ring[at:], b)
	copy(l.ring, b[n:])
	l.used += len(b)
}

// all returns the entries, oldest first. The last one has the given number.
func (l *notes) all(last uint64) []note {
	bytes := append(make([]byte, 0, l.used), l.ring[l.head:min(l.head+l.used, len(l.ring))]...)
	bytes = append(bytes, l.ring[:l.used-len(bytes)]...)
	out := make([]note, 0, l.count)
	for i := range l.count {
		size := int(binary.LittleEndian.Uint16(bytes))
		n := l.decode(bytes[2 : 2+size])
		n.seq = last - uint64(l.count-1-i) //nolint:gosec // not negative
		out, bytes = append(out, n), bytes[2+size:]
	}
	return out
}

// number returns that of a text, if it has one.
func (l *notes) number(text string) uint16 {
	if i, ok := l.numbers[text]; ok {
		return i
	}
	if len(l.words) == maxWords || len(text) > longestWord {
		return unnumbered
	}
	i := uint16(len(l.words)) //nolint:gosec // less than maxWords
	l.words, l.numbers[text] = append(l.words, text), i
	return i
}

func (l *notes) encode(to []byte, n *note) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(n.at)) //nolint:gosec // read back as it was
	to = append(to, byte(n.kind), byte(n.level))
	for _, v := range [...]int64{int64(n.n), int64(n.repeated), int64(n.took)} {
		to = binary.AppendVarint(to, v)
	}
	if n.repeated > 0 {
		to = binary.AppendVarint(to, n.until-n.at)
	}
	word := l.number(n.what)
	to = binary.LittleEndian.AppendUint16(to, word)
	if word == unnumbered {
		to = appendText(to, n.what)
	}
	if id, ok := parseUUID(n.subject); ok {
		to = append(append(to, subjectUUID), id[:]...)
	} else {
		to = appendText(append(to, subjectText), n.subject)
	}
	return appendText(to, n.detail)
}

func (l *notes) decode(b []byte) (n note) {
	n.at = int64(binary.LittleEndian.Uint64(b)) //nolint:gosec // as it was written
	n.kind, n.level = kind(b[8]), int8(b[9])    //nolint:gosec // as it was written
	b = b[10:]
	number := func() int64 {
		v, size := binary.Varint(b)
		b = b[size:]
		return v
	}
	n.n, n.repeated, n.took = int(number()), int(number()), time.Duration(number())
	if n.repeated > 0 {
		n.until = n.at + number()
	}
	text := func() string {
		size, skip := binary.Uvarint(b)
		s := string(b[skip : skip+int(size)]) //nolint:gosec // as it was written
		b = b[skip+len(s):]
		return s
	}
	word := binary.LittleEndian.Uint16(b)
	if b = b[2:]; word == unnumbered {
		n.what = text()
	} else {
		n.what = l.words[word]
	}
	how := b[0]
	if b = b[1:]; how == subjectUUID {
		n.subject = formatUUID(b[:16])
		b = b[16:]
	} else {
		n.subject = text()
	}
	n.detail = text()
	return n
}

// appendText appends a text and its length. Of a long one it keeps the beginning.
func appendText(to []byte, s string) []byte {
	s = s[:min(len(s), longestNote)]
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// parseUUID reads a UUID as Neutron writes it: 36 characters, lower case. Everything else is left as it is.
func parseUUID(s string) (id [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || strings.ContainsAny(s, "ABCDEF") {
		return id, false
	}
	var digits [32]byte
	n := 0
	for _, part := range [...]string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
		n += copy(digits[n:], part)
	}
	_, err := hex.Decode(id[:], digits[:])
	return id, err == nil
}

func formatUUID(id []byte) string {
	s := hex.EncodeToString(id)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
