#!/bin/bash
# Stands in for the chart's init container: the user of the agent may use the switch's sockets; host and tunnel endpoint are found and written down.
set -e
chown neutron: /run/openvswitch/db.sock "/run/openvswitch/ovs-vswitchd.$(cat /run/openvswitch/ovs-vswitchd.pid).ctl"
address=$(ip -4 -o address show dev br-under | awk '{print $4; exit}')
printf '[ovs]\nlocal_ip = "%s"\n' "${address%/*}" >/tmp/pod-shared/ml2-local-ip.ini
printf '[DEFAULT]\nhost = %s\n' "$(hostname --fqdn)" >/tmp/pod-shared/neutron-agent.ini
