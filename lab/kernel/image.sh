#!/usr/bin/env bash
# Make the guest of `make kernel-smoke` in the given directory: Debian's kernel, an initial ram disk of a few modules, and a
# read-only root file system with Open vSwitch. Two minutes and root, once: what is there is kept. The parts are
#
#   vmlinuz     the kernel, which has openvswitch, vxlan and conntrack as modules
#   initrd      busybox, the modules of the disks, and the script that mounts the root below a layer in memory
#   root.ext4   minimal Debian, the kernel's modules, and /sbin/guest, which runs what stands on the second disk
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: image.sh DIRECTORY}
suite=bookworm
mark=$(cat "$here/image.sh" "$here/guest-init" | sha256sum | cut -c 1-16)
if [ "$(cat "$out/made" 2>/dev/null)" = "$mark" ]; then
	exit 0
fi

export DEBIAN_FRONTEND=noninteractive
missing=()
for p in qemu-system-x86 cpio debootstrap kmod; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
	echo "installing ${missing[*]}"
	apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

mkdir -p "$out"
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "root file system: $suite with openvswitch-switch"
debootstrap --variant=minbase --include=openvswitch-switch,iproute2,iputils-ping,conntrack,ethtool,kmod,procps \
	"$suite" "$work/root" >"$work/debootstrap.log" 2>&1 || { tail -n 20 "$work/debootstrap.log" && exit 1; }
rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* "$work"/root/usr/share/{doc,man,locale}

echo 'kernel'
name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
mkdir "$work/debs" "$work/kernel" "$work/busybox"
(cd "$work/debs" && apt-get download -qq "$name" busybox-static 2>/dev/null)
dpkg-deb -x "$work"/debs/linux-image-*.deb "$work/kernel"
dpkg-deb -x "$work"/debs/busybox-static_*.deb "$work/busybox"
version=$(basename "$work"/kernel/boot/vmlinuz-* | sed 's/^vmlinuz-//')
mkdir -p "$work/root/lib/modules"
cp -a "$work/kernel/lib/modules/$version" "$work/root/lib/modules/"
depmod -b "$work/root" "$version"

echo "initial ram disk for $version"
ram=$work/ram
mkdir -p "$ram"/{bin,proc,sys,dev,root,rw,ro}
cp "$work"/busybox/bin/busybox "$ram/bin/"
n=0
for m in virtio_pci virtio_blk ext4 crc32c_generic overlay; do
	while read -r _ file _; do
		base=$(basename "$file")
		if ! ls "$ram"/*-"$base" >/dev/null 2>&1; then
			cp "$file" "$ram/$(printf '%03d' $n)-$base"
			n=$((n + 1))
		fi
	done < <(modprobe -d "$work/root" -S "$version" --show-depends "$m" | grep '^insmod')
done
cat >"$ram/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for m in /*.ko; do $b insmod "$m"; done
for i in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/vda ] && break; $b sleep 0.2; done
$b mount -t ext4 -o ro /dev/vda /ro &&
$b mount -t tmpfs tmpfs /rw &&
$b mkdir /rw/up /rw/work &&
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/up,workdir=/rw/work overlay /root &&
$b umount /proc &&
exec $b switch_root /root /sbin/guest
echo 'the root file system cannot be mounted'
$b poweroff -f
INIT
chmod 755 "$ram/init"
(cd "$ram" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initrd"

install -m 755 "$here/guest-init" "$work/root/sbin/guest"
size=$(du -sm "$work/root" | cut -f 1)
truncate -s "$((size + size / 4 + 64))M" "$work/root.ext4"
mkfs.ext4 -q -F -O ^has_journal -m 0 -d "$work/root" "$work/root.ext4"

cp "$work/kernel/boot/vmlinuz-$version" "$out/vmlinuz"
mv "$work/initrd" "$work/root.ext4" "$out/"
echo "$mark" >"$out/made"
echo "made in $out: Linux $version, $(du -m --apparent-size "$out/root.ext4" | cut -f 1) MB"
