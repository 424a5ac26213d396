// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Numbers of protocols that rules treat in a special way.
const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

// Protocols are the names of protocols on this host: iptables prints them in place of numbers. The zero value knows the names that iptables
// has built in.
type Protocols struct {
	words   map[int]string
	numbers map[string]int
}

// builtIn are the names that iptables knows without the host's database.
func builtIn() map[int]string {
	return map[int]string{
		protoICMP: "icmp", protoTCP: "tcp", protoUDP: "udp", protoICMPv6: "ipv6-icmp", 50: "esp", 51: "ah",
		protoSCTP: "sctp", protoUDPLite: "udplite",
	}
}

// ReadProtocols reads the text of /etc/protocols. Of several names of a number the first counts, as for iptables.
func ReadProtocols(text []byte) Protocols {
	p := Protocols{map[int]string{}, map[string]int{}}
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		line, _, _ := strings.Cut(scan.Text(), "#")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		number, err := strconv.Atoi(words[1])
		if err != nil || number < 0 || number > 255 {
			continue
		}
		if p.words[number] == "" {
			p.words[number] = words[0]
		}
		for _, name := range append(words[:1:1], words[2:]...) {
			if _, taken := p.numbers[name]; !taken {
				p.numbers[name] = number
			}
		}
	}
	return p
}

// word returns the name of a protocol, or its number if it has none.
func (p Protocols) word(number int) string {
	if word, ok := builtIn()[number]; ok {
		return word
	}
	if word := p.words[number]; word != "" {
		return word
	}
	return strconv.Itoa(number)
}

// number reads what word returns, and other names.
func (p Protocols) number(word string) (int, bool) {
	if n, err := strconv.ParseUint(word, 10, 8); err == nil {
		return int(n), true
	}
	switch word {
	case "all":
		return 0, true
	case "icmpv6":
		return protoICMPv6, true
	}
	for n, name := range builtIn() {
		if name == word {
			return n, true
		}
	}
	n, ok := p.numbers[word]
	return n, ok
}

// plainProtocols are the names for encoding/json.
type plainProtocols struct {
	Words   map[int]string
	Numbers map[string]int
}

// MarshalJSON implements json.Marshaler: what it writes, UnmarshalJSON reads.
func (p Protocols) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainProtocols{p.words, p.numbers})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Protocols) UnmarshalJSON(b []byte) error {
	var plain plainProtocols
	err := json.Unmarshal(b, &plain)
	p.words, p.numbers = plain.Words, plain.Numbers
	return err
}
