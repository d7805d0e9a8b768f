// A value that processes share: a page of a memfd. Who has its descriptor may map it, and write there what he likes,
// but not take it from under another's mapping.
//
// Ownership: the page lives as long as somebody maps it. T is made of lock-free atomics. Threads: T's.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <new>
#include <utility>

#include "base/system/shared_memory.h"
#include "base/unique_fd.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

template <typename T>
struct SharedPage {
  std::shared_ptr<T> value;
  UniqueFd fd;

  /// Errors: kResourceExhausted, there is no descriptor or memory to be had.
  static Result<SharedPage> create() {
    Result<UniqueFd> fd = make_shared_memory("fairlead-page", sizeof(T));
    if (!fd) return fd.error();
    Result<SharedPage> page = adopt(*std::move(fd));
    if (page) new (page->value.get()) T();
    return page;
  }
  /// One that another process created.
  static Result<SharedPage> adopt(UniqueFd fd) {
    void* const at = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) return Status(Code::kResourceExhausted, "cannot map a page that processes share");
    return SharedPage{std::shared_ptr<T>(static_cast<T*>(at), [](T* page) { ::munmap(page, sizeof(T)); }),
                      std::move(fd)};
  }
};

}  // namespace fairlead::datapath::command
