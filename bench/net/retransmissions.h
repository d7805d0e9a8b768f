// What a transport of this process had to send again.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fairlead/engine.h"

namespace fairlead::bench {

/// Since they began. tcp: segments, of all connections of the engine, which counts them each second. softroce: packets
/// repeated alone and requests begun again, of all devices of this process. nullopt: others do not say.
[[nodiscard]] std::optional<std::uint64_t> retransmissions(const Engine& engine, std::string_view transport);
/// Whether they are of the whole process and not of one engine.
[[nodiscard]] bool counted_by_process(std::string_view transport) noexcept;

}  // namespace fairlead::bench
