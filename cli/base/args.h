// The command line of one subcommand: CLI11 behind a header that costs nothing to include.
//
// Precedence: flag, then environment variable (FAIRLEAD_NAME for --name), then the file of settings where the command
// takes one (settings_file()), then default. A name that is not known, or a value that its setter refuses, is an error
// that says what is legal, for a file with its line; the exit code for it is kUsage.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::cli {

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

/// Takes a value's text. A non-ok Status says what is legal.
using Setter = std::function<Status(std::string_view)>;

class Args {
 public:
  /// `examples` is printed below the help, as it stands.
  Args(std::string command, std::string summary, std::string examples);
  ~Args();
  Args(const Args&) = delete;
  Args& operator=(const Args&) = delete;

  /// "--name" or "--name,--other-name"; `value` is the placeholder in the help ("HOST:PORT"). Of a "FILE" nothing empty
  /// comes to the setter, as of unless_empty().
  void option(const std::string& names, const std::string& value, std::string help, Setter setter);
  void flag(const std::string& names, bool* target, std::string help);
  /// The same, without a variable: where the one of that name means something else to another command. (A file of
  /// settings, which is one command's, may have the option.)
  void option_by_itself(const std::string& names, const std::string& value, std::string help, Setter setter);
  void flag_by_itself(const std::string& names, bool* target, std::string help);
  /// Adds --config FILE: every option and flag of the command can be set there, too. A file is read as a whole: what is
  /// wrong in it is refused, also where a flag says otherwise.
  void settings_file();
  /// In the order of the calls. A positional that is not required keeps its default.
  void positional(const std::string& value, std::string help, Setter setter, bool required = true);

  /// What an error says of a word or a flag that this command does not take, where one such is likely meant for
  /// somebody else: "give the program after '--'".
  void strangers(std::string remedy);

  /// Any number of words, each to the setter; after all others.
  void positionals(const std::string& value, std::string help, Setter setter);

  /// Reads the words that follow the subcommand. nullopt: carry on. Otherwise help or an error was printed and this
  /// is the exit code.
  [[nodiscard]] std::optional<int> parse(std::span<const char* const> words);
  /// Whether the flag stood on the command line. (The environment holds for many commands, and not for every one.)
  [[nodiscard]] bool given(const std::string& name) const;
  /// A rule that spans several flags, checked at the end of parse(): it gives what is wrong, or nothing.
  void rule(std::function<std::string()> wrong);
  /// Prints a usage error and gives kUsage.
  [[nodiscard]] int usage_error(std::string_view message) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Setters for what flags commonly hold. Each names the legal values in its error.
[[nodiscard]] Setter set_text(std::string* target);
/// What `setter` takes, but nothing empty: that would switch off, without a word, what the file of settings names.
[[nodiscard]] Setter unless_empty(Setter setter);
[[nodiscard]] Setter set_choice(std::string* target, std::vector<std::string> legal);
/// "1", "true", "yes" or "on"; "0", "false", "no" or "off": what a flag's environment variable may hold.
[[nodiscard]] Setter set_switch(bool* target);
/// A number from `min` to `max`, both included.
[[nodiscard]] Setter set_number(std::function<void(std::int64_t)> store, std::int64_t min, std::int64_t max);
template <typename T>
[[nodiscard]] Setter set_number(T* target, std::int64_t min, std::int64_t max) {
  return set_number([target](std::int64_t value) { *target = static_cast<T>(value); }, min, max);
}
/// A decimal number of `what` from `min` to `max`, which its error says as it is: "seconds", "a part".
[[nodiscard]] Setter set_decimal(double* target, std::string what, double min, double max);
[[nodiscard]] Setter set_seconds(double* target, double min, double max);
/// "64M"; see bench/base/sizes.h.
[[nodiscard]] Setter set_size(std::uint64_t* target, std::uint64_t min, std::uint64_t max);
/// "HOST:PORT" or ":PORT"; `need_host` refuses the latter, and port 0: no one can be reached there.
[[nodiscard]] Setter set_host_port(std::string* target, bool need_host);
/// "HOST:PORT" to connect to, or several places of one peer with commas between.
[[nodiscard]] Setter set_places(std::string* target);

}  // namespace fairlead::cli
