#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Record what the Python agent's iptables_hybrid driver writes.

Plays scenarios.json to the real classes of an installed Neutron, with real iptables and ipset, and writes what iptables-save,
ip6tables-save and ipset save print after each step. Run it as root, in a network namespace of its own:

    unshare -n ./record.py --release 21.0 recordings/21.0
    unshare -n ./record.py --release 29.0 --overlay DIR recordings/29.0

With --take-over NAME it starts on what is there, as an agent does that takes over from another, and plays one scenario: the state after its
last step, at once.

DIR holds iptables_firewall.py, iptables_manager.py, ipset_manager.py and iptables_comments.py of another release of Neutron, in place of the
installed ones.
"""

import argparse
import importlib.util
import ipaddress
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
OVERLAID = ("iptables_comments", "iptables_manager", "ipset_manager", "iptables_firewall")


def load(overlay):
    """Import Neutron as the agent would, and return what is needed of it."""
    sys.argv = ["neutron-openvswitch-agent"]  # chains are named after the program
    from neutron.agent import linux
    if overlay:
        for name in OVERLAID:
            full = "neutron.agent.linux." + name
            spec = importlib.util.spec_from_file_location(full, os.path.join(overlay, name + ".py"))
            module = importlib.util.module_from_spec(spec)
            sys.modules[full] = module
            setattr(linux, name, module)
            spec.loader.exec_module(module)
    from neutron import privileged
    from neutron.agent import securitygroups_rpc as agent
    from neutron.agent.linux import ip_conntrack, iptables_firewall  # noqa: F401, registers options
    from neutron.common import config  # noqa: F401, registers options
    from neutron.conf.agent import common, securitygroups_rpc
    from neutron.db import securitygroups_rpc_base
    from oslo_config import cfg
    common.register_agent_state_opts_helper(cfg.CONF)
    common.register_root_helper(cfg.CONF)
    securitygroups_rpc.register_securitygroups_opts()
    for value in vars(privileged).values():
        if hasattr(value, "set_client_mode"):
            value.set_client_mode(False)  # this process has the rights itself
    return agent, ip_conntrack, securitygroups_rpc_base, cfg


def make_server(base):
    class Server(base.SecurityGroupInfoAPIMixin):
        """What neutron-server and its push notifications tell the agent, from the state of a scenario."""

        def __init__(self):
            self.state = {}

        def _all_ports(self):
            return dict(self.state["others"], **self.state["ports"])

        def security_group_info_for_devices(self, context, devices):
            ports = {}
            for device in sorted(devices):
                p = self.state["ports"].get(device)
                if p is None or p.get("owner", "").startswith("network:"):
                    continue
                ports[device] = {
                    "id": device, "device": device, "mac_address": p["mac"], "device_owner": p.get("owner", "compute:nova"),
                    "fixed_ips": list(p["ips"]), "network_id": "net", "port_security_enabled": p.get("security", True),
                    "allowed_address_pairs": [{"mac_address": m, "ip_address": ip} for m, ip in p.get("pairs", [])],
                    "security_groups": list(p.get("groups", [])), "security_group_ids": list(p.get("groups", [])),
                    "security_group_rules": [], "security_group_source_groups": [], "security_group_remote_address_groups": [],
                }
            return self.security_group_info_for_ports(context, ports)

        def get_secgroup_ids_for_address_group(self, group):
            return {g for g, v in self.state["groups"].items() for r in v["rules"] if r.get("remote_address_group_id") == group}

        def _select_rules_for_ports(self, context, ports):
            return [(p, dict(rule, security_group_id=g)) for p, v in ports.items() for g in v["security_group_ids"]
                    for rule in self.state["groups"][g]["rules"]]

        def _select_sg_ids_for_ports(self, context, ports):
            return [(g,) for g in {g for p in ports.values() for g in p["security_group_ids"]}]

        def _is_security_group_stateful(self, context, group):
            return self.state["groups"][group].get("stateful", True)

        def _select_ips_for_remote_group(self, context, groups):
            out = {g: set() for g in groups}
            for p in self._all_ports().values():
                ips = {(ip, p["mac"]) for ip in p["ips"]} | {(ip, m) for m, ip in p.get("pairs", [])}
                for g in p.get("groups", []):
                    if g in out:
                        out[g] |= ips
            return out

        def _select_ips_for_remote_address_group(self, context, groups):
            return {g: {(a, None) for a in self.state["address_groups"][g]} for g in groups}

    return Server()


def merge(state, step):
    """The state after a step: a step names what changes; null deletes."""
    out = {}
    for kind in ("ports", "others", "groups", "address_groups"):
        out[kind] = dict(state.get(kind, {}), **step.get(kind, {}))
        out[kind] = {k: v for k, v in out[kind].items() if v is not None}
    for many in step.get("many", []):
        first = ipaddress.ip_address(many["first"])
        for i in range(many["count"]):
            out["others"]["%s-%d" % (many["group"], i)] = {"mac": "fa:16:3e:ff:00:00", "ips": [str(first + i)], "groups": [many["group"]]}
    return out


def play(agent, server, before, after):
    server.state = after
    old, new = before.get("ports", {}), after["ports"]
    gone = set(old) - set(new)
    if gone:
        agent.remove_devices_filter(sorted(gone))
    groups = {g for g in after["groups"] if before.get("groups", {}).get(g) not in (None, after["groups"][g])}
    if groups:
        agent.security_groups_rule_updated(sorted(groups))
    ports_then, ports_now = dict(before.get("others", {}), **old), dict(after["others"], **new)
    members = {g for p in set(ports_then) | set(ports_now) if ports_then.get(p) != ports_now.get(p)
               for v in (ports_then.get(p), ports_now.get(p)) if v for g in v.get("groups", [])}
    if members:
        agent.security_groups_member_updated(sorted(members))
    for g, addresses in after["address_groups"].items():
        if before.get("address_groups", {}).get(g, addresses) != addresses:
            agent.address_group_updated(g)
    agent.setup_port_filters(set(new) - set(old), {p for p in set(old) & set(new) if old[p] != new[p]})


def run(*args):
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60).stdout


def dump(write):
    for args in (("iptables-save",), ("ip6tables-save",), ("ipset", "save")):
        write("-- %s\n" % " ".join(args))
        for line in run(*args).splitlines():
            if line and not line.startswith("#"):
                write(re.sub(r"\[\d+:\d+\]", "[0:0]", re.sub(r" initval \S+", "", line)) + "\n")


def clean():
    for tool in ("iptables", "ip6tables"):
        for table in ("filter", "nat", "raw"):
            run(tool, "-t", table, "-F")
            run(tool, "-t", table, "-X")
    run("ipset", "destroy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--release", required=True)
    parser.add_argument("--overlay")
    parser.add_argument("--take-over", metavar="NAME")
    args = parser.parse_args()
    with open(os.path.join(HERE, "scenarios.json")) as file:
        scenarios = json.load(file)
    os.makedirs(args.directory, exist_ok=True)
    agent_module, ip_conntrack, base, cfg = load(args.overlay and os.path.abspath(args.overlay))
    with tempfile.TemporaryDirectory() as locks:
        cfg.CONF([], project="neutron")
        cfg.CONF.set_override("lock_path", locks, "oslo_concurrency")
        cfg.CONF.set_override("firewall_driver", "iptables_hybrid", "SECURITYGROUP")
        cfg.CONF.set_override("enable_security_group", True, "SECURITYGROUP")
        # Tracked connections are not what is recorded.
        ip_conntrack.IpConntrackManager._process = lambda *_: None
        for scenario in scenarios:
            if args.take_over:
                if scenario["name"] != args.take_over:
                    continue
                state = {}
                for step in scenario["steps"]:
                    state = merge(state, step)
                scenario = dict(scenario, steps=[dict(state, do="take over")])
            else:
                clean()
            ip_conntrack.CONTRACK_MGRS.clear()
            options = scenario.get("options", {})
            cfg.CONF.set_override("enable_ipset", options.get("enable_ipset", True), "SECURITYGROUP")
            cfg.CONF.set_override("comment_iptables_rules", options.get("comment_iptables_rules", True), "AGENT")
            server = make_server(base)
            agent = agent_module.SecurityGroupAgentRpc(None, server, defer_refresh_firewall=True)
            state = {}
            with open(os.path.join(args.directory, scenario["name"] + ".txt"), "w") as file:
                file.write("# %s, the Python agent of Neutron %s\n" % (scenario["name"], args.release))
                for i, step in enumerate(scenario["steps"]):
                    after = merge(state, step)
                    play(agent, server, state, after)
                    state = after
                    file.write("== %d: %s\n" % (i + 1, step["do"]))
                    dump(file.write)
            print(scenario["name"])
    sys.stdout.flush()
    os._exit(0)  # threads of Neutron stay


if __name__ == "__main__":
    main()
