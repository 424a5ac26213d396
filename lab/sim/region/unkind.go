// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Unkind is what goes wrong at random, beyond what goes wrong with every server. The zero value is a kind server. Everything
// in it happens in real clouds, and an agent has to end in the right state all the same. Casts without a revision number
// (forwarding entries, tunnels, router addresses, sub-ports) are late and come twice, but keep their order: whom they overtake
// nobody could put right.
type Unkind struct {
	// Seed decides what happens to each call and message, whatever comes first.
	Seed uint64
	// Delay is how long a message, a push between reading and sending, a question or an answer may be held back.
	Delay time.Duration
	// Reorder has several processes tell about objects, as many as a server has workers: what one has read first may be sent last.
	Reorder bool
	// Duplicate is how many of the messages come twice, of 1.
	Duplicate float64
	// Fail is how many of the calls are refused, of 1.
	Fail float64
	// Lose is how many of the calls are not answered, of 1: half of them never arrive, the others are carried out.
	Lose float64
	// Devices is how many of the ports in a report cannot be written, of 1.
	Devices float64
}

// Unkinder is a bit of everything.
func Unkinder(seed uint64) Unkind {
	return Unkind{Seed: seed, Delay: 2 * time.Second, Reorder: true, Duplicate: 0.2, Fail: 0.1, Lose: 0.05, Devices: 0.1}
}

// ParseUnkind reads "all", or a list such as "delay=500ms,reorder,duplicate=0.1,fail=0.1,lose=0.05,devices=0.2", each with an
// optional seed=N. The seed is random when it is missing or 0, and empty is kind.
func ParseUnkind(text string) (u Unkind, err error) {
	if text == "" {
		return Unkind{}, nil
	}
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "all":
			seed := u.Seed
			u = Unkinder(seed)
		case "seed":
			u.Seed, err = strconv.ParseUint(value, 10, 64)
		case "delay":
			u.Delay, err = time.ParseDuration(value)
		case "reorder":
			u.Reorder = true
		case "duplicate":
			u.Duplicate, err = strconv.ParseFloat(value, 64)
		case "fail":
			u.Fail, err = strconv.ParseFloat(value, 64)
		case "lose":
			u.Lose, err = strconv.ParseFloat(value, 64)
		case "devices":
			u.Devices, err = strconv.ParseFloat(value, 64)
		default:
			err = errors.New("there is all, seed=, delay=, reorder, duplicate=, fail=, lose= and devices=")
		}
		if err != nil {
			return Unkind{}, fmt.Errorf("how to be unkind: %q: %w", part, err)
		}
	}
	if u.Seed == 0 {
		u.Seed = rand.Uint64()
	}
	return u, nil
}

func (u Unkind) String() string {
	return fmt.Sprintf("seed=%d,delay=%v,reorder=%t,duplicate=%v,fail=%v,lose=%v,devices=%v",
		u.Seed, u.Delay, u.Reorder, u.Duplicate, u.Fail, u.Lose, u.Devices)
}

// ErrLost is returned for a call whose answer never arrives, or that itself does not: nobody says anything to the caller.
var ErrLost = errors.New("lost on the way")

// chance draws what happens. The n-th time that something comes the same is drawn for the same seed, so that a history does
// not depend on which of two goroutines runs first.
type chance struct {
	mu  sync.Mutex
	how Unkind
	nth map[string]uint64
}

func newChance(how Unkind) *chance { return &chance{how: how, nth: map[string]uint64{}} }

// Be makes the server kinder or unkinder from now on.
func (s *Region) Be(how Unkind) {
	s.chance.mu.Lock()
	defer s.chance.mu.Unlock()
	s.chance.how = how
}

func (c *chance) draw(what string) (Unkind, *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nth[what]++
	h := fnv.New64a()
	_, _ = h.Write([]byte(what))
	return c.how, rand.New(rand.NewPCG(c.how.Seed^h.Sum64(), c.nth[what]))
}

func (c *chance) kind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.how == Unkind{}
}

// processes are those of a server with a few workers for the API and for RPC.
const processes = 8

// process is which of the server's processes tells about a change.
func (c *chance) process() string {
	if how, r := c.draw("process"); how.Reorder {
		return " of process " + strconv.Itoa(r.IntN(processes))
	}
	return ""
}

// delay holds a message back: mostly between reading and sending, where what is told gets old.
func (c *chance) delay(what string, early bool) {
	how, r := c.draw(what)
	most, often := how.Delay, 3
	if early {
		most, often = most/8, 1
	}
	if most > 0 && r.IntN(4) < often {
		time.Sleep(time.Duration(r.Int64N(int64(most))))
	}
}

func (c *chance) twice(what string) bool {
	how, r := c.draw("twice " + what)
	return r.Float64() < how.Duplicate
}

// device says whether a port cannot be written.
func (c *chance) device(what string) bool {
	how, r := c.draw("device " + what)
	return r.Float64() < how.Devices
}

// before is what happens to a call before it is carried out.
func (c *chance) before(ctx context.Context, call string) error {
	how, r := c.draw("call " + call)
	if err := hold(ctx, how, r); err != nil {
		return err
	}
	if r.Float64() < how.Lose/2 {
		return ErrLost
	}
	if r.Float64() < how.Fail {
		class := [...]string{"DBError", "DBDeadlock", "DBConnectionError"}[r.IntN(3)]
		return &messaging.RemoteError{
			Class: class, Module: "oslo_db.exception", Message: "(pymysql.err.OperationalError) drawn", Args: json.RawMessage(`[]`), Kwargs: json.RawMessage(`{}`),
		}
	}
	return nil
}

// after is what happens to its answer.
func (c *chance) after(ctx context.Context, call string) error {
	how, r := c.draw("answer " + call)
	if err := hold(ctx, how, r); err != nil {
		return err
	}
	if r.Float64() < how.Lose/2 {
		return ErrLost
	}
	return nil
}

func hold(ctx context.Context, how Unkind, r *rand.Rand) error {
	if how.Delay == 0 || r.IntN(2) == 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(r.Int64N(int64(how.Delay))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
