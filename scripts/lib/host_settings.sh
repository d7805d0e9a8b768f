# shellcheck shell=sh
# Prints what of a host decides how RDMA and TCP do there: "== what" and what is known of it. Runs anywhere, changes nothing,
# needs no root, and leaves out what there is no tool or file for. Sent to the host as one word (scripts/hardware-check).

has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }
# say COMMAND...: under its own name, if it is there
say() {
  has "$1" || return 0
  printf '== %s\n' "$*"
  PATH="$PATH:/usr/sbin:/sbin" "$@" 2>&1 </dev/null || printf '(exit code %s)\n' "$?"
}
# show WHAT FILE...: the lines of each that can be read, with its name; the zeros of a table of GIDs are none of them
show() {
  printf '== %s\n' "$1"
  shift
  grep -sH '' "$@" </dev/null | grep -v '[0:]\{39\}$'
}

say uname -a
show 'the system' /etc/os-release /proc/cmdline
say lscpu
say free -m
# shellcheck disable=SC3045  # dash, bash and busybox have it
printf '== memlock: ulimit -l\n%s\n' "$(ulimit -l)"
show 'memlock: who may lock how much' /etc/security/limits.conf /etc/security/limits.d/*
show 'CPU governor' /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor /sys/devices/system/cpu/cpufreq/boost
show 'IOMMU' /sys/class/infiniband/*/device/iommu_group/type /sys/class/net/*/device/iommu_group/type
show 'sysctls' /proc/sys/net/core/[rw]mem_max /proc/sys/net/ipv4/tcp_[rw]mem /proc/sys/net/ipv4/tcp_ecn \
  /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/core/default_qdisc /proc/sys/vm/nr_hugepages \
  /proc/sys/vm/overcommit_memory /proc/sys/kernel/numa_balancing

say ip -d -s link
say ip addr
say ip route show table all
say ip rule
say ip neigh
show 'MTU' /sys/class/net/*/mtu
show 'ECN of RoCE, by interface and priority' /sys/class/net/*/ecn/roce_np/enable/* /sys/class/net/*/ecn/roce_rp/enable/* \
  /sys/class/net/*/ecn/roce_np/cnp_dscp /sys/class/net/*/ecn/roce_np/cnp_802p_prio
for interface in /sys/class/net/*; do
  interface=${interface##*/}
  [ -e "/sys/class/net/$interface/device" ] || continue
  for what in '' -i -a -c -g -k -l -S -T --show-fec; do
    # shellcheck disable=SC2086  # none of the words is to be one
    say ethtool $what "$interface"
  done
  say dcb pfc show dev "$interface"
  say dcb ets show dev "$interface"
  say dcb app show dev "$interface"
  say dcb buffer show dev "$interface"
  say mlnx_qos -i "$interface"
  say tc -s qdisc show dev "$interface"
  say lldptool -t -n -i "$interface"
done

show 'GIDs' /sys/class/infiniband/*/ports/*/gids/*
show 'types of the GIDs' /sys/class/infiniband/*/ports/*/gid_attrs/types/*
show 'interfaces of the GIDs' /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*
show 'ports of RDMA devices' /sys/class/infiniband/*/ports/*/state /sys/class/infiniband/*/ports/*/rate \
  /sys/class/infiniband/*/ports/*/link_layer /sys/class/infiniband/*/fw_ver /sys/class/infiniband/*/board_id
show 'counters of RDMA devices' /sys/class/infiniband/*/ports/*/hw_counters/* /sys/class/infiniband/*/ports/*/counters/*
for device in /sys/class/infiniband/*; do
  [ -e "$device" ] && say cma_roce_tos -d "${device##*/}"
done
say rdma link
say rdma dev
say rdma resource
say rdma system
say ibv_devinfo -v
say lsmod
say lspci -vv
say nvidia-smi topo -m
say nvidia-smi -q
say ofed_info -s
exit 0
