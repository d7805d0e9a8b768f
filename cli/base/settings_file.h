// A file of settings, as --config names it: a line "name = value" for each, with the names of the flags without their
// dashes. Lines that begin with '#' are comments; blanks around a name and a value do not count. What a name may be and
// what a value, the command says (Args). Threads: pure functions.
// Errors: kInvalidArgument, with the file and the line; those of the system.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::cli {

inline constexpr std::size_t kMaxSettingsBytes = std::size_t{1} << 20;  // of a file

struct Setting {
  std::string name, value;
  std::size_t line = 0;  // from 1
};

/// In the order of their lines. `path` is for messages. A name that stands twice is an error, which names both lines.
Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path);
Result<std::vector<Setting>> load_settings(const std::string& path);

/// The file that the last --config, or else FAIRLEAD_CONFIG, names. A variable that is empty is as one that is not
/// there.
[[nodiscard]] std::optional<std::string> settings_path(std::span<const char* const> words);

/// All of a small file. Errors: those of the system; kInvalidArgument (more than `most` bytes).
Result<std::string> read_small_file(const std::string& path, std::size_t most);

}  // namespace fairlead::cli
