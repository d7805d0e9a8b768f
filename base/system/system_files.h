// Small files of /proc and /sys, read below a root that a test may set.
//
// What cannot be read is absent: sysfs refuses to read much that it lists (the speed of a link that is down), and a
// container shows less than its host has. Paths are absolute ("/proc/meminfo"). Threads: a value without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairlead {

class SystemFiles {
 public:
  /// `root`: a folder that stands for "/"; "" is this machine.
  explicit SystemFiles(std::string root = {}) : root_(std::move(root)) {}

  [[nodiscard]] const std::string& root() const noexcept { return root_; }
  [[nodiscard]] bool exists(std::string_view path) const;
  /// Whether this user may read and write it.
  [[nodiscard]] bool usable(std::string_view path) const;
  /// The first line, without blanks around it. nullopt: it cannot be read, or is empty.
  [[nodiscard]] std::optional<std::string> line(std::string_view path) const;
  /// The number that the first line begins with. nullopt: it cannot be read, or begins with none ("max", "-1").
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view path) const;
  /// Calls `take` with every line, until that gives false. Gives whether the file could be opened.
  bool each_line(std::string_view path, const std::function<bool(std::string_view line)>& take) const;
  /// What follows "NAME:" in a file of such lines (/proc/meminfo, /proc/self/status), without blanks around it.
  [[nodiscard]] std::optional<std::string> field(std::string_view path, std::string_view name) const;
  /// The first `most` bytes; fewer where the file is shorter or says no more to this user.
  [[nodiscard]] std::string bytes(std::string_view path, std::size_t most) const;
  /// Names in a folder, sorted; of one that cannot be read none.
  [[nodiscard]] std::vector<std::string> list(std::string_view folder) const;
  /// The last name of what a symbolic link leads to: a device's driver. Empty where there is no such link.
  [[nodiscard]] std::string link_name(std::string_view path) const;

 private:
  [[nodiscard]] std::string at(std::string_view path) const { return root_ + std::string(path); }

  std::string root_;
};

/// The unsigned number that `text` begins with, after blanks.
[[nodiscard]] std::optional<std::uint64_t> leading_number(std::string_view text);
/// `text` in words, between blanks and tabs.
[[nodiscard]] std::vector<std::string> split_blanks(std::string_view text);

}  // namespace fairlead
