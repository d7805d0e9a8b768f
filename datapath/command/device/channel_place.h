// Which of a session's channels one is, and on which of its devices it runs. A value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairlead::datapath::command {

class ChannelPlace {
 public:
  explicit ChannelPlace(std::uint16_t number) noexcept : number_(number) {}

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }
  /// Before its first command: of which of the session's devices it is. `late`: of one that works by itself, so that
  /// commands are complete later than they are executed.
  void belongs_to(std::size_t device, bool late) noexcept {
    device_ = device;
    late_ = late;
  }
  [[nodiscard]] std::size_t device() const noexcept { return device_; }
  [[nodiscard]] bool is_late() const noexcept { return late_; }

 private:
  std::uint16_t number_;
  std::size_t device_ = 0;
  bool late_ = false;
};

}  // namespace fairlead::datapath::command
