// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

// routers is what the server of a recording said about distributed routers, by question. It answers the same questions again;
// one that was not asked has no answer.
type routers map[string]json.RawMessage

func (r routers) apply(e parity.Event) {
	switch e.Call {
	case "get_dvr_mac_address_list", "get_subnet_for_dvr":
		r[question(e.Call, e.Args)] = e.Result
	}
}

// question names what is asked for. The gateway of a subnet can be asked for in two ways, which have the same answer.
func question(method string, args []byte) string {
	var about struct {
		Subnet string `json:"subnet"`
	}
	_ = json.Unmarshal(args, &about)
	return method + " " + about.Subnet
}

// Call implements neutron.Caller.
func (r routers) Call(_ context.Context, _ messaging.Target, method string, args, result any) error {
	data, err := json.Marshal(args)
	if err != nil {
		return err
	}
	answer, ok := r[question(method, data)]
	if !ok {
		return fmt.Errorf("the recording has no answer to %s", question(method, data))
	}
	return json.Unmarshal(answer, result)
}
