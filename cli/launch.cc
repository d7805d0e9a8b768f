#include "cli/launch.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/loader/search_folders.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreload = "libfairlead-ibverbs.so";
constexpr const char* kVerbs = "libibverbs.so.1";
constexpr const char* kSystemVerbs = "FAIRLEAD_SYSTEM_IBVERBS";
// These part the paths of LD_PRELOAD and LD_LIBRARY_PATH; what follows a dollar is replaced.
constexpr const char* kNotInLists = " ;:$";
constexpr int kMaxInterpreters = 4;  // as many as the kernel follows

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string before(const std::string& ours, const std::string& theirs) {
  return theirs.empty() ? ours : ours + ":" + theirs;
}

/// What stands at this place of an ELF file; nothing where the file ends before.
template <typename Part>
std::optional<Part> read_at(std::ifstream& file, std::uint64_t offset) {
  Part part{};
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(&part), sizeof(part));
  if (!file) return std::nullopt;
  return part;
}

// Of a library's versions: damaged ones may say anything.
constexpr std::size_t kMostName = 256;
constexpr std::uint32_t kMostVersions = 1000;

std::string text_at(std::ifstream& file, std::uint64_t offset) {
  std::array<char, kMostName> text{};
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.get(text.data(), text.size(), '\0');
  return text.data();
}

/// The names in a section of version definitions, without the library's own (VER_FLG_BASE).
std::vector<std::string> names_in(std::ifstream& file, const Elf64_Shdr& definitions, const Elf64_Shdr& strings) {
  std::vector<std::string> names;
  std::uint64_t at = definitions.sh_offset;
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(definitions.sh_info, kMostVersions); ++i) {
    const auto definition = read_at<Elf64_Verdef>(file, at);
    if (!definition) break;
    const auto name = read_at<Elf64_Verdaux>(file, at + definition->vd_aux);
    if (!name) break;
    if ((definition->vd_flags & VER_FLG_BASE) == 0) names.push_back(text_at(file, strings.sh_offset + name->vda_name));
    at += definition->vd_next;
  }
  return names;
}

/// The versions of symbols that a library defines; none where it is no such file, or does not tell.
std::vector<std::string> symbol_versions(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64) {
    return {};
  }
  const auto section = [&](std::uint32_t index) {
    return read_at<Elf64_Shdr>(file, header->e_shoff + std::uint64_t{index} * header->e_shentsize);
  };
  for (std::uint32_t i = 0; i < header->e_shnum; ++i) {
    const auto definitions = section(i);
    if (!definitions || definitions->sh_type != SHT_GNU_verdef) continue;
    const auto strings = section(definitions->sh_link);
    return strings ? names_in(file, *definitions, *strings) : std::vector<std::string>();
  }
  return {};
}

struct SystemVerbs {
  std::string path;
  bool searched = false;  // it is in a folder that the drop-in looks through (verbs/dropin/real_library.cc)
};

/// What the loader gives a program that asks for libibverbs, as this one is a program too; nothing where that is ours
/// already, or there is none.
std::optional<SystemVerbs> find_system_verbs(const std::string& our_folder) {
  void* library = ::dlopen(kVerbs, RTLD_LAZY | RTLD_LOCAL);
  link_map* map = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return std::nullopt;
  std::error_code ignored;
  const fs::path path = fs::absolute(map->l_name, ignored);
  if (fs::equivalent(path, fs::path(our_folder) / kVerbs, ignored)) return std::nullopt;
  const std::vector<std::string> folders = loader_search_folders();
  return SystemVerbs{path, std::ranges::find(folders, path.parent_path().string()) != folders.end()};
}

/// Versions of the system's libibverbs that ours does not have: a program may ask for them.
std::vector<std::string> versions_beyond(const std::string& ours, const std::string& system) {
  const std::vector<std::string> known = symbol_versions(ours);
  std::vector<std::string> beyond = symbol_versions(system);
  std::erase_if(beyond, [&known](const std::string& each) { return std::ranges::find(known, each) != known.end(); });
  return beyond;
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

Result<DropinLibraries> usable(const DropinLibraries& found) {
  for (const std::string& path : {found.preload, found.folder}) {
    if (path.find_first_of(kNotInLists) == std::string::npos) continue;
    return {Code::kInvalidArgument,
            fmt::format("{} cannot be preloaded: the loader takes no path with a blank, ':', ';' or '$' in it; move "
                        "Fairlead to another folder",
                        path)};
  }
  return found;
}

}  // namespace

Result<DropinLibraries> find_dropin(const std::string& folder) {
  const fs::path bin(folder);
  std::vector<std::string> tried;
  for (const fs::path& lib : {bin / ".." / "lib", bin / ".." / FAIRLEAD_INSTALL_LIBDIR}) {
    std::error_code ignored;
    const DropinLibraries found{fs::weakly_canonical(lib / kPreload, ignored),
                                fs::weakly_canonical(lib / "fairlead", ignored)};
    const bool complete = fs::exists(found.preload, ignored) && fs::exists(fs::path(found.folder) / kVerbs, ignored);
    if (complete) return usable(found);
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
  std::vector<std::pair<std::string, std::string>> variables{
      {"LD_PRELOAD", before(libraries.preload, from_environment("LD_PRELOAD"))}};
  const auto system = find_system_verbs(libraries.folder);
  const std::string ours = (fs::path(libraries.folder) / kVerbs).string();
  const auto beyond = system ? versions_beyond(ours, system->path) : std::vector<std::string>();
  if (!beyond.empty()) {
    log(LogLevel::kWarning,
        fmt::format("{} has {}, which {} has not: the program gets it as it is. Programs that are linked to libibverbs "
                    "see softroce all the same; those that load it by name (NCCL) do not",
                    system->path, fmt::join(beyond, ", "), ours));
    return variables;
  }
  variables.emplace_back("LD_LIBRARY_PATH", before(libraries.folder, from_environment("LD_LIBRARY_PATH")));
  if (system && !system->searched && from_environment(kSystemVerbs).empty()) {
    variables.emplace_back(kSystemVerbs, system->path);
  }
  return variables;
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
