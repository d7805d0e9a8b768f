#include "datapath/placement/used_nics.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace fairlead::datapath {
namespace {

constexpr std::string_view kVerbsPrefix = "verbs:";

/// One spelling for an address, whatever its own.
std::string canonical(const std::string& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in6_addr six{};
  in_addr four{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return address;
  if (::inet_pton(AF_INET6, address.c_str(), &six) != 1) return address;
  return ::inet_ntop(AF_INET6, &six, text.data(), text.size());
}

}  // namespace

bool is_address(const std::string& text) noexcept {
  in6_addr six{};
  in_addr four{};
  return ::inet_pton(AF_INET, text.c_str(), &four) == 1 || ::inet_pton(AF_INET6, text.c_str(), &six) == 1;
}

std::vector<std::vector<std::size_t>> nics_of(const std::vector<UsedTransport>& transports,
                                              const std::vector<LocalAddress>& addresses, const std::string& root,
                                              topology::Machine* machine) {
  using topology::Unknown;
  std::vector<std::vector<std::size_t>> all;
  for (const UsedTransport& transport : transports) {
    if (transport.name.starts_with(kVerbsPrefix)) {
      all.push_back(
          topology::nics_named(*machine, &topology::Device::rdma_devices, transport.name.substr(kVerbsPrefix.size())));
      if (!all.back().empty()) continue;
      all.pop_back();
    }
    std::set<std::string> interfaces;
    for (const LocalAddress& local : addresses) {
      const bool carries = transport.everywhere || std::ranges::any_of(transport.addresses, [&](const auto& address) {
                             return canonical(address) == local.address;
                           });
      if (carries) interfaces.insert(local.interface);
    }
    all.push_back(topology::nics_behind(interfaces, transport.everywhere ? Unknown::kAddWhereNoNicIs : Unknown::kAdd,
                                        root, machine));
  }
  return all;
}

}  // namespace fairlead::datapath
