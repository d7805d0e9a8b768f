#include "verbs/soft/rc/referring.h"

#include <algorithm>

#include "verbs/soft/port/references.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"

namespace fairlead::soft::referring {
namespace {

constexpr std::size_t kWorthIt = 8 << 10;  // of a longer message

std::size_t reach(const Qp& qp, std::size_t message) noexcept {
  References* const references = qp.route.references;
  return references == nullptr ? 0 : references->reach(qp.route, qp.attr.dest_qp_num, message);
}

}  // namespace

bool possible(const Qp& qp, std::size_t message) noexcept { return reach(qp, message) != 0; }

bool expected(const Qp& qp, std::size_t message) noexcept {
  References* const references = qp.route.references;
  return references != nullptr && references->fetches(qp.route, qp.attr.dest_qp_num, message / kAnswers);
}

std::span<const std::byte> together(const Qp& qp, std::span<const std::byte> piece, std::size_t message,
                                    std::size_t left, std::uint32_t most) noexcept {
  if (piece.empty() || qp.domain.regions.is_nothing(piece.data())) return {};
  const std::size_t bytes = std::min({piece.size(), left, reach(qp, message), std::size_t{most} * qp.mtu});
  const std::size_t whole = bytes == left ? bytes : bytes / qp.mtu * qp.mtu;
  return piece.first(whole < std::min(message, kWorthIt) ? 0 : whole);
}

}  // namespace fairlead::soft::referring
