#include "doctor/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace fairlead::doctor {
namespace {

constexpr std::string_view kRdma = "/sys/class/infiniband", kPci = "/sys/bus/pci/devices";

std::vector<RdmaPort> read_ports(const SystemFiles& files, const std::string& folder) {
  std::vector<RdmaPort> ports;
  for (const std::string& number : plain_names(files, folder + "/ports")) {
    const std::string port = fmt::format("{}/ports/{}/", folder, number);
    ports.push_back(
        {.number = number,
         .active = files.line(port + "state").value_or("").find("ACTIVE") != std::string::npos,  // "4: ACTIVE"
         .ethernet = files.line(port + "link_layer").value_or("Ethernet") == "Ethernet"});
  }
  return ports;
}

RdmaDevice read_rdma_device(const SystemFiles& files, const std::string& name) {
  RdmaDevice device;
  device.name = name;
  device.folder = fmt::format("{}/{}", kRdma, name);
  // The kernel's software devices name the NIC below them as theirs.
  const bool software = files.exists(device.folder + "/parent") || name.starts_with("rxe") || name.starts_with("siw");
  if (!software) {
    device.driver = files.link_name(device.folder + "/device/driver");
    device.bus_id = files.link_name(device.folder + "/device");
    device.net_interfaces = plain_names(files, device.folder + "/device/net");
  }
  device.ports = read_ports(files, device.folder);
  for (const RdmaPort& port : device.ports) {  // a paravirtual device has its interface from another function
    const auto other = files.line(fmt::format("{}/ports/{}/gid_attrs/ndevs/0", device.folder, port.number));
    auto& names = device.net_interfaces;
    if (other && is_plain(*other) && std::find(names.begin(), names.end(), *other) == names.end())
      names.push_back(*other);
  }
  return device;
}

std::size_t count_nodes(const SystemFiles& files) {
  const std::vector<std::string> names = plain_names(files, "/sys/devices/system/node");
  const auto nodes = std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("node") && leading_number(name.substr(4)).has_value();
  });
  return std::max<std::size_t>(1, static_cast<std::size_t>(nodes));
}

}  // namespace

std::uint64_t hexadecimal(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

bool is_plain(std::string_view word) noexcept {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-:,@").find(c) != std::string_view::npos;
  };
  return !word.empty() && word.front() != '-' && word.front() != '.' && std::all_of(word.begin(), word.end(), plain);
}

std::vector<std::string> plain_names(const SystemFiles& files, std::string_view folder) {
  std::vector<std::string> names = files.list(folder);
  std::erase_if(names, [](const std::string& name) { return !is_plain(name); });
  return names;
}

bool Subject::has_rdma_hardware() const noexcept {
  return std::any_of(rdma.begin(), rdma.end(), [](const RdmaDevice& device) { return device.is_hardware(); });
}

std::vector<PciDevice> Subject::gpus() const {
  std::vector<PciDevice> found;
  std::copy_if(pci.begin(), pci.end(), std::back_inserter(found),
               [](const PciDevice& device) { return device.is_nvidia_gpu(); });
  return found;
}

std::vector<PciDevice> Subject::movers() const {
  std::vector<PciDevice> found;
  std::copy_if(pci.begin(), pci.end(), std::back_inserter(found), [this](const PciDevice& device) {
    return device.is_nvidia_gpu() ||
           std::any_of(rdma.begin(), rdma.end(), [&](const RdmaDevice& each) { return each.bus_id == device.bus_id; });
  });
  return found;
}

Subject read_subject(const SystemFiles& files, Probes probes) {
  Subject subject{.files = files, .probes = std::move(probes), .rdma = {}, .pci = {}};
  for (const std::string& name : plain_names(files, kRdma)) subject.rdma.push_back(read_rdma_device(files, name));
  for (const std::string& bus_id : plain_names(files, kPci)) {
    PciDevice device{.bus_id = bus_id, .folder = fmt::format("{}/{}", kPci, bus_id)};
    device.vendor = hexadecimal(files.line(device.folder + "/vendor").value_or(""));
    device.class_code = hexadecimal(files.line(device.folder + "/class").value_or(""));
    subject.pci.push_back(device);
  }
  subject.nodes = count_nodes(files);
  subject.container = files.exists("/.dockerenv") || files.exists("/run/.containerenv") ||
                      files.exists("/var/run/secrets/kubernetes.io");
  return subject;
}

}  // namespace fairlead::doctor
