// Whose turn at a device it is: members that want one, and how long the turns of each took, decide by a policy.
//
// Pure values: no clock and no threads, the caller says what time it is. What the policies are: Sharing in
// fairlead/command_service.h; they are those of NVIDIA's vGPU scheduler, over the time that turns were measured to
// take.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

class Shares {
 public:
  using Clock = std::chrono::steady_clock;
  using Member = std::uint64_t;

  /// Not Sharing::kFree.
  explicit Shares(fairlead::command::Sharing sharing) noexcept : sharing_(sharing) {}

  /// `share`: of the time, for kFixed; above 0.
  Member join(double share, Clock::time_point now);
  void set_share(Member member, double share, Clock::time_point now);

  /// It has something to run, and then until rest().
  void want(Member member);
  void rest(Member member);
  /// The member took so long.
  void ran(Member member, Clock::duration took);

  struct Choice {
    std::optional<Member> member;
    /// Nobody's turn: when to ask again. max(): not before somebody wants one.
    Clock::time_point again = Clock::time_point::max();
  };
  /// Whose turn it is: it is then behind those that it was chosen before.
  [[nodiscard]] Choice next(Clock::time_point now);

 private:
  struct State {
    double share = 1;
    bool wants = false;
    std::uint64_t turn = 0;       // when it had its last one
    double served = 0;            // kEqual: seconds, and what it may not catch up on
    double credit = 0;            // kFixed: seconds that it may run
    Clock::time_point counted{};  // up to when that is
  };
  void accrue(State& state, Clock::time_point now) const noexcept;
  void forget_excess() noexcept;
  [[nodiscard]] bool goes_before(const State& one, const State& other) const noexcept;

  const fairlead::command::Sharing sharing_;
  std::map<Member, State> members_;
  Member next_member_ = 1;
  std::uint64_t turns_ = 0;
  double served_ = 0;  // kEqual: where the one with the latest turn stood
};

}  // namespace fairlead::datapath::command
