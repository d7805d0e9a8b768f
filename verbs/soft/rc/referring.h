// Which packets of a message leave as one that refers to their payload (port/references.h): of a long message, for the
// first time, what of it lies in one piece.
//
// Threads: under the domain's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fairlead::soft {
class Qp;
struct SendWqe;
}  // namespace fairlead::soft

namespace fairlead::soft::referring {

/// An answer to a READ is worth it from so many times the length of a request on: who copies it has to ask as well.
inline constexpr std::size_t kAnswers = 4;

/// Whether packets of a request of so many bytes may refer, as things stand.
[[nodiscard]] bool possible(const Qp& qp, std::size_t message) noexcept;

/// Whether packets of the answer to a READ of so many bytes are likely to.
[[nodiscard]] bool expected(const Qp& qp, std::size_t message) noexcept;

/// The payload of the packets that leave as one: the beginning of `piece`, the next of `left` bytes of a request of
/// `message` bytes, as much as `most` packets carry. Empty: it is not worth it, or one packet is to carry what several
/// pieces have.
[[nodiscard]] std::span<const std::byte> together(const Qp& qp, std::span<const std::byte> piece, std::size_t message,
                                                  std::size_t left, std::uint32_t most) noexcept;

}  // namespace fairlead::soft::referring
