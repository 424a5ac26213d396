// SPDX-License-Identifier: Apache-2.0

package release

import "strconv"

// enter is run by a shell in a mount namespace of its own: $1 is the root directory, $2 the number of directories that follow, which
// are to be seen at their own paths; the rest is the command. /mnt is on every Debian, and what is under it is hidden from this
// command alone.
const enter = `root=$1 n=$2; shift 2
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o "lowerdir=$root,upperdir=/mnt/upper,workdir=/mnt/work" none /mnt/root
for d in /proc /sys /dev; do mount --rbind "$d" "/mnt/root$d"; done
mkdir -p /mnt/root/run/netns
cat /etc/hosts >/mnt/root/etc/hosts
while [ "$n" -gt 0 ]; do mkdir -p "/mnt/root$1"; mount --rbind "$1" "/mnt/root$1"; shift; n=$((n-1)); done
exec chroot /mnt/root "$@"`

// Command is argv such that it runs in the root directory, with dirs at their own paths; without a root it is argv. Every step
// replaces the one before, so the process that is started is that of the command.
func Command(root string, dirs []string, argv ...string) []string {
	if root == "" {
		return argv
	}
	whole := []string{"unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", enter, "sh", root, strconv.Itoa(len(dirs))}
	return append(append(whole, dirs...), argv...)
}
