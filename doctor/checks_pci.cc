// What lies between NICs, GPUs and memory on PCI.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/size_text.h"
#include "doctor/checks.h"

namespace fairlead::doctor {
namespace {

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

Finding iommu(const Subject& subject) {
  const std::vector<PciDevice> movers = subject.movers();
  if (movers.empty()) return not_here("no RDMA hardware and no GPU");
  std::vector<std::string> translated, direct;
  for (const PciDevice& device : movers) {
    const std::string type = subject.files.line(device.folder + "/iommu_group/type").value_or("");
    if (type.empty()) continue;
    (type == "identity" ? direct : translated).push_back(device.bus_id);
  }
  if (!translated.empty()) {
    return advice(fmt::format("translates for {}", joined(translated)),
                  {"# add iommu=pt to the kernel's command line (/etc/default/grub), then: update-grub; reboot"});
  }
  return fine(direct.empty() ? "off" : fmt::format("passes through for {}", joined(direct)));
}

/// The ACS control word; nullopt where the device has none, or more than the first bytes are not shown.
struct Acs {
  std::optional<unsigned> control;
  bool hidden = false;
};

Acs read_acs(const Subject& subject, const PciDevice& device) {
  constexpr std::size_t kAll = 4096, kExtended = 0x100;  // PCI Express Base Specification, 7.6 and 7.7.8
  constexpr unsigned kAcsId = 0x000d;
  const std::string config = subject.files.bytes(device.folder + "/config", kAll);
  if (config.size() <= 64) return {.control = {}, .hidden = true};
  const auto word = [&config](std::size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(config[at])) |
           static_cast<unsigned>(static_cast<unsigned char>(config[at + 1])) << 8;
  };
  std::size_t at = kExtended;
  for (int hops = 0; hops < 64 && at >= kExtended && at + 8 <= config.size(); ++hops) {
    if (word(at) == kAcsId) return {.control = word(at + 6), .hidden = false};
    at = word(at + 2) >> 4;
  }
  return {};
}

Finding acs(const Subject& subject) {
  constexpr unsigned kRedirects = 0x04 | 0x08;  // P2P Request Redirect, P2P Completion Redirect
  if (subject.gpus().empty() || !subject.has_rdma_hardware()) return not_here("no GPU beside RDMA hardware");
  std::vector<std::string> redirecting, commands;
  std::size_t hidden = 0;
  for (const PciDevice& device : subject.pci) {
    if (!device.is_bridge()) continue;
    const Acs found = read_acs(subject, device);
    hidden += found.hidden ? 1 : 0;
    if ((found.control.value_or(0) & kRedirects) == 0) continue;
    redirecting.push_back(device.bus_id);
    commands.push_back(fmt::format("setpci -s {} ECAP_ACS+6.w=0000", device.bus_id));
  }
  if (!redirecting.empty()) return advice(fmt::format("redirects at {}", joined(redirecting)), commands);
  if (hidden != 0) return not_here("only root may see it: run this as root");
  return fine("no bridge redirects");
}

/// The largest region of a device that may be read ahead: a GPU's window to its memory.
std::uint64_t largest_window(const Subject& subject, const PciDevice& device) {
  constexpr std::uint64_t kPrefetch = 0x2000;  // IORESOURCE_PREFETCH of linux/ioport.h
  std::uint64_t largest = 0;
  subject.files.each_line(device.folder + "/resource", [&largest](std::string_view line) {
    const std::vector<std::string> words = split_blanks(line);  // "0xBEGIN 0xEND 0xFLAGS"
    if (words.size() != 3) return true;
    const std::uint64_t begin = hexadecimal(words[0]), end = hexadecimal(words[1]);
    if ((hexadecimal(words[2]) & kPrefetch) != 0 && end > begin) largest = std::max(largest, end - begin + 1);
    return true;
  });
  return largest;
}

Finding bar1(const Subject& subject) {
  constexpr std::uint64_t kSmall = std::uint64_t{256} << 20;
  const std::vector<PciDevice> gpus = subject.gpus();
  if (gpus.empty()) return not_here("no GPU");
  std::vector<std::string> seen;
  bool small = false;
  for (const PciDevice& gpu : gpus) {
    const std::uint64_t window = largest_window(subject, gpu);
    small = small || window <= kSmall;
    seen.push_back(fmt::format("{} has {}", gpu.bus_id, size_text(window)));
  }
  if (!small) return fine(joined(seen));
  return advice(joined(seen), {"# in the firmware: turn on Above 4G Decoding and Resizable BAR"});
}

bool kernel_has_dma_buf_regions(const Subject& subject) {
  int major = 0, minor = 0;
  const std::string release = subject.files.line("/proc/sys/kernel/osrelease").value_or("");
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > 5 || (major == 5 && minor >= 12);
}

Finding gpu_direct(const Subject& subject) {
  if (subject.gpus().empty() || !subject.has_rdma_hardware()) return not_here("no GPU beside RDMA hardware");
  const bool peermem =
      subject.files.exists("/sys/module/nvidia_peermem") || subject.files.exists("/sys/module/nv_peer_mem");
  const std::string driver = subject.files.line("/proc/driver/nvidia/version").value_or("");
  const bool dma_buf = driver.find("Open Kernel Module") != std::string::npos && kernel_has_dma_buf_regions(subject);
  if (dma_buf) return fine(peermem ? "dma-buf, and peermem" : "dma-buf");
  if (peermem) return fine("peermem");
  if (driver.empty()) return problem("the NVIDIA driver is not loaded", {"modprobe nvidia"});
  return advice("neither dma-buf (the open kernel modules, Linux 5.12) nor peermem", {"modprobe nvidia-peermem"});
}

/// GT/s times lanes; 0 where it is not known.
double link_capacity(const Subject& subject, const PciDevice& device, std::string_view which) {
  double speed = 0;
  const std::string text = subject.files.line(fmt::format("{}/{}_link_speed", device.folder, which)).value_or("");
  if (std::sscanf(text.c_str(), "%lf", &speed) != 1) return 0;  // "16.0 GT/s PCIe"
  const auto lanes = subject.files.number(fmt::format("{}/{}_link_width", device.folder, which)).value_or(0);
  return lanes > 64 ? 0 : speed * static_cast<double>(lanes);  // 255: not known
}

Finding pcie_link(const Subject& subject) {
  std::vector<std::string> good, slow;
  for (const PciDevice& device : subject.pci) {
    if (!device.is_network()) continue;
    const double now = link_capacity(subject, device, "current"), most = link_capacity(subject, device, "max");
    if (now <= 0 || most <= 0) continue;
    const std::string seen = fmt::format("{} runs {} x{}", device.bus_id,
                                         subject.files.line(device.folder + "/current_link_speed").value_or(""),
                                         subject.files.number(device.folder + "/current_link_width").value_or(0));
    if (now >= most) {
      good.push_back(seen);
    } else {
      slow.push_back(fmt::format("{} of {} x{}", seen,
                                 subject.files.line(device.folder + "/max_link_speed").value_or(""),
                                 subject.files.number(device.folder + "/max_link_width").value_or(0)));
    }
  }
  if (!slow.empty())
    return advice(joined(slow), {"# put the card into a slot with all of its lanes; lspci -vv shows both"});
  return good.empty() ? not_here("no NIC that shows its PCI link") : fine(joined(good));
}

constexpr Check kChecks[] = {
    {"iommu", "`iommu_group/type` of RDMA hardware and GPUs",
     "An IOMMU that translates costs each access of a NIC a look-up, and limits the size of GPU registrations.", iommu},
    {"acs", "ACS control of the PCI bridges, where a GPU and RDMA hardware are",
     "With redirection what a NIC reads from a GPU goes up to the root and down again.", acs},
    {"bar1", "the prefetchable region in `resource` of NVIDIA GPUs",
     "A NIC reaches only as much of a GPU's memory as this window shows.", bar1},
    {"gpu-direct", "`/proc/driver/nvidia/version`, `/sys/module/nvidia_peermem`",
     "Without dma-buf or peermem GPU memory cannot be registered, and is staged through the host's.", gpu_direct},
    {"pcie-link", "`current_link_speed` and `current_link_width` of NICs",
     "A card in a narrow slot, or badly seated, carries less than its ports.", pcie_link},
};

}  // namespace

std::span<const Check> pci_checks() { return kChecks; }

}  // namespace fairlead::doctor
