#include "base/system/system_files.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace fairlead {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

std::optional<std::uint64_t> leading_number(std::string_view text) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string> split_blanks(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t begin = text.find_first_not_of(kBlanks); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

bool SystemFiles::exists(std::string_view path) const { return ::access(at(path).c_str(), F_OK) == 0; }

bool SystemFiles::usable(std::string_view path) const { return ::access(at(path).c_str(), R_OK | W_OK) == 0; }

bool SystemFiles::each_line(std::string_view path, const std::function<bool(std::string_view line)>& take) const {
  std::ifstream file(at(path));
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    if (!take(line)) break;
  }
  return true;
}

std::optional<std::string> SystemFiles::line(std::string_view path) const {
  std::string first;
  each_line(path, [&first](std::string_view line) {
    first = trimmed(line);
    return false;
  });
  if (first.empty()) return std::nullopt;
  return first;
}

std::optional<std::uint64_t> SystemFiles::number(std::string_view path) const {
  return leading_number(line(path).value_or(""));
}

std::optional<std::string> SystemFiles::field(std::string_view path, std::string_view name) const {
  std::optional<std::string> value;
  each_line(path, [&value, name](std::string_view line) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') return true;
    value = trimmed(line.substr(name.size() + 1));
    return false;
  });
  return value;
}

std::string SystemFiles::bytes(std::string_view path, std::size_t most) const {
  std::ifstream file(at(path), std::ios::binary);
  std::string content(most, '\0');
  file.read(content.data(), static_cast<std::streamsize>(most));
  content.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return content;
}

std::vector<std::string> SystemFiles::list(std::string_view folder) const {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(at(folder), failed), end; !failed && entry != end; entry.increment(failed)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string SystemFiles::link_name(std::string_view path) const {
  std::error_code failed;
  const fs::path target = fs::read_symlink(at(path), failed);
  return failed ? std::string() : target.filename().string();
}

}  // namespace fairlead
