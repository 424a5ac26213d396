#!/bin/bash
# Stands in for the chart's liveness probe.
set -e
/tmp/neutron-openvswitch-agent-readiness.sh
python /tmp/health-probe.py --config-file /etc/neutron/neutron.conf --config-file /etc/neutron/plugins/ml2/openvswitch_agent.ini \
	--agent-queue-name q-agent-notifier-tunnel-update --use-fqdn --liveness-probe
