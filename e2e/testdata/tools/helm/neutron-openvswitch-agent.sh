#!/bin/bash
# Stands in for the chart's start script.
exec neutron-openvswitch-agent --config-file /etc/neutron/neutron.conf --config-file /tmp/pod-shared/neutron-agent.ini --config-file /tmp/pod-shared/ml2-local-ip.ini \
	--config-file /etc/neutron/plugins/ml2/openvswitch_agent.ini --config-file /etc/neutron/plugins/ml2/ml2_conf.ini --config-dir /etc/neutron/neutron.conf.d
