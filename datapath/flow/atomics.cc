#include "datapath/flow/atomics.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "base/guarded.h"

namespace fairlead::datapath::atomics {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

std::uint64_t apply(AtomicOp op, std::uint64_t& word, std::uint64_t value, std::uint64_t expected) noexcept {
  const std::atomic_ref<std::uint64_t> shared(word);
  if (op == AtomicOp::kFetchAdd) return shared.fetch_add(value);
  shared.compare_exchange_strong(expected, value);
  return expected;  // what it held, whether or not it was that
}

}  // namespace

std::optional<Outcome> carry_out(const PathMessage& message, const RegionTable::View& regions, std::string& why) {
  const auto op = static_cast<AtomicOp>(message.length);
  const bool known = message.length == static_cast<std::uint32_t>(AtomicOp::kFetchAdd) ||
                     message.length == static_cast<std::uint32_t>(AtomicOp::kCompareSwap);
  if (!known || message.data.size() != kOperandBytes) {
    why = fmt::format("atomic {} of kind {} with {} bytes", message.total, message.length, message.data.size());
    return std::nullopt;
  }
  std::uint64_t operands[2];
  std::memcpy(operands, message.data.data(), sizeof operands);
  Outcome outcome;
  outcome.code = regions.with_bytes(
      message.value, message.offset, kWordBytes, Access::kRemoteAtomic, [&](std::span<std::byte> bytes) {
        if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kWordBytes != 0) return false;
        return attempt(bytes.data(), kWordBytes, [&]() noexcept {
          touch(bytes.data());
          outcome.held = apply(op, *reinterpret_cast<std::uint64_t*>(bytes.data()), operands[0], operands[1]);
        });
      });
  return outcome;
}

void put_operands(std::vector<std::byte>& message, std::uint64_t value, std::uint64_t expected) {
  message.resize(kOperandBytes);
  std::memcpy(message.data(), &value, sizeof value);
  std::memcpy(message.data() + sizeof value, &expected, sizeof expected);
}

}  // namespace fairlead::datapath::atomics
