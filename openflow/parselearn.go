// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
	"strings"
)

func parseLearn(arg string) (Action, error) {
	a := Learn{Table: 1, Priority: DefaultPriority}
	err := eachArg(arg, func(k, v string) error {
		var n uint64
		var err error
		switch k {
		case "table":
			n, err = parseNum(v, 8)
			a.Table = uint8(n)
		case "priority":
			n, err = parseNum(v, 16)
			a.Priority = uint16(n)
		case "idle_timeout":
			n, err = parseNum(v, 16)
			a.IdleTimeout = uint16(n)
		case "hard_timeout":
			n, err = parseNum(v, 16)
			a.HardTimeout = uint16(n)
		case "fin_idle_timeout":
			n, err = parseNum(v, 16)
			a.FinIdleTimeout = uint16(n)
		case "fin_hard_timeout":
			n, err = parseNum(v, 16)
			a.FinHardTimeout = uint16(n)
		case "cookie":
			a.Cookie, err = parseNum(v, 64)
		case "limit":
			n, err = parseNum(v, 32)
			a.Limit = uint32(n)
		case "send_flow_rem":
			a.SendFlowRem = true
		case "delete_learned":
			a.DeleteLearned = true
		case "result_dst":
			a.ResultTo, err = parseBits(v)
		default:
			var s LearnSpec
			s, err = parseLearnSpec(k, v)
			a.Specs = append(a.Specs, s)
		}
		return err
	})
	return a, err
}

func parseLearnSpec(k, v string) (LearnSpec, error) {
	switch k {
	case "output":
		from, err := parseBits(v)
		return LearnOutput(from), err
	case "load":
		from, to, ok := strings.Cut(v, "->")
		if !ok {
			return LearnSpec{}, errors.New("lacks ->")
		}
		dst, err := parseBits(to)
		if err != nil {
			return LearnSpec{}, err
		}
		if n, err := parseNum128(from); err == nil {
			return LearnLoadValue(dst, n), nil
		}
		src, err := parseBits(from)
		return LearnLoad(dst, src), err
	}
	dst, err := parseBits(k)
	if err != nil {
		return LearnSpec{}, err
	}
	if v == "" {
		return LearnMatch(dst, dst), nil
	}
	if src, err := parseBits(v); err == nil {
		return LearnMatch(dst, src), nil
	}
	if !dst.isAll() {
		n, err := parseNum128(v)
		return LearnMatchValue(dst, n), err
	}
	n, err := parseOne(dst.Field.info().format, v)
	return LearnMatchValue(dst, n), err
}

func indexOf(names []string, s string) (uint16, error) {
	for i, n := range names {
		if n == s {
			return uint16(i), nil
		}
	}
	return 0, fmt.Errorf("no such method: %q", s)
}

// hashArgs parses FIELDS,BASIS,ALGORITHM and returns what follows.
func hashArgs(arg string, algorithms []string) (fields, basis, alg uint16, rest string, err error) {
	p := strings.SplitN(arg, ",", 4)
	if len(p) != 4 {
		return 0, 0, 0, "", errors.New("too few arguments")
	}
	if fields, err = indexOf(hashFields, p[0]); err != nil {
		return
	}
	b, err := parseNum(p[1], 16)
	if err != nil {
		return
	}
	alg, err = indexOf(algorithms, p[2])
	return fields, uint16(b), alg, p[3], err
}

func parseMultipath(arg string) (Action, error) {
	fields, basis, alg, rest, err := hashArgs(arg, multipathAlgorithms)
	a := Multipath{Fields: fields, Basis: basis, Algorithm: alg}
	if err != nil {
		return a, err
	}
	p := strings.SplitN(rest, ",", 3)
	if len(p) != 3 {
		return a, errors.New("too few arguments")
	}
	links, err := parseNum(p[0], 16)
	if err != nil {
		return a, err
	}
	n, err := parseNum(p[1], 32)
	if err != nil {
		return a, err
	}
	a.Links, a.Arg = uint16(links), uint32(n)
	a.To, err = parseBits(p[2])
	return a, err
}

func parseChoose(name, arg string) (Action, error) {
	fields, basis, alg, rest, err := hashArgs(arg, bundleAlgorithms)
	a := Choose{Fields: fields, Basis: basis, Algorithm: alg}
	if err != nil {
		return a, err
	}
	rest, ok := strings.CutPrefix(rest, "ofport,")
	if !ok {
		return a, errors.New("members must be of type ofport")
	}
	if name == "bundle_load" {
		var to string
		to, rest, _ = strings.Cut(rest, ",")
		if a.To, err = parseBits(to); err != nil {
			return a, err
		}
	}
	_, members, ok := strings.Cut(rest, ":")
	if !ok {
		return a, errors.New("lacks members")
	}
	for m := range strings.SplitSeq(members, ",") {
		if m == "" {
			continue
		}
		p, err := parsePort(m)
		if err != nil {
			return a, err
		}
		a.Ports = append(a.Ports, port16(p))
	}
	return a, nil
}
