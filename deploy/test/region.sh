# A region of the lab for those who switch it by ssh: each host is a throw-away Debian with systemd, an ssh server, Debian's Python agent as a service,
# the package patchbay, and a repository that has both packages. Sourced after service.sh.
# shellcheck shell=bash
lines=()
hosts=()

# desk makes the directory of somebody who works on this machine, $top/operator, with patchbay in the path.
desk() {
	top=$(mktemp -d /var/tmp/patchbay-desk.XXXXXX) root=$top
	mkdir "$top/srv" "$top/bin" "$top/operator"
	make_packages new "$new"
	ln -s "$top/patchbay" "$top/bin/patchbay" # of start_lab
	go build -o "$top/howto" ./tools/howto
}

# region COUNT makes the hosts, with a VM on each. Who is at the desk has the key of all.
region() {
	local host
	repository "$top/srv/new"
	bin/lab install openssh-client python3-openstackclient >/dev/null
	ssh-keygen -q -t ed25519 -N '' -f "$top/key"
	start_lab "$1"
	for host in $(seq -f hv%g "$1"); do
		region_host "$host"
		printf 'Host %s\n  HostName %s\n' "$host" "$(host_field "$host" mgmt_ip)" >>"$top/ssh_config"
	done
	printf 'Host *\n  User root\n  IdentityFile %s\n  UserKnownHostsFile %s\n  StrictHostKeyChecking no\n  LogLevel ERROR\n' "$top/key" "$top/known" >>"$top/ssh_config"
	printf '#!/bin/sh\nexec /usr/bin/ssh -F %s "$@"\n' "$top/ssh_config" >"$top/bin/ssh"
	two_vms
	bin/lab vm plug hv3 --name c --wait >/dev/null
	# The operator's own check: the VMs of the region reach each other.
	printf '#!/bin/sh\nexec ip netns exec %s ping -n -c 3 -W 1 %s\n' "$vm_netns" "$peer" >"$top/operator/check-traffic"
	chmod 755 "$top/bin/ssh" "$top/operator/check-traffic"
}

# repository DIRECTORY makes it one that apt reads.
repository() {
	(cd "$1" && for deb in *.deb; do
		dpkg-deb --field "$deb"
		printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum <"$deb" | cut -d ' ' -f 1)"
	done >Packages)
}

region_host() {
	local line netns
	netns=$(host_field "$1" netns)
	exec {line}> >(deploy/test/host "$netns" "$PATCHBAY_LAB_DIR/hosts/$1/ovs" "$1" "$top"/srv/new/patchbay_*.deb >"$top/$1.log" 2>&1)
	hosts+=($!) lines+=("$line")
	within 120 grep -qs '^ready ' "$top/$1.log"
	read -r _ root init < <(grep '^ready ' "$top/$1.log")
	host_files "$1" "$root"
	rm "$root/usr/sbin/policy-rc.d"
	cp -r "$top/srv/new" "$root/srv/repository"
	echo 'deb [trusted=yes] file:/srv/repository ./' >"$root/etc/apt/sources.list"
	mkdir -p -m 700 "$root/root/.ssh"
	cp "$top/key.pub" "$root/root/.ssh/authorized_keys"
	apt update
	inside systemctl --quiet enable --now ssh.service $service
	within 30 runs '*/python3*'
}

# operate follows the page at the desk, with the names of a cloud that has no Keystone.
operate() {
	local endpoint
	endpoint=$(field 's["api"]')
	(cd "$top/operator" && PATH=$top/bin:$PATH OS_AUTH_TYPE=none OS_ENDPOINT=$endpoint "$top/howto" -timeout 15m "$file")
}

end_region() {
	local status=$? line
	[ ${#background[@]} = 0 ] || kill "${background[@]}" 2>/dev/null || true
	[ $status = 0 ] || inside tail -n 20 $log || true
	# All lines first: the programs of a host have those of the hosts before it.
	for line in "${lines[@]}"; do exec {line}>&-; done
	wait "${hosts[@]}" || true
	bin/lab down >/dev/null || true
	rm -rf --one-file-system "$top"
	exit $status
}
