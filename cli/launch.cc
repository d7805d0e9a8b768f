#include "cli/launch.h"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fairlead::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreload = "libfairlead-ibverbs.so";
constexpr int kMaxInterpreters = 4;  // as many as the kernel follows

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string before(const std::string& ours, const std::string& theirs) {
  return theirs.empty() ? ours : ours + ":" + theirs;
}

Status cannot(const std::string& path, std::string_view why) {
  return {Code::kUnimplemented, fmt::format("{} {}, so no library can be preloaded into it", path, why)};
}

// The loader drops LD_PRELOAD where a program gains rights by being started (AT_SECURE).
bool gains_rights(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return false;
  if ((facts.st_mode & S_ISUID) != 0 && facts.st_uid != ::getuid()) return true;
  if ((facts.st_mode & S_ISGID) != 0 && facts.st_gid != ::getgid()) return true;
  return ::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

// "#!/usr/bin/env python3" -> "/usr/bin/env"
std::string interpreter_of(std::string_view first_line) {
  std::istringstream words(std::string(first_line.substr(2)));
  std::string interpreter;
  words >> interpreter;
  return interpreter;
}

// A program that the loader starts names the loader (PT_INTERP).
Status check_elf(const std::string& path, std::ifstream& file) {
  Elf64_Ehdr header{};
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!file || header.e_ident[EI_CLASS] != ELFCLASS64) return cannot(path, "is not a 64-bit program");
#if defined(__x86_64__)
  constexpr auto kMachine = EM_X86_64;
#else
  constexpr auto kMachine = EM_AARCH64;
#endif
  if (header.e_machine != kMachine) return cannot(path, "is for another processor");
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * std::uint64_t{header.e_phentsize}));
    file.read(reinterpret_cast<char*>(&segment), sizeof(segment));
    if (!file) break;
    if (segment.p_type == PT_INTERP) return {};
  }
  return cannot(path, "is linked statically");
}

}  // namespace

Result<DropinLibraries> find_dropin(const std::string& folder) {
  const fs::path bin(folder);
  std::vector<std::string> tried;
  for (const fs::path& lib : {bin / ".." / "lib", bin / ".." / FAIRLEAD_INSTALL_LIBDIR}) {
    std::error_code ignored;
    const DropinLibraries found{fs::weakly_canonical(lib / kPreload, ignored),
                                fs::weakly_canonical(lib / "fairlead", ignored)};
    const bool complete =
        fs::exists(found.preload, ignored) && fs::exists(fs::path(found.folder) / "libibverbs.so.1", ignored);
    if (complete) return found;
    tried.push_back(found.preload);
    tried.push_back(found.folder + "/libibverbs.so.1");
  }
  return {Code::kNotFound,
          fmt::format("no {} with fairlead/libibverbs.so.1 beside it; looked for {}; build the targets "
                      "fairlead_ibverbs and fairlead_ibverbs_facade, or install Fairlead whole",
                      kPreload, fmt::join(tried, ", "))};
}

std::string own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

Result<std::string> find_program(const std::string& name) {
  const auto usable = [](const std::string& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    std::error_code ignored;
    if (usable(name)) return name;
    return {Code::kNotFound, fs::exists(name, ignored) ? fmt::format("{} is no executable file", name)
                                                       : fmt::format("there is no program {}", name)};
  }
  const std::string path = from_environment("PATH");
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (usable(candidate)) return candidate;
  }
  return {Code::kNotFound, fmt::format("there is no program {} in PATH ({})", name, path)};
}

Status check_preloadable(const std::string& path) {
  std::string program = path;
  for (int depth = 0; depth < kMaxInterpreters; ++depth) {
    if (gains_rights(program)) {
      return cannot(program, "starts with more rights than its caller (setuid, setgid or file capabilities)");
    }
    std::ifstream file(program, std::ios::binary);
    std::string line(256, '\0');
    file.read(line.data(), static_cast<std::streamsize>(line.size()));
    line.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    file.clear();
    if (line.starts_with(ELFMAG)) return check_elf(program, file);
    if (!line.starts_with("#!")) return {};  // unreadable, or of a kind that only the kernel knows: it will tell
    program = interpreter_of(line.substr(0, line.find('\n')));
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> loader_environment(const DropinLibraries& libraries) {
  return {{"LD_PRELOAD", before(libraries.preload, from_environment("LD_PRELOAD"))},
          {"LD_LIBRARY_PATH", before(libraries.folder, from_environment("LD_LIBRARY_PATH"))}};
}

std::vector<std::string> system_devices() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", ignored)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace fairlead::cli
