// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// portPush is a push about a port, as neutron-server sent it.
func portPush(t testing.TB) effect.Message {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "neutron", "testdata", "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for s := bufio.NewReader(file); ; {
		line, err := s.ReadBytes('\n')
		if err != nil {
			t.Fatal("the transcript has no push of a port that is ACTIVE")
		}
		var entry struct {
			Exchange string `json:"exchange"`
			Message  struct {
				Args json.RawMessage `json:"args"`
			} `json:"message"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		topic, fanout := strings.CutSuffix(entry.Exchange, "_fanout")
		if fanout && strings.HasPrefix(topic, "neutron-vo-Port-") && bytes.Contains(entry.Message.Args, []byte("ACTIVE")) {
			return effect.Message{Message: &messaging.Message{
				Topic: topic, Method: "push", Version: "1.1", Fanout: true, ID: strings.Repeat("1", 32), Args: compacted(t, entry.Message.Args),
			}}
		}
	}
}

// compacted is JSON without blanks.
func compacted(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// decoded is the push of a message.
func decoded(t testing.TB, m effect.Message) *neutron.Push {
	t.Helper()
	d, err := neutron.DecodeMessage(m.Topic, m.Method, m.Args)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*neutron.Push)
}

// written is a message as a tape has it, and what is read from that.
func written(t *testing.T, m effect.Message, push *neutron.Push) (text string, back effect.Message) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, header())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(Took(time.Now(), m, push)); err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(b.String(), "\n")
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil || len(l.Events) != 1 || !l.Take {
		t.Fatalf("%s: %v", text, err)
	}
	e, err := (&flight{}).event(&l.Events[0])
	if err != nil {
		t.Fatal(err)
	}
	return text, e.(effect.Message)
}

// Of a push that passes, the tape has what the core remembers of it.
func TestPassedPush(t *testing.T) {
	m := portPush(t)
	full, same := written(t, m, nil)
	text, back := written(t, m, decoded(t, m))
	if !bytes.Equal(same.Args, m.Args) {
		t.Errorf("a push that does not pass is changed: %s", same.Args)
	}
	if len(text) > len(full)/3 || strings.Contains(text, "fixed_ips") {
		t.Errorf("%d bytes of %d are written: %s", len(text), len(full), text)
	}
	was, is := decoded(t, m), decoded(t, back)
	id, revision, ok := world.Stranger(was.Objects[0].Data)
	againID, againRevision, again := world.Stranger(is.Objects[0].Data)
	if !ok || !again || id != againID || revision != againRevision || id == "" || revision == 0 {
		t.Errorf("%s at %d is read as %s at %d", id, revision, againID, againRevision)
	}
	if is.Event != was.Event || is.Kind != was.Kind || is.Objects[0].Version != was.Objects[0].Version || back.Topic != m.Topic || back.Method != m.Method ||
		back.Version != m.Version || back.Fanout != m.Fanout || back.Directed != m.Directed {
		t.Errorf("written\n%+v, read\n%+v", *m.Message, *back.Message)
	}
	// What is not remembered at all is written in full.
	m.Args = bytes.Replace(m.Args, []byte(`"revision_number"`), []byte(`"revision"`), 1)
	if _, back := written(t, m, decoded(t, m)); !bytes.Equal(back.Args, m.Args) {
		t.Errorf("a port without a revision: %s", back.Args)
	}
}

// Writing a push about a port of another host, in full and as far as it is remembered.
func BenchmarkWritingAPush(b *testing.B) {
	m := portPush(b)
	for name, passed := range map[string]*neutron.Push{"in full": nil, "passed": decoded(b, m)} {
		b.Run(name, func(b *testing.B) {
			z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
			w, err := NewWriter(z, header())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(m.Args)))
			for b.Loop() {
				if err := w.Write(Took(time.Now(), m, passed)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
