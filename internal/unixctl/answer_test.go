// SPDX-License-Identifier: Apache-2.0

package unixctl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func readAnswer(text string) (lines []string, refused string, err error) {
	// One byte at a time: nothing may depend on how the answer was cut.
	a := answerReader{r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(text)), 16)}
	refused, err = a.read(func(l string) error { lines = append(lines, l); return nil })
	return lines, refused, err
}

func TestAnswer(t *testing.T) {
	for text, want := range map[string]string{
		`{"error":null,"id":0,"result":"one\ntwo\n"}`:                 "one|two/",
		`{"result":"one\ntwo","error":null,"id":"x"}`:                 "one|two/",
		`{ "id" : 0 , "result" : "" , "error" : null }`:               "/",
		`{"error":"datapath not found (Invalid argument)\n","id":0}`:  "/datapath not found (Invalid argument)\n",
		`{"error":"","id":0,"result":null}`:                           "/no reason given",
		`{"error":null,"id":-1.5e3,"result":"a\"b\\c\/d\te\u0041\n"}`: "a\"b\\c/d\teA/",
	} {
		lines, refused, err := readAnswer(text)
		if got := strings.Join(lines, "|") + "/" + refused; err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestAnswerRefuses(t *testing.T) {
	for _, text := range []string{
		``, `[`, `{`, `{}`, `{"`, `{"result"`, `{"result":`, `{"result":"`, `{"result":"a`, `{"result":"a"`, `{"result":"a";`,
		`{"result":{"a":1}}`, `{"result":["a"]}`, `{"result":"\x"}`, `{"result":"\u00g0"}`, `{result:"a"}`,
		`{"result":"` + strings.Repeat("x", maxLine+2) + `"}`,
		`{"` + strings.Repeat("x", maxLine+2) + `":0}`,
		`{"id":` + strings.Repeat("1", maxSkipped+2) + `}`,
		`{` + strings.Repeat(" ", maxSkipped+2) + `}`,
	} {
		if lines, _, err := readAnswer(text); err == nil {
			t.Errorf("%.60s: accepted, lines %q", text, lines)
		}
	}
}

// What follows an answer is the next answer, also when somebody disliked a line.
func TestAnswersFollowEachOther(t *testing.T) {
	a := answerReader{r: bufio.NewReader(strings.NewReader(
		`{"id":0,"result":"a\nb\n","error":null}` + "\n" + `{"id":0,"result":null,"error":"no"}`))}
	stop := errors.New("enough")
	if _, err := a.read(func(string) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("first: %v", err)
	}
	// The rest of the object is still there.
	if c, err := a.next(); err != nil || c != ',' {
		t.Fatalf("after the text: %q, %v", c, err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"error":null,"id":0,"result":"one\ntwo\n"}`))
	f.Add([]byte(`{"error":"bad","id":0,"result":null}`))
	f.Add([]byte(`{"error":null,"id":0,"result":"\u0041\"\\"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []string
		a := answerReader{r: bufio.NewReader(bytes.NewReader(data))}
		refused, err := a.read(func(l string) error { got = append(got, l); return nil })
		// Where encoding/json finds an answer of the same shape, it must be the same answer.
		var want struct {
			Result *string `json:"result"`
			Error  *string `json:"error"`
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(data, &members) != nil || json.Unmarshal(data, &want) != nil || err != nil {
			return
		}
		if len(members["result"]) == 0 || len(members["error"]) == 0 || bytes.Count(data, []byte(`"`)) != quotes(want.Result, want.Error) {
			return // doubled, escaped or further members
		}
		if want.Result != nil {
			lines := strings.FieldsFunc(*want.Result, func(r rune) bool { return r == '\n' })
			if strings.Join(got, "\n") != strings.Join(lines, "\n") {
				t.Fatalf("%q: got lines %q, want %q", data, got, lines)
			}
		}
		if want.Error != nil && *want.Error != "" && refused != *want.Error {
			t.Fatalf("%q: got error %q, want %q", data, refused, *want.Error)
		}
	})
}

// quotes is how many there are in an answer with only the members result and error, and texts without quotes.
func quotes(texts ...*string) int {
	n := 4
	for _, t := range texts {
		if t != nil {
			n += 2
		}
	}
	return n
}
