# SPDX-License-Identifier: Apache-2.0
"""Prints, as JSON, every option that Neutron's Open vSwitch agent registers."""

import json
import sys

sys.argv = ['neutron-openvswitch-agent']

from oslo_config import cfg  # noqa: E402
from neutron.common import config as common_config  # noqa: E402
from neutron.agent.l2 import l2_agent_extensions_manager  # noqa: E402
from neutron.conf.agent import common as agent_config  # noqa: E402
from neutron.conf import service as service_conf  # noqa: E402
from neutron.plugins.ml2.drivers.openvswitch.agent import main as agent_main  # noqa: E402,F401
from neutron.plugins.ml2.drivers.openvswitch.agent.openflow.native import main as of_main  # noqa: E402
from neutron.plugins.ml2.drivers.openvswitch.agent import ovs_neutron_agent  # noqa: E402,F401
from neutron.agent.l2.extensions import fdb_population  # noqa: E402,F401
from neutron.services.logapi.drivers.openvswitch import ovs_firewall_log  # noqa: E402,F401
from neutron_lib import rpc as n_rpc  # noqa: E402
from oslo_messaging._drivers import amqp, impl_rabbit  # noqa: E402
from oslo_messaging.rpc import client, dispatcher  # noqa: E402
from oslo_messaging import server  # noqa: E402
from oslo_reports import opts as report_opts  # noqa: E402


def describe_type(t):
    out = {'kind': type(t).__name__, 'min': getattr(t, 'min', None), 'max': getattr(t, 'max', None),
           'choices': [str(c) for c in (getattr(t, 'choices', None) or [])],
           'ignore_case': bool(getattr(t, 'ignore_case', False))}
    return out


def text(opt, value):
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int) and type(opt.type).__name__ == 'Float':
        return repr(float(value))
    if isinstance(value, (list, tuple)):
        return ','.join(str(v) for v in value)
    if isinstance(value, dict):
        return ','.join('%s:%s' % kv for kv in value.items())
    return str(value)


def main():
    conf = cfg.CONF
    common_config.register_common_config_options()
    conf([], project='neutron', default_config_files=[], default_config_dirs=[])
    of_main.init_config()
    l2_agent_extensions_manager.register_opts(conf)
    service_conf.register_service_opts(service_conf.RPC_EXTRA_OPTS, conf)
    agent_config.register_iptables_opts(conf)
    n_rpc.init(conf)
    group = 'oslo_messaging_rabbit'
    conf.register_opts(impl_rabbit.rabbit_opts + amqp.amqp_opts, group)
    conf.register_opts(client._client_opts)
    conf.register_opts(server._pool_opts)
    conf.register_opts(dispatcher._dispatcher_opts)
    for name, opts in report_opts.list_opts():
        conf.register_opts(opts, name)
    out = []
    for info, group in conf._all_opt_infos():
        opt = info['opt']
        out.append({
            'group': group.name if group else 'DEFAULT', 'name': opt.name, 'type': describe_type(opt.type),
            'default': text(opt, info.get('default', opt.default)), 'cli': info['cli'], 'short': opt.short or '',
            'multi': opt.multi, 'secret': opt.secret, 'required': opt.required, 'mutable': opt.mutable,
            'removal': opt.deprecated_for_removal,
            'deprecated': sorted({(d.group or '') + '.' + (d.name or '').replace('-', '_') for d in opt.deprecated_opts}),
        })
    json.dump(out, sys.stdout)


main()
