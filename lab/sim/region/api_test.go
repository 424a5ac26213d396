// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// client talks to the API of a server that nobody listens to.
type client struct {
	t   *testing.T
	url string
}

func serve(t *testing.T) (*Region, *client) {
	t.Helper()
	s := New(Config{})
	s.muted = true
	web := httptest.NewServer(s.Routes())
	t.Cleanup(web.Close)
	s.AddAgent("hv1", netip.MustParseAddr("192.0.2.1"))
	return s, &client{t, web.URL + "/v2.0/"}
}

// do sends a request and returns the resource in the answer, after checking the status.
func (c *client) do(status int, method, path, body string) map[string]any {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != status {
		c.t.Fatalf("%s %s: %s, want %d", method, path, resp.Status, status)
	}
	var answer map[string]any
	if status == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		c.t.Fatal(err)
	}
	for _, one := range answer {
		if m, ok := one.(map[string]any); ok {
			return m
		}
	}
	return answer
}

func TestAPI(t *testing.T) {
	s, c := serve(t)
	net := c.do(201, "POST", "networks", `{"network": {"name": "n", "tenant_id": "x", "provider:network_type": "vlan", "provider:physical_network": "physnet1", "provider:segmentation_id": 7}}`)
	sub := c.do(201, "POST", "subnets", fmt.Sprintf(`{"subnet": {"network_id": %q, "cidr": "10.0.0.0/29", "enable_dhcp": false}}`, net["id"]))
	port := c.do(201, "POST", "ports", fmt.Sprintf(`{"port": {"network_id": %q, "tenant_id": "x", "binding:host_id": "hv1"}}`, net["id"]))
	if port["binding:vif_type"] != "ovs" || fmt.Sprint(port["fixed_ips"]) != fmt.Sprintf("[map[ip_address:10.0.0.2 subnet_id:%s]]", sub["id"]) {
		t.Errorf("port %v", port)
	}
	if groups := port["security_groups"].([]any); len(groups) != 1 || !s.groups[groups[0].(string)].Default {
		t.Errorf("groups %v", groups)
	}
	id := port["id"].(string)
	elsewhere := c.do(200, "PUT", "ports/"+id, `{"port": {"binding:host_id": "nowhere", "allowed_address_pairs": [{"ip_address": "10.0.0.9"}]}}`)
	if elsewhere["binding:vif_type"] != "binding_failed" || elsewhere["status"] != "DOWN" {
		t.Errorf("port %v", elsewhere)
	}
	if pair := fmt.Sprint(elsewhere["allowed_address_pairs"]); pair != fmt.Sprintf("[map[ip_address:10.0.0.9 mac_address:%s]]", port["mac_address"]) {
		t.Errorf("pairs %s", pair)
	}
	c.do(409, "DELETE", "networks/"+net["id"].(string), "")
	c.do(404, "GET", "ports/none", "")
	c.do(400, "POST", "ports", `{"port": `)
	if list := c.do(200, "GET", "networks?name=n", "")["networks"].([]any); len(list) != 1 {
		t.Errorf("%d networks of that name", len(list))
	}
	if list := c.do(200, "GET", "networks?name=m", "")["networks"].([]any); len(list) != 0 {
		t.Errorf("%d networks of another name", len(list))
	}
	c.do(204, "DELETE", "ports/"+id, "")
	c.do(204, "DELETE", "networks/"+net["id"].(string), "")
	if len(s.ports)+len(s.networks)+len(s.subnets)+len(s.taken)+len(s.onNetwork) != 0 {
		t.Errorf("something is left of %v %v", s.ports, s.networks)
	}
}

func TestGroupsInTheAPI(t *testing.T) {
	s, c := serve(t)
	group := c.do(201, "POST", "security-groups", `{"security_group": {"name": "a", "tenant_id": "x"}}`)
	other := c.do(201, "POST", "security-groups", `{"security_group": {"name": "b", "tenant_id": "x"}}`)
	addresses := c.do(201, "POST", "address-groups", `{"address_group": {"name": "g", "addresses": ["10.0.0.1", "10.1.0.0/16"]}}`)
	rule := func(more string) string {
		return fmt.Sprintf(`{"security_group_rule": {"security_group_id": %q, "direction": "ingress", "ethertype": "IPv4", %s}}`, group["id"], more)
	}
	c.do(201, "POST", "security-group-rules", rule(fmt.Sprintf(`"remote_group_id": %q`, other["id"])))
	last := c.do(201, "POST", "security-group-rules", rule(fmt.Sprintf(`"remote_address_group_id": %q`, addresses["id"])))
	c.do(409, "DELETE", "address-groups/"+addresses["id"].(string), "")
	changed := c.do(200, "PUT", "address-groups/"+addresses["id"].(string)+"/remove_addresses", `{"address_group": {"addresses": ["10.0.0.1/32"]}}`)
	if fmt.Sprint(changed["addresses"]) != "[10.1.0.0/16]" {
		t.Errorf("addresses %v", changed["addresses"])
	}
	changed = c.do(200, "PUT", "address-groups/"+addresses["id"].(string)+"/add_addresses", `{"address_group": {"addresses": ["10.2.0.0/16"]}}`)
	if fmt.Sprint(changed["addresses"]) != "[10.1.0.0/16 10.2.0.0/16]" {
		t.Errorf("addresses %v", changed["addresses"])
	}
	c.do(204, "DELETE", "security-groups/"+other["id"].(string), "")
	if rules := s.groups[group["id"].(string)].Rules; len(rules) != 3 {
		t.Errorf("%d rules after the remote group of one has gone", len(rules))
	}
	c.do(204, "DELETE", "security-group-rules/"+last["id"].(string), "")
	c.do(204, "DELETE", "address-groups/"+addresses["id"].(string), "")
	c.do(204, "DELETE", "security-groups/"+group["id"].(string), "")
	if len(s.groups) != 1 || len(s.rules) != 4 {
		t.Errorf("%d groups with %d rules are left, the default group has 4", len(s.groups), len(s.rules))
	}
}
