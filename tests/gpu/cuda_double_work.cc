// The part of the double that runs programs: contexts, device memory, modules, kernels, and streams beside each other.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/gpu/cuda_double.h"
#include "tests/gpu/handle_numbers.h"

namespace fairlead::gpu::testing {
namespace {

std::size_t aligned(std::size_t at, std::size_t bytes) {
  const std::size_t alignment = std::min<std::size_t>(bytes, 8);
  return (at + alignment - 1) / alignment * alignment;
}

/// A session's memory is cleared as a whole and hardly used: to take its pages away is to clear them.
void set(std::byte* at, unsigned char value, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t before = std::min(bytes, -reinterpret_cast<std::uintptr_t>(at) % kPage);
  const std::size_t whole = (bytes - before) / kPage * kPage;
  if (value != 0 || whole == 0 || ::madvise(at + before, whole, MADV_REMOVE) != 0) {
    std::memset(at, value, bytes);
    return;
  }
  std::memset(at, 0, before);
  std::memset(at + before + whole, 0, bytes - before - whole);
}

constexpr std::uint64_t kFirstContext = 0x10000;
constexpr std::size_t kGarbage = std::size_t{1} << 20;  // of new memory: it is never zeros

}  // namespace

struct CudaDouble::WorkCalls {
  static CudaDouble& self() { return CudaDouble::self(); }
  static CuResult enter(const char* call, bool needs_context = true) { return self().enter(call, needs_context); }

  // --- contexts
  static CuResult context_create(CuContext* context, unsigned, CuDevice) {
    const CuResult result = enter("context_create", false);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    *context = handle_of<CuContext>(kFirstContext + ++self().next_);
    self().contexts_[*context] = {};
    stack().push_back(*context);
    return result;
  }
  static CuResult context_destroy(CuContext context) {
    const CuResult result = enter("context_destroy", false);
    CudaDouble& own = self();
    std::unique_lock lock(own.mutex_);
    if (!own.contexts_.contains(context)) {
      own.violations_.push_back("a context is destroyed twice");
      return CuResult::kInvalidContext;
    }
    own.changed_.wait(lock, [&] { return !is_busy(context); });
    for (auto each = own.owners_.begin(); each != own.owners_.end();) {
      if (each->second != context) {
        ++each;
        continue;
      }
      const std::uint64_t object = each->first;
      each = own.owners_.erase(each);
      ++own.orphans_;
      own.streams_.erase(object);
      own.events_.erase(object);
      own.tickets_.erase(object);
      own.modules_.erase(object);
      own.execs_.erase(object);
      if (const auto pinned = own.pinned_.find(handle_of<void*>(object)); pinned != own.pinned_.end()) {
        ::munmap(pinned->first, pinned->second);
        own.pinned_.erase(pinned);
      }
      give_back(object);
    }
    own.contexts_.erase(context);
    std::erase(stack(), context);
    return result;
  }
  static CuResult context_synchronize() {
    const CuResult result = enter("context_synchronize");
    if (result != CuResult::kSuccess) return result;
    std::unique_lock lock(self().mutex_);
    self().changed_.wait(lock, [] { return !is_busy(stack().back()); });
    return self().contexts_[stack().back()].lost;
  }
  static bool is_busy(CuContext context) {
    return std::ranges::any_of(self().streams_, [context](const auto& each) {
      const auto owner = self().owners_.find(each.first);
      return each.second != 0 && owner != self().owners_.end() && owner->second == context;
    });
  }

  // --- memory
  static CuResult memory_alloc(CuAddress* memory, std::size_t bytes) {
    const CuResult result = enter("memory_alloc");
    if (result != CuResult::kSuccess) return result;
    CudaDouble& own = self();
    const std::lock_guard lock(own.mutex_);
    if (bytes == 0) return CuResult::kInvalidValue;
    if (bytes > own.features_.memory - own.given_bytes_) return CuResult::kOutOfMemory;
    const auto again = std::ranges::find_if(
        own.returned_, [bytes](const Mapping& each) { return each.bytes >= bytes && each.bytes < bytes + kBlock; });
    Mapping mapping;
    if (again != own.returned_.end()) {
      mapping = *again;
      own.returned_.erase(again);
    } else {
      mapping = own.map(bytes, 0, false);
      std::memset(mapping.shadow, 0xa5, std::min(bytes, kGarbage));
    }
    *memory = number_of(mapping.device);
    own.given_[*memory] = mapping;
    own.given_bytes_ += bytes;
    own.allocations_[*memory] = {.bytes = bytes};
    own.own(*memory);
    return result;
  }
  static CuResult memory_free(CuAddress memory) {
    const CuResult result = enter("memory_free");
    const std::lock_guard lock(self().mutex_);
    if (!give_back(memory)) self().violations_.push_back("device memory is freed that is none");
    self().owners_.erase(memory);
    return result;
  }
  static bool give_back(CuAddress memory) {
    CudaDouble& own = self();
    const auto given = own.given_.find(memory);
    if (given == own.given_.end()) return false;
    own.given_bytes_ -= own.allocations_[memory].bytes;
    own.allocations_.erase(memory);
    own.returned_.push_back(given->second);
    own.given_.erase(given);
    return true;
  }
  /// Both are the device's, at the call and when it happens.
  static CuResult copy_within(CuAddress to, CuAddress from, std::size_t bytes, CuStream stream) {
    const CuResult result = enter("copy_within");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    if (std::max(to, from) - std::min(to, from) < bytes) {
      self().violations_.push_back("a copy whose source and destination overlap");
    }
    const CuContext context = stack().back();
    self().put(stream, [=] {
      const std::lock_guard inner(self().mutex_);
      std::byte *const target = self().memory_of(context, to, bytes), *const source =
                                                                          self().memory_of(context, from, bytes);
      if (target == nullptr || source == nullptr) return CuResult::kIllegalAddress;
      std::memmove(target, source, bytes);
      return CuResult::kSuccess;
    });
    return result;
  }
  static CuResult fill(CuAddress to, unsigned char value, std::size_t bytes, CuStream stream) {
    const CuResult result = enter("fill");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const CuContext context = stack().back();
    if (self().memory_of(context, to, bytes) == nullptr) return CuResult::kInvalidValue;
    if (stream == nullptr) {
      set(self().memory_of(context, to, bytes), value, bytes);
      return result;
    }
    self().put(stream, [=] {
      const std::lock_guard inner(self().mutex_);
      std::byte* const target = self().memory_of(context, to, bytes);
      if (target == nullptr) return CuResult::kIllegalAddress;
      set(target, value, bytes);
      return CuResult::kSuccess;
    });
    return result;
  }
  static CuResult stream_wait(CuStream stream, CuEvent event, unsigned) {
    const CuResult result = enter("stream_wait");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    self().forbid_capture("stream_wait", stream);
    ++self().streams_[number_of(stream)];
    self().queue_.push_back({.stream = stream, .awaits = self().tickets_[number_of(event)], .context = stack().back()});
    self().changed_.notify_all();
    return result;
  }

  // --- programs
  static CuResult module_load(CuModule* module, const void* image, unsigned options, int* names, void** values) {
    const CuResult result = enter("module_load");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto found = self().images_.find(static_cast<const char*>(image));
    if (found == self().images_.end()) {
      for (unsigned i = 0; i < options; ++i) {
        if (names[i] == kJitErrorLog) std::strcpy(static_cast<char*>(values[i]), "ptxas: a syntax error");
      }
      return *static_cast<const char*>(image) == '.' ? CuResult::kInvalidPtx : CuResult::kInvalidImage;
    }
    const std::uint64_t number = ++self().next_;
    self().modules_[number] = {&found->second};
    self().own(number);
    *module = handle_of<CuModule>(number);
    return result;
  }
  static CuResult module_unload(CuModule module) {
    const CuResult result = enter("module_unload");
    const std::lock_guard lock(self().mutex_);
    self().owners_.erase(number_of(module));
    if (self().modules_.erase(number_of(module)) == 0) self().violations_.push_back("a module is unloaded twice");
    return result;
  }
  static CuResult module_function(CuFunction* function, CuModule module, const char* name) {
    const CuResult result = enter("module_function");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto found = self().modules_.find(number_of(module));
    if (found == self().modules_.end()) return CuResult::kInvalidHandle;
    for (Kernel& kernel : *found->second.kernels) {
      if (kernel.name != name) continue;
      const std::uint64_t number = ++self().next_;
      self().functions_[number] = &kernel;
      *function = handle_of<CuFunction>(number);
      return result;
    }
    return CuResult::kNotFound;
  }
  static CuResult function_parameter(CuFunction function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
    const CuResult result = enter("function_parameter");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const std::vector<std::size_t>& parameters = self().functions_.at(number_of(function))->parameters;
    if (index >= parameters.size()) return CuResult::kInvalidValue;
    std::size_t at = 0;
    for (std::size_t i = 0; i <= index; ++i) {
      *offset = aligned(at, parameters[i]);
      at = *offset + parameters[i];
    }
    *bytes = parameters[index];
    return result;
  }
  static CuResult launch(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters,
                         void** extra) {
    const CuResult result = enter("launch");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const CuLaunchNode node{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters,
                            extra};
    std::function<CuResult()> run;
    const CuResult made = make_launch(node, run);
    if (made == CuResult::kSuccess) self().put(stream, std::move(run), self().functions_.at(number_of(function)));
    return made;
  }
  /// What it does on the device. Rejected, and nothing more comes of it: an error.
  static CuResult make_launch(const CuLaunchNode& node, std::function<CuResult()>& run) {
    const Kernel* const kernel = self().functions_.at(number_of(node.function));
    const auto& [x, y, z] = node.block;
    const bool has_grid = node.grid[0] != 0 && node.grid[1] != 0 && node.grid[2] != 0;
    if (!has_grid || x == 0 || y == 0 || z == 0 || z > 64 || x * y * z > 1024 || node.shared_bytes > 48 << 10 ||
        node.parameters != nullptr) {
      return CuResult::kInvalidValue;
    }
    std::size_t expected = 0;
    for (const std::size_t bytes : kernel->parameters) expected = aligned(expected, bytes) + bytes;
    std::size_t given = 0;
    const std::byte* block = nullptr;
    for (void** extra = node.extra; extra != nullptr && *extra != nullptr; extra += 2) {
      if (number_of(extra[0]) == kLaunchParameters) block = static_cast<const std::byte*>(extra[1]);
      if (number_of(extra[0]) == kLaunchParameterBytes) given = *static_cast<const std::size_t*>(extra[1]);
    }
    if (given != expected) return CuResult::kInvalidValue;
    const CuContext context = stack().back();
    run = [kernel, context, node, bytes = std::vector<std::byte>(block, block + given)] {
      const Launched launched{{node.grid[0], node.grid[1], node.grid[2]},
                              {node.block[0], node.block[1], node.block[2]},
                              bytes,
                              [context](CuAddress at, std::size_t length) {
                                const std::lock_guard inner(self().mutex_);
                                return self().memory_of(context, at, length);
                              }};
      return kernel->run(launched);
    };
    return CuResult::kSuccess;
  }

  // --- graphs
  static CuResult capture_begin(CuStream stream, int mode) {
    const CuResult result = enter("capture_begin");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    if (mode != kCaptureRelaxed) self().violations_.push_back("a capture that other threads' calls would end");
    const auto at = self().streams_.find(number_of(stream));
    if (at == self().streams_.end() || at->second != 0 || self().captures_.contains(at->first)) {
      return CuResult::kInvalidValue;
    }
    self().captures_[at->first] = {{}, stack().back()};
    return result;
  }
  static CuResult capture_info(CuStream stream, int* status, unsigned long long* id, CuGraph* graph,
                               const CuGraphNode** last, std::size_t* count) {
    const CuResult result = enter("capture_info");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto at = self().captures_.find(number_of(stream));
    *status = at != self().captures_.end() ? 1 : 0;
    if (at == self().captures_.end()) return result;
    *id = 1;
    *graph = nullptr;
    *count = at->second.nodes.empty() ? 0 : 1;
    if (*count != 0) *last = &at->second.nodes.back().handle;
    return result;
  }
  static CuResult graph_exec_set_launch(CuGraphExec exec, CuGraphNode node, const CuLaunchNode* launch) {
    const CuResult result = enter("graph_exec_set_launch");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto found = self().execs_.find(number_of(exec));
    if (found == self().execs_.end()) return CuResult::kInvalidValue;
    const auto has = [node](const auto& graph) {
      return std::ranges::any_of(graph.second->nodes, [node](const Node& each) { return each.handle == node; });
    };
    if (std::ranges::none_of(self().graphs_, has)) {
      self().violations_.push_back("a node of a graph that was destroyed is used");
      return CuResult::kInvalidValue;
    }
    Graph changed = *found->second;
    const auto at = std::ranges::find(changed.nodes, node, &Node::handle);
    if (at == changed.nodes.end() || at->kernel == nullptr) return CuResult::kInvalidValue;
    std::function<CuResult()> run;
    if (const CuResult made = make_launch(*launch, run); made != CuResult::kSuccess) return made;
    at->call = std::move(run);
    found->second = std::make_shared<const Graph>(std::move(changed));  // what was launched has the other
    return result;
  }
  /// The capture has ended also where this fails.
  static CuResult capture_end(CuStream stream, CuGraph* graph) {
    const CuResult result = enter("capture_end");
    const std::lock_guard lock(self().mutex_);
    auto captured = self().captures_.extract(number_of(stream));
    if (result != CuResult::kSuccess) return result;
    if (captured.empty()) return CuResult::kInvalidValue;
    const std::uint64_t number = ++self().next_;
    self().graphs_[number] = std::make_shared<const Graph>(std::move(captured.mapped()));
    *graph = handle_of<CuGraph>(number);
    return result;
  }
  /// A graph is of no context: nobody frees it but this.
  static CuResult graph_destroy(CuGraph graph) {
    const CuResult result = enter("graph_destroy", false);
    const std::lock_guard lock(self().mutex_);
    if (self().graphs_.erase(number_of(graph)) == 0) self().violations_.push_back("a graph is destroyed twice");
    return result;
  }
  static CuResult graph_instantiate(CuGraphExec* exec, CuGraph graph, unsigned long long) {
    const CuResult result = enter("graph_instantiate");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto found = self().graphs_.find(number_of(graph));
    if (found == self().graphs_.end()) return CuResult::kInvalidValue;
    const std::uint64_t number = ++self().next_;
    self().execs_[number] = found->second;
    self().own(number);
    *exec = handle_of<CuGraphExec>(number);
    return result;
  }
  static CuResult graph_exec_destroy(CuGraphExec exec) {
    const CuResult result = enter("graph_exec_destroy");
    const std::lock_guard lock(self().mutex_);
    self().owners_.erase(number_of(exec));
    if (self().execs_.erase(number_of(exec)) == 0) self().violations_.push_back("a graph is destroyed twice");
    return result;
  }
  static CuResult graph_launch(CuGraphExec exec, CuStream stream) {
    const CuResult result = enter("graph_launch");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto found = self().execs_.find(number_of(exec));
    if (found == self().execs_.end()) {
      self().violations_.push_back("a graph is launched that is none");
      return CuResult::kInvalidValue;
    }
    if (found->second->context != stack().back()) return CuResult::kInvalidContext;
    self().forbid_capture("graph_launch", stream);
    // What runs of it goes on though it is destroyed.
    self().put(stream, [graph = found->second] {
      for (const Node& node : graph->nodes) {
        if (const CuResult each = node.call(); each != CuResult::kSuccess) return each;
      }
      return CuResult::kSuccess;
    });
    return result;
  }
};

void CudaDouble::add_work_calls(DriverApi& table) {
  table.context_create = WorkCalls::context_create;
  table.context_destroy = WorkCalls::context_destroy;
  table.context_synchronize = WorkCalls::context_synchronize;
  table.memory_alloc = WorkCalls::memory_alloc;
  table.memory_free = WorkCalls::memory_free;
  table.copy_within = WorkCalls::copy_within;
  table.fill = WorkCalls::fill;
  table.stream_wait = WorkCalls::stream_wait;
  table.module_load = WorkCalls::module_load;
  table.module_unload = WorkCalls::module_unload;
  table.module_function = WorkCalls::module_function;
  table.function_parameter = WorkCalls::function_parameter;
  table.launch = WorkCalls::launch;
  table.capture_begin = WorkCalls::capture_begin;
  table.capture_end = WorkCalls::capture_end;
  table.graph_destroy = WorkCalls::graph_destroy;
  table.graph_instantiate = WorkCalls::graph_instantiate;
  table.graph_exec_destroy = WorkCalls::graph_exec_destroy;
  table.graph_launch = WorkCalls::graph_launch;
  table.capture_info = WorkCalls::capture_info;
  table.graph_exec_set_launch = WorkCalls::graph_exec_set_launch;
}

void CudaDouble::add_image(const std::string& image, std::vector<Kernel> kernels) {
  const std::lock_guard lock(mutex_);
  images_[image] = std::move(kernels);
}

void CudaDouble::forbid_capture(const char* call, CuStream stream) {
  if (captures_.contains(number_of(stream))) violations_.push_back(std::string(call) + " on a stream that is captured");
}

void CudaDouble::put(CuStream stream, std::function<CuResult()> run, const Kernel* kernel) {
  if (const auto capture = captures_.find(number_of(stream)); capture != captures_.end()) {
    capture->second.nodes.push_back({handle_of<CuGraphNode>(++next_), std::move(run), kernel});
    return;
  }
  ++streams_[number_of(stream)];
  queue_.push_back({.stream = stream, .run = std::move(run), .context = stack().back()});
  changed_.notify_all();
}

/// What happens next: the first of some stream, that waits for nothing.
std::deque<CudaDouble::Work>::iterator CudaDouble::choose() {
  if (held_) return queue_.end();
  std::set<CuStream> seen;
  std::vector<std::deque<Work>::iterator> ready;
  for (auto each = queue_.begin(); each != queue_.end(); ++each) {
    if (!seen.insert(each->stream).second) continue;
    if (each->awaits != 0 && unredeemed_.contains(each->awaits)) continue;
    if (features_.shuffle == 0) return each;
    ready.push_back(each);
  }
  return ready.empty() ? queue_.end() : ready[random_() % ready.size()];
}

/// Of the current context's; one that was there before and is only retained frees what is in it by itself.
void CudaDouble::own(std::uint64_t object) {
  if (contexts_.contains(stack().back())) owners_[object] = stack().back();
}

void CudaDouble::lose(CuContext context, CuResult result) {
  const auto found = contexts_.find(context);
  if (found != contexts_.end() && found->second.lost == CuResult::kSuccess) found->second.lost = result;
}

std::byte* CudaDouble::memory_of(CuContext context, CuAddress at, std::size_t bytes) {
  const auto found = allocation_at(at);
  if (found == allocations_.end()) return nullptr;
  const auto owner = owners_.find(found->first);  // none: a primary context
  const bool is_owner = owner != owners_.end() ? owner->second == context : !contexts_.contains(context);
  const bool is_open = found->second.is_mapped ? found->second.has_access : is_owner;
  const bool is_whole = is_open && bytes <= found->second.bytes && at - found->first <= found->second.bytes - bytes;
  return is_whole ? shadow_of(at, bytes) : nullptr;
}

std::size_t CudaDouble::orphans() const {
  const std::lock_guard lock(mutex_);
  return orphans_;
}

void CudaDouble::fail_call(const std::string& name, std::size_t n, CuResult result) {
  const std::lock_guard lock(mutex_);
  fail_name_ = name;
  fail_in_ = n;
  fail_with_ = result;
  failed_call_.clear();
}

std::size_t CudaDouble::failed_at() const {
  const std::lock_guard lock(mutex_);
  return failed_at_;
}

std::string CudaDouble::failed_call() const {
  const std::lock_guard lock(mutex_);
  return failed_call_;
}

std::size_t CudaDouble::calls_counted() const {
  const std::lock_guard lock(mutex_);
  return counted_;
}

}  // namespace fairlead::gpu::testing
