# A throw-away Debian for the package tests, sourced by them: a clean root made once by debootstrap, a fresh layer over it
# for each run, and a real systemd in namespaces and a control group of its own. Nothing of the machine is visible in it
# but the network namespace that it is given.
# shellcheck shell=bash

cache=${PATCHBAY_PACKAGE_CACHE:-/var/cache/patchbay-package-test}
base=$cache/base
# What the root has beside Debian's minimum. A root with other packages is made anew.
packages="neutron-openvswitch-agent rpm libcap2-bin iptables ipset kmod openssh-server curl"
top=
root=
init=
group=

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() {
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}

# make_base makes the root that all runs share: Debian 12 with the Python agent as Debian packages it, nothing started.
make_base() {
	[ "$(cat "$base/.done" 2>/dev/null)" = "$packages" ] && return
	command -v debootstrap >/dev/null || fail "debootstrap is not installed: apt-get install debootstrap"
	say "making a Debian in $base (once, some minutes)"
	mkdir -p "$cache"
	rm -rf --one-file-system "$base"
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,iproute2 bookworm "$base" >"$cache/debootstrap.log" 2>&1 ||
		fail "debootstrap, see $cache/debootstrap.log"
	printf '#!/bin/sh\nexit 101\n' >"$base/usr/sbin/policy-rc.d"
	chmod 755 "$base/usr/sbin/policy-rc.d"
	cp /etc/resolv.conf "$base/etc/resolv.conf"
	mount -t proc proc "$base/proc"
	# shellcheck disable=SC2086 # a list
	DEBIAN_FRONTEND=noninteractive chroot "$base" apt-get install -y --no-install-recommends $packages >"$cache/apt.log" 2>&1 ||
		{ umount "$base/proc" && fail "apt-get in the new root, see $cache/apt.log"; }
	umount "$base/proc"
	chroot "$base" systemctl --quiet disable ssh.service
	echo "$packages" >"$base/.done"
}

# open_root mounts a fresh layer over the base; $root is the result.
open_root() {
	[ "$(id -u)" = 0 ] || fail "root is needed"
	make_base
	top=$(mktemp -d "$cache/run.XXXXXX")
	root=$top/root
	mkdir "$top/upper" "$top/work" "$root"
	mount -t overlay patchbay-package-test -o "lowerdir=$base,upperdir=$top/upper,workdir=$top/work" "$root"
	mount -t proc proc "$root/proc"
}

# make_packages NAME VERSION [TREE] makes the packages of a tree, or of this one, and puts them into /srv/NAME of the root.
# PATCHBAY_TWO_VERSIONS names a directory to keep them in and to take them from the next time.
make_packages() {
	local to=${PATCHBAY_TWO_VERSIONS:-$top}/$1
	if [ ! -e "$to/SHA256SUMS" ]; then
		say "building $1 packages, $2"
		timeout 20m make -C "${3:-.}" --no-print-directory packages DIST="$to" PKG_VERSION="$2" >"$top/build.log" 2>&1 || { cat "$top/build.log" && fail build; }
	fi
	mkdir "$root/srv/$1"
	cp "$to"/*.deb "$to"/*.rpm "$root/srv/$1"
}

# build_two makes the packages of this tree under two versions, $old and $new.
build_two() {
	old=0~git0 new=$(deploy/version)
	make_packages old $old
	make_packages new "$new"
	new=$(version_of new)
}

# build_from COMMIT makes the packages of a commit of the past as $past, with its own makefile, and those of this tree as $new.
build_from() {
	git cat-file -e "$1^{commit}" 2>/dev/null || fail "commit $1 is not in this clone: git fetch --unshallow"
	git clone --quiet --shared --no-checkout . "$top/past"
	git -C "$top/past" checkout --quiet --detach "$1"
	past=$("$top/past/deploy/version") new=$(deploy/version)
	make_packages past "$past" "$top/past"
	past=$(version_of past)
	rm -rf "$top/past"
	make_packages new "$new"
	new=$(version_of new)
}

version_of() { dpkg-deb --field "$root/srv/$1"/patchbay_*.deb Version; }

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }

close_root() {
	power_off
	[ -n "$top" ] || return 0
	umount "$root/proc" 2>/dev/null || true
	umount "$root"
	rm -rf --one-file-system "$top"
	top=
}

# power_on [NETNS [OVS_DIRECTORY [NAME]]] boots the root's systemd, in a network namespace of the lab, with the sockets of its
# switch as /run/openvswitch, and with a host name.
power_on() {
	local netns=${1:-} switch=${2:-} name=${3:-package-test} enter=(unshare --net) unified=/sys/fs/cgroup/unified
	[ -e $unified/cgroup.procs ] || unified=/sys/fs/cgroup
	[ -e $unified/cgroup.procs ] || fail "no cgroup v2 is mounted"
	[ -z "$netns" ] || enter=(nsenter "--net=/run/netns/$netns")
	group=$unified/patchbay-package-test.$$
	mkdir "$group"
	in_root systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
		systemd-journald-audit.socket sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount
	umount "$root/proc"
	say "booting systemd"
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		exec "${enter[@]}" unshare --mount --uts --ipc --pid --fork --cgroup --propagation private \
			bash "$(dirname "${BASH_SOURCE[0]}")/init" "$root" "$switch" "$name" >"$top/console" 2>&1 </dev/null
	) &
	local parent=$! i
	for i in $(seq 300); do
		init=$(pgrep -P "$parent" | head -n 1) || true
		[ -n "$init" ] && [ "$(inside systemctl is-system-running 2>/dev/null)" = running ] && return
		kill -0 "$parent" 2>/dev/null || break
		sleep 0.2
	done
	tail -n 40 "$top/console" >&2
	inside systemctl --failed --no-legend >&2 || true
	fail "systemd did not come up"
}

inside() {
	nsenter --target "$init" --mount --uts --ipc --pid --net --cgroup --root --wdns=/ \
		/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}

power_off() {
	[ -n "$group" ] || return 0
	# The first process of a PID namespace takes all others with it.
	[ -z "$init" ] || kill -KILL "$init" 2>/dev/null || true
	local i
	for i in $(seq 50); do
		find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
		sleep 0.1
	done
	init= group=
	mount -t proc proc "$root/proc"
}
