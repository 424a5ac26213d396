// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// view is a database with ports, QoS rows and queues.
func view(ports []ovsdb.Port, qos []ovsdb.QoS, queues []ovsdb.Queue) *ovsdb.View {
	b := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
	br := &ovsdb.Bridge{UUID: "br", Name: "br-int"}
	for i := range ports {
		br.Ports = append(br.Ports, ports[i].UUID)
		b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: &ports[i]})
	}
	for i := range qos {
		b.QoS = append(b.QoS, ovsdb.Diff[ovsdb.QoS]{New: &qos[i]})
	}
	for i := range queues {
		b.Queues = append(b.Queues, ovsdb.Diff[ovsdb.Queue]{New: &queues[i]})
	}
	b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	v := ovsdb.NewView()
	v.Apply(b)
	return v
}

// written is what a row wants changed, without preconditions: "delete QoS 1", "update Port p".
func written(t *testing.T, row ovsdb.Spec, v *ovsdb.View) []string {
	t.Helper()
	all, err := ovsdb.DiffRows(v, row).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range all {
		if !strings.Contains(s, `"op":"wait"`) {
			out = append(out, s)
		}
	}
	return out
}

// changed says in short what operations do: the operation, the table and the row.
func changed(ops []string) []string {
	var out []string
	for _, s := range ops {
		part := func(key string) string {
			_, rest, _ := strings.Cut(s, key)
			word, _, _ := strings.Cut(rest, `"`)
			return word
		}
		out = append(out, strings.TrimSpace(part(`"op":"`)+" "+part(`"table":"`)+" "+part(`"==",["named-uuid","`)))
	}
	slices.Sort(out)
	return out
}

// TestLimitsThatGo: the rows of a limit go with it, and with nothing else.
func TestLimitsThatGo(t *testing.T) {
	ids := map[string]string{"id": "tap", "_type": limitType}
	owned := ovsdb.Queue{UUID: "queue", ExternalIDs: map[string]string{"port": "tap", "type": limitType}}
	mine := ovsdb.QoS{UUID: "qos", Type: queuing, ExternalIDs: ids, Queues: map[int]ovsdb.UUID{0: "queue"}}
	police := ovsdb.QoS{UUID: "qos", Type: policing, ExternalIDs: map[string]string{"id": "tap"}}
	shared := ovsdb.QoS{UUID: "other", Type: queuing, Queues: map[int]ovsdb.UUID{0: "queue"}}
	for name, c := range map[string]struct {
		port   ovsdb.Port
		qos    []ovsdb.QoS
		queues []ovsdb.Queue
		police bool
		want   []string
	}{
		"nothing there":     {port: ovsdb.Port{}},
		"in use":            {ovsdb.Port{QoS: "qos"}, []ovsdb.QoS{mine}, []ovsdb.Queue{owned}, false, []string{"delete QoS qos", "delete Queue queue", "update Port p"}},
		"not in use":        {ovsdb.Port{}, []ovsdb.QoS{mine}, []ovsdb.Queue{owned}, false, []string{"delete QoS qos", "delete Queue queue"}},
		"somebody's in use": {ovsdb.Port{QoS: "x"}, []ovsdb.QoS{mine}, []ovsdb.Queue{owned}, false, []string{"delete QoS qos", "delete Queue queue"}},
		"a lone queue":      {ovsdb.Port{}, nil, []ovsdb.Queue{owned}, false, []string{"delete Queue queue"}},
		"a queue of two":    {ovsdb.Port{}, []ovsdb.QoS{mine, shared}, []ovsdb.Queue{owned}, false, []string{"delete QoS qos"}},
		"queue is gone":     {ovsdb.Port{}, []ovsdb.QoS{mine}, nil, false, []string{"delete QoS qos"}},
		"policed":           {ovsdb.Port{QoS: "qos"}, []ovsdb.QoS{police}, nil, true, []string{"delete QoS qos", "update Port p"}},
		"policed, not used": {ovsdb.Port{}, []ovsdb.QoS{police}, nil, true, []string{"delete QoS qos"}},
		"no policing":       {ovsdb.Port{}, nil, nil, true, nil},
	} {
		c.port.UUID, c.port.Name = "p", "tap"
		v := view([]ovsdb.Port{c.port}, c.qos, c.queues)
		got := changed(written(t, limits{port: "p", name: "tap", policed: c.police}.received(), v))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLimitsOfPortsThatAreGone: ours go when no port has them, and others' stay.
func TestLimitsOfPortsThatAreGone(t *testing.T) {
	limit := func(id, port string) ovsdb.QoS {
		return ovsdb.QoS{UUID: ovsdb.UUID(id), Type: queuing, ExternalIDs: map[string]string{"id": port, "_type": limitType}, Queues: map[int]ovsdb.UUID{0: ovsdb.UUID("q" + id)}}
	}
	queue := func(id, port, kind string) ovsdb.Queue {
		return ovsdb.Queue{UUID: ovsdb.UUID(id), ExternalIDs: map[string]string{"port": port, "type": kind}}
	}
	v := view([]ovsdb.Port{{UUID: "p", Name: "tap"}, {UUID: "r", Name: "other", QoS: "3"}},
		[]ovsdb.QoS{
			limit("1", "tap"), limit("2", "gone"), limit("3", "gone"), limit("4", ""),
			{UUID: "5", Type: policing, ExternalIDs: map[string]string{"id": "gone"}}, {UUID: "6", Type: policing, ExternalIDs: map[string]string{"id": "gone", "x": "y"}},
			{UUID: "7", Type: queuing, ExternalIDs: map[string]string{"id": "gone"}},
		},
		[]ovsdb.Queue{queue("q1", "tap", limitType), queue("q2", "gone", limitType), queue("q3", "gone", limitType), queue("8", "gone", limitType), queue("9", "gone", minimumType), queue("10", "tap", limitType)})
	got := changed(written(t, noLeftovers(), v))
	for _, want := range []string{"delete QoS 2", "delete QoS 5", "delete Queue q2", "delete Queue 8"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	for _, not := range []string{"delete QoS 1", "delete QoS 3", "delete QoS 4", "delete QoS 6", "delete QoS 7", "delete Queue q1", "delete Queue 9", "delete Queue 10"} {
		if slices.Contains(got, not) {
			t.Errorf("%s in %q", not, got)
		}
	}
	if n := len(slices.Compact(slices.Clone(got))); n != len(got) {
		t.Errorf("something is deleted twice: %q", got)
	}
}

// TestNumbersOfMeters: which keys are directions, and what is no number.
func TestNumbersOfMeters(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       uint32
	}{{"m_egress", "7", 7}, {"m_ingress", "4294967295", 4294967295}, {"m_ingress", "4294967296", 0}, {"egress", "7", 0}, {"tag", "7", 0}, {"m_egress", "x", 0}} {
		if got := meterID(c.key, c.value); got != c.want {
			t.Errorf("%s=%s: %d", c.key, c.value, got)
		}
	}
}

// TestMetersOfTwoAgents: an agent of Neutron 21 had a host of ours for a while, so both ids of a meter are written down. Ours counts, whatever the
// order in which rows are read; what is only under the older key is taken over.
func TestMetersOfTwoAgents(t *testing.T) {
	both := ovsdb.Port{UUID: "p", Name: "tap", OtherConfig: map[string]string{"pps_m_egress": "7", "m_egress": "8", "m_ingress": "9", "pps_n_egress": "10"}}
	for range 50 {
		w := world.New(world.Config{IntegrationBridge: "br-int"})
		w.View = view([]ovsdb.Port{both}, nil, nil)
		q := build(w, false)
		for key, want := range map[meterKey]uint32{{"m", packets, egress}: 7, {"m", packets, ingress}: 9, {"n", packets, egress}: 10} {
			if got := q.newMeter(key, 100); got != want {
				t.Fatalf("%v: meter %d, want %d", key, got, want)
			}
		}
	}
}

// TestMetersThatAreWrittenDown: the id on the port stays, if the switch can have it and nobody else does. Another is one that is written down nowhere.
func TestMetersThatAreWrittenDown(t *testing.T) {
	const most = 10
	mine := meterKey{"m", packets, egress}
	for name, c := range map[string]struct {
		config map[string]string
		others world.MeterUse // has meter 7
		want   uint32         // 0: any that is free
	}{
		"the first":                 {config: map[string]string{"pps_m_egress": "1"}, want: 1},
		"the last":                  {config: map[string]string{"pps_m_egress": "10"}, want: 10},
		"more than can be":          {config: map[string]string{"pps_m_egress": "11"}},
		"no number":                 {config: map[string]string{"pps_m_egress": "x"}},
		"another's":                 {config: map[string]string{"pps_m_egress": "7"}, others: world.MeterUse{Extension: "other", For: "x"}},
		"ours already":              {config: map[string]string{"pps_m_egress": "7"}, others: mine.use(), want: 7},
		"written down twice":        {config: map[string]string{"pps_m_egress": "7", "pps_n_egress": "7"}},
		"only the older one can be": {config: map[string]string{"pps_m_egress": "11", "m_egress": "6"}, want: 6},
		"all but one":               {config: map[string]string{"a_egress": "1", "b_egress": "2", "c_egress": "3", "d_egress": "4", "e_egress": "5", "f_egress": "6", "g_egress": "7", "h_egress": "9", "i_egress": "10"}, want: 8},
	} {
		w := world.New(world.Config{IntegrationBridge: "br-int"})
		w.View = view([]ovsdb.Port{{UUID: "p", Name: "tap", OtherConfig: c.config}}, nil, nil)
		if c.others != (world.MeterUse{}) {
			w.MeterIDs[7] = c.others
		}
		got := build(w, false).newMeter(mine, most)
		if c.want != 0 && got != c.want || got == 0 || got > most || c.want == 0 && got == 7 || w.MeterIDs[got] != mine.use() {
			t.Errorf("%s: meter %d, want %d; %v", name, got, c.want, w.MeterIDs)
		}
	}
}

// TestRowsThatMatter: which rows have the queues of the uplinks and what ports have left looked at again.
func TestRowsThatMatter(t *testing.T) {
	port := ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: "p"}}
	both := []world.Object{own.Object(uplinks), own.Object(leftovers)}
	for name, c := range map[string]struct {
		batch   ovsdb.Batch
		policed bool // a port has a queue on the uplinks
		want    []world.Object
	}{
		"nothing":                            {},
		"nothing, with a queue":              {policed: true},
		"a QoS row":                          {batch: ovsdb.Batch{QoS: []ovsdb.Diff[ovsdb.QoS]{{New: &ovsdb.QoS{}}}}, want: both},
		"a queue":                            {batch: ovsdb.Batch{Queues: []ovsdb.Diff[ovsdb.Queue]{{Old: &ovsdb.Queue{}}}}, want: both},
		"both":                               {batch: ovsdb.Batch{QoS: []ovsdb.Diff[ovsdb.QoS]{{New: &ovsdb.QoS{}}}, Queues: []ovsdb.Diff[ovsdb.Queue]{{New: &ovsdb.Queue{}}}}, want: both},
		"a port":                             {batch: ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{port}}},
		"a port, with a queue":               {batch: ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{port}}, policed: true, want: both},
		"an interface":                       {batch: ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{}}}}},
		"an interface, with a queue":         {batch: ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{}}}}, policed: true, want: both},
		"a port and its interface, the same": {batch: ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{port}, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{}}}}, policed: true, want: both},
		"a port that goes":                   {batch: ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{{Old: port.New}}}, want: both[1:]},
	} {
		q := build(world.New(world.Config{IntegrationBridge: "br-int"}), false)
		if c.policed {
			q.policed["1"] = minimumClaim{1, 1000}
		}
		q.OnRows(&c.batch)
		want := map[world.Object]bool{}
		for _, o := range c.want {
			want[o] = true
		}
		if !maps.Equal(q.dirty, want) {
			t.Errorf("%s: %v are looked at again, want %v", name, q.dirty, want)
		}
	}
}

// TestQueuesOfAnEarlierRun: while there are queues for minimum bandwidth, each port that is looked at may be the one that they wait for.
func TestQueuesOfAnEarlierRun(t *testing.T) {
	for kind, want := range map[string]bool{minimumType: true, limitType: false, "": false} {
		w := world.New(world.Config{IntegrationBridge: "br-int"})
		w.View = view(nil, nil, []ovsdb.Queue{{UUID: "q", ExternalIDs: map[string]string{"port": "1", "type": kind}}})
		q := build(w, false)
		if got := q.Resolve([]world.Object{world.PortObject("1")}); slices.Contains(got, own.Object(uplinks)) != want {
			t.Errorf("with a queue of type %q: %v", kind, got)
		}
		if got := q.Resolve(nil); len(got) != 0 {
			t.Errorf("with a queue of type %q and nothing new: %v", kind, got)
		}
	}
}
