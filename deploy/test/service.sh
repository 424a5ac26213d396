# A host of the lab that is a throw-away Debian with systemd, for tests of the service as packages make it. Sourced after `cd` to the top.
# shellcheck shell=bash
. deploy/test/container.sh
export PATCHBAY_LAB_DIR=${PATCHBAY_LAB_DIR:-/var/lib/patchbay-lab-package}
service=neutron-openvswitch-agent.service
log=/var/log/neutron/neutron-openvswitch-agent.log

background=() # programs beside the host, ended with it

finish() {
	local status=$?
	[ ${#background[@]} = 0 ] || kill "${background[@]}" 2>/dev/null || true
	if [ $status != 0 ] && [ -n "$init" ]; then
		inside systemctl status --no-pager --full $service | tail -n 20 || true
		inside tail -n 20 $log || true
	fi
	close_root || true
	bin/lab down >/dev/null || true
	exit $status
}

# field EXPRESSION prints a part of the lab's status, of_vm NAME KEY one of a VM, and host_field NAME KEY one of a host.
field() { bin/lab status --json | python3 -c "import json, sys; s = json.load(sys.stdin); print($1)"; }
of_vm() { field "next(v['$2'] for v in s['vms'] if v['name'] == '$1')"; }
host_field() { field "next(h['$2'] for h in s['hosts'] if h['name'] == '$1')"; }
property() { inside systemctl show --property="$1" --value $service; }
# within SECONDS COMMAND... waits for a command to succeed.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "waited for: $*"
		sleep 0.3
	done
}
registered() { [ "$(property StatusText)" = "reporting to neutron-server" ]; }
in_sync() { inside patchbay status >"$top/status" 2>&1; }
program() { inside readlink "/proc/$(property MainPID)/exe"; }
runs() { [[ $(program 2>/dev/null) == $1 ]]; }
# listener prints who listens on the controller's address.
listener() { inside ss -Hltnp 'src = 127.0.0.1:6633' | sed 's/.*users://'; }
apt() { inside sh -c "apt-get -y -o Dpkg::Use-Pty=0 $*" >"$top/apt.log" 2>&1 || { cat "$top/apt.log" && fail "apt-get $*"; }; }

# start_lab COUNT starts a lab, and makes the Patchbay of the packages that of its hosts.
start_lab() {
	say "the lab"
	bin/lab up --hosts "$1" --skip-install >"$top/lab.log" 2>&1 || { cat "$top/lab.log" && fail "lab up"; }
	export PATCHBAY_BIN=$top/patchbay
	dpkg-deb --fsys-tarfile "$root"/srv/new/patchbay_*.deb | tar -xO ./usr/bin/patchbay >"$PATCHBAY_BIN" && chmod 755 "$PATCHBAY_BIN"
}

# host_files HOST ROOT [OPTION...] gives a root the configuration of a host of the lab. Options are those of `bin/lab agent start`, which writes it.
host_files() {
	local files=$PATCHBAY_LAB_DIR/hosts/$1/agent to=$2
	bin/lab agent start "$1" patchbay "${@:3}" >/dev/null && bin/lab agent stop "$1" >/dev/null
	# As Debian has it: the agent is no root, so its helpers are called with sudo.
	sed -e '/^state_path/d' -e '/^lock_path/d' "$files/neutron.conf" >"$to/etc/neutron/neutron.conf"
	sed -e '/^root_helper/d' -e '/^helper_command/d' "$files/ovs.ini" >"$to/etc/neutron/plugins/ml2/openvswitch_agent.ini"
	printf '[agent]\nroot_helper = sudo /usr/bin/neutron-rootwrap /etc/neutron/rootwrap.conf\n[oslo_concurrency]\nlock_path = /var/lock/neutron\n' >"$to/etc/neutron/agent.conf.d/lab.conf"
	chroot "$to" chown -R root:neutron /etc/neutron/neutron.conf /etc/neutron/plugins/ml2/openvswitch_agent.ini
	chmod 640 "$to/etc/neutron/neutron.conf" "$to/etc/neutron/plugins/ml2/openvswitch_agent.ini"
}

# lab_host [OPTION...] starts a lab of two hosts, with Patchbay on hv2, and boots the root as hv1. Its service is enabled as after
# Debian's installation, but not started. Options are those of `bin/lab agent start`.
lab_host() {
	start_lab 2
	bin/lab agent start hv2 patchbay "$@" >/dev/null
	host_files hv1 "$root" "$@"
	rm "$root/usr/sbin/policy-rc.d"
	# The switch is the lab's.
	in_root systemctl --quiet mask openvswitch-switch.service ovsdb-server.service ovs-vswitchd.service ovs-record-hostname.service
	power_on "$(host_field hv1 netns)" "$PATCHBAY_LAB_DIR/hosts/hv1/ovs"
	inside systemctl --quiet enable $service
}

# two_vms [NAME NAME [OPTION...]] plugs two VMs, a and b, into the two hosts, and waits until they reach each other. Options are those of `bin/lab vm plug`.
two_vms() {
	local near=${1:-a} far=${2:-b}
	bin/lab vm plug hv1 --name "$near" --wait "${@:3}" >/dev/null
	bin/lab vm plug hv2 --name "$far" --wait "${@:3}" >/dev/null
	vm_netns=$(of_vm "$near" netns)
	peer=$(field "next(v['ips'][0] for v in s['vms'] if v['name'] == '$far')")
	within 30 ip netns exec "$vm_netns" ping -n -c 1 -W 1 "$peer" >/dev/null
}

# lost_when prints which pings were lost, and when the answers before and after them came.
lost_when() {
	sed -n 's/^\[\([0-9]*\)\.\([0-9]*\)\].* icmp_seq=\([0-9]*\) .* time=.*/\3 \1 \2/p' "$top/ping" | sort -nu -k1,1 |
		while read -r seq at fraction; do
			now="$(date -u -d "@$at" +%T).$fraction"
			[ "$seq" = "$((${before:-$((seq - 1))} + 1))" ] || echo "lost: $((before + 1)) to $((seq - 1)), between $then and $now"
			before=$seq then=$now
		done
}

# lossless NAME COMMAND... runs the command while a VM pings another a hundred times a second.
lossless() {
	local name=$1 pinger
	shift
	ip netns exec "$vm_netns" ping -D -n -i 0.01 "$peer" >"$top/ping" 2>&1 &
	pinger=$!
	background+=("$pinger")
	sleep 1
	"$@"
	sleep 2
	kill -INT $pinger
	wait $pinger || true
	# What was sent within the last moments may still be on its way; a gap before a later answer is a loss.
	local sent lost last
	sent=$(sed -n 's/^\([0-9]*\) packets transmitted.*/\1/p' "$top/ping")
	read -r lost last < <(sed -n 's/.* icmp_seq=\([0-9]*\) .* time=.*/\1/p' "$top/ping" | sort -nu |
		awk '{lost += $1 - last - 1; last = $1} END {print lost + 0, last + 0}')
	say "$name: $sent pings, $lost lost"
	[ "$lost" = 0 ] && [ $((sent - last)) -le 50 ] || { lost_when && tail -n 5 "$top/ping" && fail "$name: $lost of $sent pings lost, the last answer was to $last"; }
}
