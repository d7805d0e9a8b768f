# shellcheck shell=bash disable=SC2016,SC2154  # the shell inside expands those; $tree is of who sources this
# Sourced after common.sh: a minimal Debian 12 root, and commands inside it. Needs root, debootstrap, and the host's own
# apt configuration for the mirror.

[ "$(id -u)" -eq 0 ] || die "needs root: it makes a root file system and enters it"
command -v debootstrap >/dev/null || die "needs debootstrap: apt-get install debootstrap"

# indexes FORMAT: one line per package index of the host's apt configuration.
indexes() { apt-get indextargets --format "$1" 'Identifier: Packages'; }

# make_root: in $tree, which is used again if it is there.
make_root() {
  local mirror
  mirror=$(indexes '$(CODENAME) $(REPO_URI)' | awk '$1 == "bookworm" { print $2; exit }')
  [ -n "$mirror" ] || die "this host's apt knows no bookworm archive; run apt-get update"
  [ ! -e "$tree/usr/sbin/policy-rc.d" ] || return 0
  say "making a minimal bookworm root (half a minute)"
  debootstrap --variant=minbase bookworm "$tree" "$mirror" >"$tree.log" 2>&1 || { tail -n 20 "$tree.log" && die "debootstrap failed"; }
  rm -f "$tree.log"
  indexes 'deb $(REPO_URI) $(CODENAME) main' | grep bookworm | sort -u >"$tree/etc/apt/sources.list"
  printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
  chmod 755 "$tree/usr/sbin/policy-rc.d"
}

# inside SCRIPT [ARGUMENT...]: mounts live in a mount namespace, processes in a PID namespace; both end with the command. The
# tree becomes the root of that namespace: what only changed its root (chroot) may make no user namespaces.
inside() {
  unshare --mount --pid --fork --kill-child bash -euc '
    tree=$1
    shift
    mount --bind "$tree" "$tree"
    cd "$tree"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount --rbind /dev dev
    pivot_root . .
    umount -l .
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb bash -euc "$@"' \
    - "$tree" "$@" </dev/null
}

# timed NAME SCRIPT [ARGUMENT...]
timed() {
  local name=$1 begin=$SECONDS
  shift
  say "$name"
  inside "$@" || die "$name: failed"
  say "$name: passed in $((SECONDS - begin)) s"
}

# quick_start PAGE: its section "Quick start" as a shell script. Commands are what is indented by four or fenced without a
# language; of a block that is fenced with one the first line is a comment which names the file that the block is.
quick_start() {
  awk '
    /^## /                        { on = /^## Quick start/; next }
    !on                           { next }
    !fenced && /^    /            { print substr($0, 5) }
    /^```/ && fenced              { if (fenced == "file") print "END_OF_FILE"; fenced = ""; next }
    /^```/                        { fenced = $0 == "```" ? "commands" : "name"; next }
    fenced == "name"              { print "cat >" $2 " <<\047END_OF_FILE\047"; fenced = "file" }
    fenced                        { print }' "$root/docs/$1"
}
