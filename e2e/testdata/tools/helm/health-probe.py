"""Stands in for the chart's probe: calls a method that no agent has, and takes the error that says so as a sign of life."""
import os
import socket
import sys

from oslo_config import cfg
from oslo_context import context
import oslo_messaging

conf = cfg.CONF
conf.register_cli_opts([cfg.StrOpt('agent-queue-name'), cfg.BoolOpt('liveness-probe'), cfg.BoolOpt('use-fqdn')])
conf(sys.argv[1:])
oslo_messaging.set_transport_defaults(control_exchange='neutron')
target = oslo_messaging.Target(topic=conf.agent_queue_name, server=socket.getfqdn() if conf.use_fqdn else socket.gethostname())
client = getattr(oslo_messaging, 'get_rpc_client', oslo_messaging.RPCClient)(
    oslo_messaging.get_rpc_transport(conf), target, timeout=int(os.getenv('RPC_PROBE_TIMEOUT', '60')), retry=2)
try:
    client.call(context.RequestContext(), 'pod_health_probe_method_ignore_errors')
except oslo_messaging.rpc.client.RemoteError as e:
    sys.exit(0 if 'Endpoint does not support RPC' in str(e) else str(e))
except oslo_messaging.exceptions.MessagingTimeout:
    sys.exit('no answer')
