// Which of a peer's places a session connects to: they are dialed in order, each a head start before the next, or at
// once when those before it have failed; the first that answers is taken, and the others are let go.
//
// Pure: it says which to dial, and is told what becomes of them. Source: RFC 8305 (happy eyeballs), section 5. Threads:
// the driver.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datapath/lane/lane.h"
#include "datapath/session/places.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

class Dialer {
 public:
  static constexpr std::chrono::milliseconds kHeadStart{250};  // less, if there are many for little time

  /// Anew. `places`: the best first; `deadline` is for all of them.
  void begin(std::vector<Place> places, Clock::time_point now, Clock::time_point deadline);
  /// The next to be dialed now, which is under way from then on. Nothing: none is due, or none is left.
  [[nodiscard]] std::optional<std::size_t> next(Clock::time_point now) noexcept;
  [[nodiscard]] const Place& place(std::size_t which) const noexcept { return dialed_[which].place; }
  /// It does not answer, or what answered there is of no use.
  void failed(std::size_t which, const Status& why);
  /// It answered: the others that are under way are let go, and may be dialed again.
  void answered(std::size_t which) noexcept;
  /// Whether one is left that has not failed, but for this one.
  [[nodiscard]] bool has_other(std::size_t which) const noexcept;
  /// All have failed.
  [[nodiscard]] bool is_over() const noexcept;
  /// How long the one that answered may take to greet: its share of the time that is left.
  [[nodiscard]] Clock::time_point greets_until(Clock::time_point now) const noexcept;
  /// What failed() was told, with the places if there are several. kNotFound: nobody listens at any of them.
  [[nodiscard]] Status failure() const;

 private:
  enum class State : std::uint8_t { kWaits, kUnderWay, kFailed };
  struct Dialed {
    Place place;
    State state = State::kWaits;
    Status why;
  };
  [[nodiscard]] std::size_t count(State state) const noexcept;

  std::vector<Dialed> dialed_;
  Clock::duration head_start_{};
  Clock::time_point begun_at_{}, deadline_{};
  Code code_ = Code::kNotFound;  // of the last that says more than that nobody listens
};

}  // namespace fairlead::datapath
