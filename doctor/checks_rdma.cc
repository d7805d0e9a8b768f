// RDMA devices: whether this process may use them, and whether what they send arrives.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/size_text.h"
#include "doctor/checks.h"

namespace fairlead::doctor {
namespace {

constexpr std::string_view kPvrdmaDriver = "vmw_pvrdma";

void append(std::string* list, const std::string& word) { *list += (list->empty() ? "" : ", ") + word; }

// "mlx5_0: uverbs0"; of a device without one "".
std::string uverbs_of(const Subject& subject, const std::string& device) {
  constexpr std::string_view kFolder = "/sys/class/infiniband_verbs";
  for (const std::string& name : plain_names(subject.files, kFolder)) {
    if (subject.files.line(fmt::format("{}/{}/ibdev", kFolder, name)) == device) return name;
  }
  return {};
}

Finding without_devices(const Subject& subject) {
  constexpr std::uint64_t kMellanox = 0x15b3;
  for (const PciDevice& device : subject.pci) {
    if (device.vendor != kMellanox || !device.is_network()) continue;
    return problem(fmt::format("{} is a NIC of NVIDIA's, and has no RDMA device", device.bus_id), {"modprobe mlx5_ib"});
  }
  return not_here("no RDMA device");
}

Finding rdma_access(const Subject& subject) {
  if (subject.rdma.empty()) return without_devices(subject);
  std::string good, bad;
  std::vector<std::string> commands;
  for (const RdmaDevice& device : subject.rdma) {
    const std::string name = uverbs_of(subject, device.name);
    const std::string node = fmt::format("/dev/infiniband/{}", name.empty() ? "uverbsN" : name);
    if (name.empty()) {
      append(&bad, fmt::format("{} has no uverbs device", device.name));
      commands.emplace_back("modprobe ib_uverbs");
    } else if (!subject.files.exists(node)) {
      append(&bad, fmt::format("{} is here, but {} is not", device.name, node));
      commands.push_back(
          subject.container
              ? fmt::format("# start the container with: docker run --device {} --ulimit memlock=-1 ...", node)
              : "modprobe ib_uverbs; udevadm trigger");
    } else if (!subject.files.usable(node)) {
      append(&bad, fmt::format("{} may not be opened by this user", node));
      commands.push_back(fmt::format("chmod a+rw {}", node));
    } else {
      append(&good, fmt::format("{} by {}", device.name, node));
    }
  }
  commands.erase(std::unique(commands.begin(), commands.end()), commands.end());
  return bad.empty() ? fine(good) : problem(bad, commands);
}

Finding rdma_ports(const Subject& subject) {
  if (subject.rdma.empty()) return not_here("no RDMA device");
  std::string up, down;
  std::vector<std::string> commands;
  for (const RdmaDevice& device : subject.rdma) {
    for (const RdmaPort& port : device.ports) {
      const std::string name = fmt::format("{} port {}", device.name, port.number);
      append(port.active ? &up : &down, name);
      if (port.active) continue;
      for (const std::string& interface : device.net_interfaces) {
        commands.push_back(fmt::format("ip link set {} up", interface));
      }
      if (device.net_interfaces.empty()) commands.push_back(fmt::format("# look at the cable and switch of {}", name));
    }
  }
  if (down.empty()) return fine(fmt::format("up: {}", up));
  return up.empty() ? problem(fmt::format("down: {}", down), commands)
                    : advice(fmt::format("down: {}; up: {}", down, up), commands);
}

std::uint64_t roce_mtu(std::uint64_t interface_mtu) {
  constexpr std::uint64_t kHeaders = 96;  // what Linux sets aside: GRH, UDP, BTH, the largest extension, ICRC
  std::uint64_t mtu = 256;
  while (mtu < 4096 && 2 * mtu + kHeaders <= interface_mtu) mtu *= 2;
  return mtu;
}

Finding mtu(const Subject& subject) {
  constexpr std::uint64_t kFast = 10'000;  // Mb/s from which TCP gains by large packets, too
  std::vector<std::string> of_rdma;
  for (const RdmaDevice& device : subject.rdma) {
    of_rdma.insert(of_rdma.end(), device.net_interfaces.begin(), device.net_interfaces.end());
  }
  std::string good, small;
  std::vector<std::string> commands;
  for (const std::string& name : plain_names(subject.files, "/sys/class/net")) {
    const std::string folder = fmt::format("/sys/class/net/{}", name);
    const auto size = subject.files.number(folder + "/mtu");
    const bool rdma = std::find(of_rdma.begin(), of_rdma.end(), name) != of_rdma.end();
    const bool fast =
        subject.files.exists(folder + "/device") && subject.files.number(folder + "/speed").value_or(0) >= kFast;
    if (!size || (!rdma && !fast)) continue;
    const std::string seen =
        rdma ? fmt::format("{} has {}, RoCE {}", name, *size, roce_mtu(*size)) : fmt::format("{} has {}", name, *size);
    const bool large = rdma ? roce_mtu(*size) == 4096 : *size >= 9000;
    append(large ? &good : &small, seen);
    if (!large) commands.push_back(fmt::format("ip link set {} mtu 9000", name));
  }
  if (!small.empty()) {
    commands.emplace_back("# the switches between, and the other end, must carry it, too");
    return advice(good.empty() ? small : fmt::format("{}; {}", small, good), commands);
  }
  return good.empty() ? not_here("no RDMA device, and no NIC of 10 Gb/s or more") : fine(good);
}

/// Interfaces of RDMA hardware whose ports are Ethernet: where packets may be lost.
std::vector<std::string> roce_interfaces(const Subject& subject) {
  std::vector<std::string> names;
  for (const RdmaDevice& device : subject.rdma) {
    const bool ethernet =
        std::any_of(device.ports.begin(), device.ports.end(), [](const auto& port) { return port.ethernet; });
    if (!ethernet || !device.is_hardware() || device.driver == kPvrdmaDriver) continue;
    names.insert(names.end(), device.net_interfaces.begin(), device.net_interfaces.end());
  }
  return names;
}

Finding pfc(const Subject& subject) {
  const std::vector<std::string> interfaces = roce_interfaces(subject);
  if (interfaces.empty()) return not_here("no RoCE hardware");
  std::string seen;
  std::vector<std::string> commands;
  for (const std::string& name : interfaces) {
    const auto priorities = subject.probes.pfc ? subject.probes.pfc(name) : std::nullopt;
    if (!priorities) continue;
    std::string paused;
    for (int i = 0; i < 8; ++i) {
      if ((*priorities >> i & 1) != 0) append(&paused, std::to_string(i));
    }
    append(&seen, fmt::format("{} {}", name, paused.empty() ? "pauses nothing" : "pauses priority " + paused));
    if (paused.empty()) commands.push_back(fmt::format("dcb pfc set dev {} prio-pfc all:off 3:on", name));
  }
  if (seen.empty())
    return not_here("the drivers do not say; `dcb pfc show dev INTERFACE` or `mlnx_qos -i INTERFACE` may");
  if (commands.empty()) return fine(seen);
  commands.emplace_back("# the same on the switches' ports; and put RoCE into priority 3");
  return advice(seen, commands);
}

Finding ecn(const Subject& subject) {
  std::string on, off;
  std::vector<std::string> commands;
  for (const std::string& name : roce_interfaces(subject)) {
    bool any = false;
    const std::string folder = fmt::format("/sys/class/net/{}/ecn", name);
    const std::vector<std::string> sides =
        plain_names(subject.files, folder);  // roce_np: notification, roce_rp: reaction
    for (const std::string& side : sides) {
      for (const std::string& priority : plain_names(subject.files, fmt::format("{}/{}/enable", folder, side))) {
        any = any || subject.files.number(fmt::format("{}/{}/enable/{}", folder, side, priority)).value_or(0) != 0;
      }
    }
    if (sides.empty()) continue;
    append(any ? &on : &off, name);
    if (any) continue;
    for (const std::string& side : sides) commands.push_back(fmt::format("echo 1 > {}/{}/enable/3", folder, side));
  }
  if (!off.empty()) return advice(fmt::format("off at {}", off), commands);
  return on.empty() ? not_here("no RoCE hardware that shows its switches for it") : fine(fmt::format("on at {}", on));
}

Finding rdma_loss(const Subject& subject) {
  constexpr std::string_view kCounters[] = {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err",
                                            "rnr_nak_retry_err"};
  std::string lost;
  bool counted = false;
  for (const RdmaDevice& device : subject.rdma) {
    for (const RdmaPort& port : device.ports) {
      for (const std::string_view counter : kCounters) {
        const auto count =
            subject.files.number(fmt::format("{}/ports/{}/hw_counters/{}", device.folder, port.number, counter));
        counted = counted || count.has_value();
        if (count.value_or(0) != 0) append(&lost, fmt::format("{} {} {}", device.name, counter, *count));
      }
    }
  }
  if (!counted) return not_here("no device that counts it");
  if (lost.empty()) return fine("nothing was lost or sent again since the driver was loaded");
  return advice(lost,
                {"# if these grow: PFC or ECN along the whole way (checks pfc and ecn), the same MTU everywhere"});
}

/// Pages that the host took back from this guest; nullopt where the balloon does not say (debugfs is root's).
std::optional<std::uint64_t> balloon_pages(const Subject& subject) {
  std::optional<std::uint64_t> pages;
  subject.files.each_line("/sys/kernel/debug/vmmemctl", [&pages](std::string_view line) {  // "current   :  512"
    const std::size_t colon = line.find(':');
    if (!line.starts_with("current") || colon == line.npos) return true;
    pages = leading_number(line.substr(colon + 1));
    return false;
  });
  return pages;
}

Finding pvrdma(const Subject& subject) {
  const auto device = std::find_if(subject.rdma.begin(), subject.rdma.end(),
                                   [](const RdmaDevice& each) { return each.driver == kPvrdmaDriver; });
  if (device == subject.rdma.end()) return not_here("no PVRDMA device");
  const std::vector<std::string> reserve = {
      "# in vSphere, with the guest off: Edit Settings, Memory, Reserve all guest memory",
      "vmware-toolbox-cmd stat memres  # must then say all of the guest's memory"};
  if (device->net_interfaces.empty()) {
    return problem(fmt::format("{} has no interface: its vmxnet3 must be function 0 of the same slot", device->name),
                   {"modprobe vmxnet3; ip link"});
  }
  const auto pages = balloon_pages(subject);
  if (!pages)
    return advice(fmt::format("{}; whether the memory is reserved cannot be seen here", device->name), reserve);
  if (*pages == 0)
    return fine(
        fmt::format("{} with {}; the host has taken no memory back", device->name, device->net_interfaces.front()));
  return problem(fmt::format("{}; the host took {} of memory back, so that not all is reserved", device->name,
                             size_text(*pages * 4096)),
                 reserve);
}

constexpr Check kChecks[] = {
    {"rdma-access", "`/sys/class/infiniband`, `/dev/infiniband`",
     "Verbs open these files; a container has them only if it was started with them.", rdma_access},
    {"rdma-ports", "`state` of the devices' ports", "A port that is down carries nothing, and TCP stands in.",
     rdma_ports},
    {"mtu", "`/sys/class/net/*/mtu` of RDMA devices and fast NICs",
     "RoCE's MTU is 1024 with Ethernet's 1500, and 4096 from 4200 on: a quarter of the packets.", mtu},
    {"pfc", "DCB (`dcb pfc show`) of RoCE hardware",
     "RoCE hardware repeats all since a lost packet, so that its priority should be paused, not dropped.", pfc},
    {"ecn", "`/sys/class/net/*/ecn` of RoCE hardware",
     "With ECN senders slow down before buffers are full, and pauses do not spread.", ecn},
    {"rdma-loss", "`hw_counters` of the devices' ports",
     "Lost packets are what RoCE suffers from most; here they are counted.", rdma_loss},
    {"pvrdma", "the interface and the balloon of a PVRDMA device",
     "PVRDMA pins guest memory, which the host must not take back: all of it must be reserved.", pvrdma},
};

}  // namespace

std::span<const Check> rdma_checks() { return kChecks; }

}  // namespace fairlead::doctor
