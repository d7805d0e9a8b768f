// Where the loader looks for a library that this program asks for by name. Threads: any.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace fairlead {

/// LD_LIBRARY_PATH, the program's own RUNPATH and the folders that are built in, in this order; none where that cannot
/// be told. What ld.so.cache knows beyond is not among them.
[[nodiscard]] inline std::vector<std::string> loader_search_folders() {
  void* const program = ::dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size{};
  if (program == nullptr || ::dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  const std::unique_ptr<void, decltype(&std::free)> memory(std::calloc(1, size.dls_size), &std::free);
  if (!memory) return {};
  auto* paths = static_cast<Dl_serinfo*>(memory.get());
  *paths = size;
  if (::dlinfo(program, RTLD_DI_SERINFO, paths) != 0) return {};
  std::vector<std::string> folders;
  for (unsigned i = 0; i < paths->dls_cnt; ++i) folders.emplace_back(paths->dls_serpath[i].dls_name);
  return folders;
}

}  // namespace fairlead
