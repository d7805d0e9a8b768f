// Which address of a host a session connects to: one after the other, each with its share of the time that is left.
//
// Pure. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "datapath/lane/lane.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

class Dialer {
 public:
  /// Anew. `addresses` are numeric, in the resolver's order of preference; `deadline` is for all of them.
  void begin(std::vector<std::string> addresses, std::uint16_t port, Clock::time_point deadline) {
    *this = {};
    addresses_ = std::move(addresses);
    port_ = port;
    deadline_ = deadline;
  }
  /// The next address to try. Null: none is left.
  [[nodiscard]] const std::string* next(Clock::time_point now) noexcept;
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Whether the current address has used up its time, and another is left.
  [[nodiscard]] bool is_late(Clock::time_point now) const noexcept {
    return now >= until_ && tried_ < addresses_.size();
  }
  /// The current address does not answer.
  void failed(const Status& why);
  /// What failed() was told, with the addresses if there are several.
  [[nodiscard]] Status failure() const { return {code_, reasons_}; }

 private:
  std::vector<std::string> addresses_;
  std::uint16_t port_ = 0;
  Clock::time_point deadline_{}, until_ = Clock::time_point::max();
  std::size_t tried_ = 0;
  Code code_ = Code::kUnavailable;  // of the last
  std::string reasons_;
};

}  // namespace fairlead::datapath
