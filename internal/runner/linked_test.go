// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// A bridge that is set up anew by the switch breaks its connection at once, often before its flows are asked for.
func TestABridgeThatIsLostAsSoonAsItIsFound(t *testing.T) {
	sw := openflowtest.New()
	sw.Inject(func(_ *openflowtest.Conn, m openflowtest.Message) (handled bool) {
		return m.Type != openflowtest.TypeHello && m.Type != openflowtest.TypeFeaturesRequest // it says who it is, and nothing else
	})
	conn, err := sw.Dial(t.Context(), openflow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []effect.Event
	r := New(Config{}, func(e effect.Event) { mu.Lock(); defer mu.Unlock(); got = append(got, e) })
	r.Start(t.Context(), []effect.Effect{effect.ReadFlows{Reading: dataplane.Reading{Bridge: "br-int", Conn: conn}, Begin: true}})
	r.Start(t.Context(), []effect.Effect{effect.HangUp{Bridge: "br-int", Conn: conn}})
	r.Wait() // the race detector looks at who used the connection
	for _, e := range got {
		if d, ok := e.(effect.FlowsRead); !ok || d.Conn != conn || d.Err == nil {
			t.Errorf("got %+v, want the failed question to the connection that was lost", e)
		}
	}
}

// A bridge is tried often however long it has been away: once its switch is back it waits for flows.
func TestABridgeThatWasAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []time.Time
		began := time.Now()
		links := Supervised(func(context.Context, string) (*openflow.Conn, error) {
			tried = append(tried, time.Now())
			return nil, errors.New("nobody listens")
		})(t.Context(), "br-int")
		if l := <-links; l.Err == nil || l.Conn != nil {
			t.Errorf("a link of nobody: %+v", l)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, at := range tried {
			if i > 0 && at.Sub(tried[i-1]) > 250*time.Millisecond {
				t.Fatalf("nobody tried for %v, %v after the switch was lost", at.Sub(tried[i-1]), at.Sub(began))
			}
		}
		if n := len(tried); n < 240 || n > 420 {
			t.Errorf("%d attempts in a minute", n)
		}
	})
}
