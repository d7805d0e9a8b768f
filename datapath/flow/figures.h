// What paths were measured to carry, and whether one is better than another: what the choice by measurement knows.
//
// Kept for a transport of ours, a transport of the peer's and the host where the peer is: what one session measured,
// the next need not. Of each the last two figures are kept: another way must have been better by kFactor in both than
// the one in use ever was in its own, so that chance, or a moment's load, moves nobody. No time but what is given.
// Threads: the driver of the lane that owns it.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "datapath/lane/lane.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath {

/// Of a path: how long a small write takes to be acknowledged, and how fast large ones go.
struct Figure {
  Clock::duration round_trip{};
  double rate = 0;  // bytes per second
};
/// "23 us, 1.2 GB/s".
[[nodiscard]] std::string to_string(const Figure& figure);
/// What a transfer of a class costs by it: of commands the round trip; of bulk that and a MiB.
[[nodiscard]] Clock::duration cost(const Figure& figure, TrafficClass traffic) noexcept;

class Figures {
 public:
  static constexpr double kFactor = 1.25;
  static constexpr std::chrono::minutes kFresh{5};
  static constexpr std::chrono::seconds kAgain{1};  // what looked better once is measured again so soon
  static constexpr std::size_t kMost = 1024;        // ways; one more takes the place of the oldest

  struct Way {
    std::string transport;           // ours
    std::size_t peer_transport = 0;  // theirs, by its place in their offers
    std::string host;                // where they are
    auto operator<=>(const Way&) const = default;
  };

  void add(const Way& way, const Figure& figure, Clock::time_point now);
  /// The last; nothing: it was not measured.
  [[nodiscard]] std::optional<Figure> last(const Way& way) const;
  /// It was twice in a row better than `in_use` was.
  [[nodiscard]] bool better(const Way& way, const Way& in_use, TrafficClass traffic) const;
  /// It is to be measured, beside `in_use` or because it is that.
  [[nodiscard]] bool is_due(const Way& way, const Way& in_use, TrafficClass traffic, Clock::time_point now) const;

 private:
  struct Known {
    Figure last;
    std::optional<Figure> before;
    Clock::time_point at{};
  };
  [[nodiscard]] const Known* find(const Way& way) const;
  [[nodiscard]] bool beats(const Figure& figure, const Known& in_use, TrafficClass traffic) const noexcept;

  std::map<Way, Known> known_;
};

}  // namespace fairlead::datapath
