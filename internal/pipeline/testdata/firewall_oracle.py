# SPDX-License-Identifier: Apache-2.0
"""Answers, one JSON line per JSON line, which flows Neutron's openvswitch firewall and its log make of ports and groups."""

import json
import sys
import types
from unittest import mock

from oslo_config import cfg

from neutron.agent.linux.openvswitch_firewall import firewall
from neutron.agent import securitygroups_rpc
from neutron.api.rpc.handlers import securitygroups_rpc as handlers
from neutron.conf.agent import common as agent_conf
from neutron.conf.plugins.ml2.drivers import agent as ml2_conf
from neutron.conf.plugins.ml2.drivers import ovs_conf
from neutron.services.logapi.common import db_api
from neutron.services.logapi.drivers.openvswitch import ovs_firewall_log


class Bridge:
    """Stands for the integration bridge and collects flows."""

    def __init__(self, case):
        self.br = self
        self.flows = []
        self.case = case
        self.local = {p['id']: p for p in case['ports'] if p['ofport']}
        self.is_hw_offload_enabled = case['offload']

    def add_protocols(self, *_args):
        pass

    def deferred(self, **_kwargs):
        return self

    def apply_flows(self):
        pass

    def dump_flows(self, _table):
        return []

    def add_flow(self, flow_group_id=None, **flow):
        # ovs-ofctl leaves out types of ICMP of the other IP version.
        family = {'0x0800': 1, '0x86dd': 58}.get(flow.get('dl_type'))
        if flow.get('nw_proto') != family:
            flow.pop('icmp_type', None)
            flow.pop('icmp_code', None)
        actions = flow.pop('actions')
        fields = ','.join('%s=%s' % f for f in flow.items())
        self.flows.append('%s,actions=%s' % (fields, actions))

    def request_cookie(self):
        return 1

    def delete_flows(self, **_flow):
        raise AssertionError('nothing is to be deleted of new ports')

    def get_vif_port_by_id(self, port_id):
        p = self.local.get(port_id)
        return p and types.SimpleNamespace(port_name=port_id, vif_mac=p['mac'], ofport=p['ofport'])

    def get_vifs_by_ids(self, port_ids):
        return {i: self.get_vif_port_by_id(i) for i in port_ids}

    def get_port_ofport(self, name):
        return self.case['patches'].get(name, -1)

    def db_get_val(self, _table, name, _column):
        p = self.local[name]
        config = {'tag': str(p['vlan']), 'network_type': p['network_type'], 'physical_network': p['physnet'] or 'None'}
        if p['segmentation_id'] is not None:
            config['segmentation_id'] = str(p['segmentation_id'])
        return config


class Resource(types.SimpleNamespace):
    def to_dict(self):
        return dict(self.__dict__)


class Cache:
    """What the agent has been told by the server."""

    def __init__(self, case):
        self.all = {'Port': {}, 'SecurityGroup': {}, 'SecurityGroupRule': {}, 'AddressGroup': {}}
        for p in case['ports']:
            self.all['Port'][p['id']] = Resource(
                id=p['id'], mac_address=p['mac'], device_owner=p['device_owner'], security_group_ids=set(p['groups']),
                security_groups=p['groups'], security=Resource(port_security_enabled=p['port_security']),
                fixed_ips=[Attr(ip_address=ip) for ip in p['fixed_ips']],
                allowed_address_pairs=[Attr(mac_address=m, ip_address=ip) for m, ip in p['pairs']])
        for g in case['groups']:
            self.all['SecurityGroup'][g['id']] = Resource(id=g['id'], stateful=True)
            for r in g['rules']:
                self.all['SecurityGroupRule'][r['id']] = Resource(**dict(r, security_group_id=g['id']))
        for a in case['address_groups']:
            self.all['AddressGroup'][a['id']] = Resource(addresses=[Attr(address=x) for x in a['addresses']])

    def get_resource_by_id(self, kind, resource_id):
        return self.all[kind].get(resource_id)

    def get_resources(self, kind, filters):
        (key, values), = filters.items()
        for r in self.all[kind].values():
            have = getattr(r, key)
            if set(have if isinstance(have, set) else [have]) & set(values):
                yield r


class Attr(dict):
    __getattr__ = dict.__getitem__


def answer(case):
    cfg.CONF.set_override('explicitly_egress_direct', case['egress_direct'], 'AGENT')
    cfg.CONF.set_override('permitted_ethertypes', case['permitted_ethertypes'], 'SECURITYGROUP')
    cfg.CONF.set_override('bridge_mappings', ['%s:%s' % m for m in case['bridge_mappings'].items()], 'OVS')
    cfg.CONF.set_override('int_peer_patch_port', 'patch-tun', 'OVS')
    bridge = Bridge(case)
    shim = handlers.SecurityGroupServerAPIShim.__new__(handlers.SecurityGroupServerAPIShim)
    shim.rcache = Cache(case)
    agent = securitygroups_rpc.SecurityGroupAgentRpc.__new__(securitygroups_rpc.SecurityGroupAgentRpc)
    agent.context, agent.plugin_rpc = None, shim
    agent.firewall = firewall.OVSFirewallDriver(bridge)
    ids = [p['id'] for p in case['ports'] if p['ofport']]
    if ids:
        agent._apply_port_filter(ids)
    conj = agent.firewall.conj_ip_manager.conj_id_map.id_map
    return {'flows': bridge.flows, 'conjunctions': [list(k) + [v] for k, v in conj.items()], 'log': log_flows(case, agent.firewall)}


def log_flows(case, driver):
    """The flows of a log of all events, for the rules of all groups of every port that is filtered."""
    bridge = Bridge(case)
    log = ovs_firewall_log.OVSFirewallLoggingDriver.__new__(ovs_firewall_log.OVSFirewallLoggingDriver)
    log.int_br, log._deferred, log.cookies_table = bridge, False, set()
    log.conj_id_map = driver.conj_ip_manager.conj_id_map
    for p in case['ports']:
        if not p['ofport'] or p['id'] not in driver.sg_port_map.ports:
            continue
        groups = [g for g in case['groups'] if g['id'] in p['groups']]
        rules = [db_api._create_sg_rule_dict(Rule(r, security_group_id=g['id'])) for g in groups for r in g['rules']
                 if not r.get('remote_address_group_id')]  # which the server forgets: such a rule would log everything
        port = ovs_firewall_log.OFPortLog({'port_id': p['id'], 'security_group_rules': rules}, bridge.get_vif_port_by_id(p['id']), 'ALL')
        log.add_flows_from_rules(port, {'event': 'ALL', 'project_id': 'a', 'id': 'l'})
    return bridge.flows


class Rule(dict):
    """A rule as the server has it."""

    def __missing__(self, _key):
        return None


def main():
    agent_conf.register_agent_state_opts_helper(cfg.CONF)
    ml2_conf.register_agent_opts()
    ovs_conf.register_ovs_agent_opts()
    cfg.CONF([], project='oracle', default_config_files=[])
    for name in ('firewall.iptables.Helper', 'firewall.ip_conntrack.OvsIpConntrackManager'):
        mock.patch('neutron.agent.linux.openvswitch_firewall.' + name).start()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


main()
