// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/unixctl"
)

// ErrNoLimits says that the switch cannot limit the connections of a zone.
var ErrNoLimits = errors.New("the switch has no limits of tracked connections")

// maxZone is the largest local VLAN. Limits of other zones are not ours.
const maxZone = 4094

// Limiter limits how many connections a zone may have, in either datapath, through ovs-vswitchd's control socket. Since Open
// vSwitch 3.4 limits can also be rows of CT_Zone; those of older switches cannot, and the rows would have to be somebody's.
type Limiter struct {
	// RunDir is where ovs-vswitchd has its control socket.
	RunDir string
	// Datapath is as dpctl names it.
	Datapath string
	// Marker is a file that exists while limits of ours may be set. Without it no limits are removed: somebody else may have
	// set them.
	Marker string
	// DropFragments: a userspace datapath that could let fragments out to others holds none.
	DropFragments bool
}

// NewLimiter returns the Limiter for bridges of the given datapath_type.
func NewLimiter(datapathType, runDir, marker string) Limiter {
	datapath := "system@ovs-system"
	if datapathType == "netdev" {
		datapath = "netdev@ovs-netdev"
	}
	return Limiter{RunDir: runDir, Datapath: datapath, Marker: marker}
}

// SetLimits gives each zone its limit, and with prune takes those of all other local VLANs away. Only what differs is changed.
// It returns how many zones that were. Fragments come first.
func (l Limiter) SetLimits(ctx context.Context, want map[uint16]uint32, prune bool) (changed int, err error) {
	if l.DropFragments {
		if err := l.dropFragments(ctx); err != nil {
			return 0, fmt.Errorf("dropping fragments: %w", err)
		}
	}
	if len(want) == 0 {
		if _, err := os.Stat(l.Marker); errors.Is(err, fs.ErrNotExist) || !prune {
			return 0, nil
		}
	} else if err := os.WriteFile(l.Marker, nil, 0o600); err != nil {
		return 0, fmt.Errorf("noting that limits of tracked connections are set: %w", err)
	}
	if changed, err = l.set(ctx, want, prune); err != nil {
		return changed, fmt.Errorf("limiting tracked connections: %w", err)
	}
	if len(want) == 0 {
		err = os.Remove(l.Marker)
	}
	return changed, err
}

func (l Limiter) set(ctx context.Context, want map[uint16]uint32, prune bool) (int, error) {
	c, err := unixctl.Dial(ctx, l.RunDir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	text, err := c.Call("dpctl/ct-get-limits", l.Datapath)
	if err != nil {
		if strings.Contains(err.Error(), "is not a valid command") || strings.Contains(err.Error(), "not supported") {
			return 0, ErrNoLimits
		}
		return 0, err
	}
	have, err := parseLimits(text)
	if err != nil {
		return 0, err
	}
	set, remove := diffLimits(have, want, prune)
	if len(set) > 0 {
		args := []string{l.Datapath}
		for _, zone := range set {
			args = append(args, fmt.Sprintf("zone=%d,limit=%d", zone, want[zone]))
		}
		if _, err := c.Call("dpctl/ct-set-limits", args...); err != nil {
			return 0, err
		}
	}
	if len(remove) > 0 {
		zones := make([]string, len(remove))
		for i, zone := range remove {
			zones[i] = strconv.Itoa(int(zone))
		}
		if _, err := c.Call("dpctl/ct-del-limits", l.Datapath, "zone="+strings.Join(zones, ",")); err != nil {
			return len(set), err
		}
	}
	return len(set) + len(remove), nil
}

// parseLimits reads the answer of dpctl/ct-get-limits: a line with the default, then one a zone, such as
// "zone=1,limit=5,count=3". A limit of 0 is none.
func parseLimits(text string) (map[uint16]uint32, error) {
	have := map[uint16]uint32{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "zone=") {
			continue
		}
		var zone uint16
		var limit uint32
		if n, err := fmt.Sscanf(line, "zone=%d,limit=%d", &zone, &limit); n != 2 {
			return nil, fmt.Errorf("reading limits: %q: %w", line, err)
		}
		if limit > 0 {
			have[zone] = limit
		}
	}
	return have, nil
}

// diffLimits are the zones whose limit is to be set, and those that lose theirs.
func diffLimits(have, want map[uint16]uint32, prune bool) (set, remove []uint16) {
	for _, zone := range slices.Sorted(maps.Keys(want)) {
		if have[zone] != want[zone] {
			set = append(set, zone)
		}
	}
	if !prune {
		return set, nil
	}
	for _, zone := range slices.Sorted(maps.Keys(have)) {
		if _, wanted := want[zone]; !wanted && zone >= 1 && zone <= maxZone {
			remove = append(remove, zone)
		}
	}
	return set, remove
}
