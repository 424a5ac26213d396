// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"regexp"
	"strconv"
	"strings"
)

// Exit is where a copy of the packet left the switch.
type Exit struct {
	Port   uint32 // of the datapath
	VLAN   int    // with which it left; 0 for none
	Remote string // other end of the tunnel, if one was used
	Number int    // segmentation id in the tunnel
	From   string // MAC that was put in the place of the sender's; empty for none
	// Header is the size of the tunnel's header, on the way of the tunnel's packet to the wire.
	Header int
}

var (
	ethSource   = regexp.MustCompile(`\bsrc=([0-9a-f:]{17})\b`)
	vlanValue   = regexp.MustCompile(`\bvid=(\d+)`)
	tunnelTo    = regexp.MustCompile(`\bdst=([0-9a-fA-F.:]+)[,)]`)
	pushedTo    = regexp.MustCompile(`\bipv[46]\(src=[^,]+,dst=([0-9a-fA-F.:]+),`)
	tunnelKey   = regexp.MustCompile(`\btun_id=(0x[0-9a-f]+|\d+)`)
	pushedKey   = regexp.MustCompile(`\b(?:vni|key)=(0x[0-9a-f]+|\d+)`)
	tunnelPort  = regexp.MustCompile(`tnl_port\((\d+)\)`)
	headerSize  = regexp.MustCompile(`header\(size=(\d+)`)
	tableInFlow = regexp.MustCompile(`\btable=(\d+)`)
	inPort      = regexp.MustCompile(`\bin_port=(\d+)`)
	datapathRow = regexp.MustCompile(`^\s+(\S+) (\d+)/(\d+): `)
)

// exits are where copies of the packet left the switch, in all passes.
func (t *Trace) exits() []Exit {
	var out []Exit
	for _, actions := range t.Datapath {
		out = append(out, exits(actions, "")...)
	}
	return out
}

// exits reads datapath actions on a packet whose sender has been given a MAC before.
func exits(actions, from string) []Exit {
	var out []Exit
	now := Exit{From: from}
	for _, a := range split(actions) {
		name, arg, _ := strings.Cut(a, "(")
		switch name {
		case "push_vlan":
			now.VLAN = number(vlanValue, a)
		case "pop_vlan":
			now.VLAN = 0
		case "clone":
			out = append(out, exits(strings.TrimSuffix(arg, ")"), now.From)...)
		case "set":
			if strings.HasPrefix(arg, "vlan(") {
				now.VLAN = number(vlanValue, a)
			}
			if strings.HasPrefix(arg, "eth(") && ethSource.MatchString(a) {
				now.From = text(ethSource, a)
			}
			if strings.HasPrefix(arg, "tunnel(") {
				now.Remote, now.Number = text(tunnelTo, a), number(tunnelKey, a)
			}
		case "tnl_push":
			// What follows is the packet in its tunnel, which leaves by some other interface.
			now.Header = number(headerSize, a)
			out = append(out, Exit{Port: uint32(number(tunnelPort, a)), Remote: text(pushedTo, a), Number: number(pushedKey, a), From: now.From})
		default:
			if n, err := strconv.ParseUint(a, 10, 32); err == nil {
				now.Port = uint32(n)
				out = append(out, now)
				now.Remote, now.Number = "", 0
			}
		}
	}
	return out
}

// split cuts a list at the commas that are not within parentheses.
func split(list string) []string {
	var out []string
	depth, begin := 0, 0
	for i, c := range list {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, list[begin:i])
				begin = i + 1
			}
		}
	}
	return append(out, list[begin:])
}

func text(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

func number(re *regexp.Regexp, s string) int {
	n, _ := strconv.ParseInt(text(re, s), 0, 64)
	return int(n)
}

// ParsePorts reads what dpif/show printed: the names of interfaces by their numbers in the datapath.
func ParsePorts(show string) map[uint32]string {
	names := map[uint32]string{}
	for line := range strings.SplitSeq(show, "\n") {
		if m := datapathRow.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[3], 10, 32)
			names[uint32(n)] = m[1]
		}
	}
	return names
}
