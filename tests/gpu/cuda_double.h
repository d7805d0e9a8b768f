// A CUDA driver that a test owns: device memory that traps when the CPU touches it, copies that happen later, on a
// thread of the double's, and the pitfalls of real drivers, each of which a test turns on.
//
// Device memory is mapped without any access; what "the device" holds is another mapping of the same pages. Contexts
// are a stack for each thread, as CUDA's are. Kernels are functions of the test's, by image and name. Work on a stream
// happens in order; of several streams in an order that chance decides, where a test asks for that. Every call may be
// told to fail. One double at a time; its driver is the process's while it lives. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpu/driver/driver.h"

namespace fairlead::gpu::testing {

class CudaDouble {
 public:
  static constexpr std::size_t kPage = 65536;  // what an export must begin and end at
  static constexpr std::size_t kBlock = std::size_t{2} << 20;

  struct Features {
    int devices = 1;
    int version = 12040;
    bool dma_buf = true;
    bool gpu_direct = true;
    bool mapping = true;  // cuMemMap and what goes with it
    // Pitfalls.
    bool null_exports = false;                  // an export succeeds and gives no descriptor
    std::size_t largest_export = 0;             // more than that is out of memory, as under an IOMMU; 0: no limit
    bool no_context_of_memory = false;          // the attribute is not to be had, as of a pool's memory
    unsigned shuffle = 0;                       // seed of what chance does with several streams; 0: the order of calls
    std::size_t memory = std::size_t{1} << 30;  // that memory_alloc gives, all together
    int greatest_priority = -5;                 // of streams; the least is 0
  };

  CudaDouble() : CudaDouble(Features{}) {}
  explicit CudaDouble(Features features);
  ~CudaDouble();
  CudaDouble(const CudaDouble&) = delete;
  CudaDouble& operator=(const CudaDouble&) = delete;

  static const DriverApi& api();
  /// Driver::open(api()), which is process_driver() from then on.
  std::shared_ptr<Driver> install();

  // --- memory
  /// An allocation of its own, on device `ordinal`.
  std::span<std::byte> allocate(std::size_t bytes, int ordinal = 0);
  /// Next to each other in one block, as an allocator of small sizes does; each is an allocation to CUDA.
  std::vector<std::span<std::byte>> allocate_together(std::span<const std::size_t> sizes);
  /// One range that is mapped from several handles: cuMemGetAddressRange speaks of one of them at a time.
  std::span<std::byte> map_handles(std::size_t handles, std::size_t bytes_each);
  std::span<std::byte> allocate_managed(std::size_t bytes);
  /// cuMemHostAlloc, as an application would.
  std::span<std::byte> allocate_pinned(std::size_t bytes);
  /// What the device holds at these addresses; no copy is under way.
  [[nodiscard]] std::span<std::byte> shadow(std::span<std::byte> device);
  /// Whether every allocation in the range has SYNC_MEMOPS set.
  [[nodiscard]] bool synchronizes(std::span<std::byte> device);

  // --- kernels
  /// One launch, on the device.
  struct Launched {
    unsigned grid[3], block[3];
    std::span<const std::byte> parameters;
    /// What the device holds there; null: no memory of this context's.
    std::function<std::byte*(CuAddress at, std::size_t bytes)> memory;
  };
  struct Kernel {
    std::string name;
    std::vector<std::size_t> parameters;           // bytes of each; they stand at multiples of that, at most 8
    std::function<CuResult(const Launched&)> run;  // on the device's thread; what is no success loses the context
  };
  /// From now on modules that are loaded from these bytes have these.
  void add_image(const std::string& image, std::vector<Kernel> kernels);

  // --- faults
  /// The call number `n` from now on fails so, whichever it is but one that undoes something; of the sticky kind it
  /// loses the context that is current. Those that destroy something do so all the same.
  void fail_call(std::size_t n, CuResult result) { fail_call("", n, result); }
  /// The same of the calls of that name alone; how many others come between them may be a matter of time.
  void fail_call(const std::string& name, std::size_t n, CuResult result);
  /// The name of the call that did; empty: it has not come.
  [[nodiscard]] std::string failed_call() const;
  /// Which of those that fail_call() counts it was.
  [[nodiscard]] std::size_t failed_at() const;
  /// How many calls there were that fail_call() counts, and their names.
  [[nodiscard]] std::size_t calls_counted() const;
  [[nodiscard]] std::vector<std::string> names_counted() const;
  /// The next call of that name after `skip` others fails so; the name is the member's of DriverApi.
  void fail_next(const std::string& call, CuResult result, std::size_t skip = 0);
  /// The next copy after `skip` others is started, and fails.
  void break_copy(std::size_t skip = 0);
  /// Copies are started and none happens, until let_copy_go().
  void hold_copies();
  void let_copies_go();
  /// Until that many copies wait, at most 60 s. False: they did not come.
  bool wait_for_copies(std::size_t count);

  // --- what was seen
  [[nodiscard]] std::size_t calls(const std::string& name) const;
  [[nodiscard]] std::size_t copies_done() const;
  /// Calls without a context, pointers that are no memory of the device, frees of what is not there, and the like.
  [[nodiscard]] std::vector<std::string> violations() const;
  /// Contexts retained and made, device memory of memory_alloc(), addresses and memory that is mapped, modules, graphs
  /// of both kinds, pinned memory, streams and events that exist.
  [[nodiscard]] std::size_t live_objects() const;
  /// What went with its context, and had not been freed by itself.
  [[nodiscard]] std::size_t orphans() const;
  struct Export {
    CuAddress address = 0;
    std::size_t bytes = 0;
  };
  [[nodiscard]] std::vector<Export> exports() const;
  /// Of the streams that were created with one.
  [[nodiscard]] std::vector<int> priorities() const;
  /// The calling thread's stack of contexts.
  [[nodiscard]] static std::vector<CuContext> context_stack();
  /// A context that is not the primary one.
  [[nodiscard]] CuContext foreign_context() const noexcept;

 private:
  struct Calls;      // the functions of the table,
  struct WorkCalls;  // those of contexts, modules, launches, graphs,
  struct MapCalls;   // and those of memory that is mapped
  struct Mapping {
    std::byte* device = nullptr;
    std::byte* shadow = nullptr;
    std::size_t bytes = 0;
    int ordinal = 0;
    bool managed = false;
  };
  struct Allocation {
    std::size_t bytes = 0;
    int ordinal = 0;
    bool synchronizes = false;
    bool managed = false;
    bool is_mapped = false;  // of no context, and open to all once it has access
    bool has_access = false;
  };
  struct Work {
    CuStream stream = nullptr;
    std::uint64_t event = 0;   // 0: a copy, unless one of the next three
    std::uint64_t ticket = 0;  // of the event's recording
    std::uint64_t awaits = 0;  // the ticket that it waits for
    std::function<CuResult()> run{};
    CuContext context = nullptr;
    bool to_device = false;
    CuAddress device = 0;
    std::byte* host = nullptr;
    std::size_t bytes = 0;
    bool broken = false;
  };
  struct Fault {
    CuResult result = CuResult::kSuccess;
    std::size_t skip = 0;
  };

  struct Context {
    CuResult lost = CuResult::kSuccess;  // what every call gives
  };
  struct Module {
    std::vector<Kernel>* kernels = nullptr;
  };
  /// What was captured, in order. One that can be launched is of the context that it was made in.
  struct Node {
    CuGraphNode handle = nullptr;
    std::function<CuResult()> call;
    const Kernel* kernel = nullptr;  // of a launch
  };
  struct Graph {
    std::vector<Node> nodes;
    CuContext context = nullptr;
  };

  static void add_work_calls(DriverApi& table);
  static CudaDouble& self();
  static std::vector<CuContext>& stack();  // the calling thread's
  /// Under mutex_.
  void put(CuStream stream, std::function<CuResult()> run, const Kernel* kernel = nullptr);
  /// What a captured stream does not take is a violation.
  void forbid_capture(const char* call, CuStream stream);
  [[nodiscard]] std::deque<Work>::iterator choose();
  void own(std::uint64_t object);
  void lose(CuContext context, CuResult result);
  [[nodiscard]] std::byte* memory_of(CuContext context, CuAddress at, std::size_t bytes);
  static void add_map_calls(DriverApi& table);

  /// Counts the call, and says whether it fails.
  CuResult enter(const char* call, bool needs_context);
  Mapping& map(std::size_t bytes, int ordinal, bool managed);
  /// Device memory at addresses that are its own.
  Mapping& map_at(std::byte* at, std::size_t bytes, int ordinal, bool managed);
  [[nodiscard]] std::byte* shadow_of(CuAddress address, std::size_t bytes);
  [[nodiscard]] std::map<CuAddress, Allocation>::iterator allocation_at(CuAddress address);
  void work();

  const Features features_;
  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::vector<Mapping> mappings_;
  std::map<CuAddress, Allocation> allocations_;
  std::map<void*, std::size_t> pinned_;
  std::map<std::string, std::size_t> calls_;
  std::map<std::string, Fault> faults_;
  std::vector<std::string> violations_;
  std::vector<Export> exports_;
  std::vector<int> priorities_;
  std::map<std::uint64_t, CuResult> events_;      // what a query says
  std::map<std::uint64_t, std::size_t> streams_;  // by number: work that has not ended
  std::map<std::uint64_t, bool> lost_;            // streams on which a copy failed: what is recorded there fails, too
  std::deque<Work> queue_;
  std::map<CuContext, Context> contexts_;          // that were made
  std::map<std::uint64_t, CuContext> owners_;      // of streams, events, modules, memory by its address
  std::map<CuAddress, Mapping> given_;             // of memory_alloc
  std::vector<Mapping> returned_;                  // what it may give again, as it was left
  std::map<CuAddress, std::size_t> reserved_;      // addresses alone
  std::map<std::uint64_t, std::size_t> memories_;  // that have no addresses yet, or were mapped: their bytes
  std::map<std::uint64_t, Module> modules_;
  std::map<std::uint64_t, Kernel*> functions_;
  std::map<std::uint64_t, Graph> captures_;  // by the stream that is captured
  std::map<std::uint64_t, std::shared_ptr<const Graph>> graphs_, execs_;
  std::map<std::string, std::vector<Kernel>> images_;
  std::map<std::uint64_t, std::uint64_t> tickets_;  // of events: of their last recording
  std::set<std::uint64_t> unredeemed_;              // tickets of recordings that the device is not past
  std::mt19937 random_;
  std::size_t given_bytes_ = 0, orphans_ = 0, counted_ = 0, fail_in_ = 0, failed_at_ = 0;
  CuResult fail_with_ = CuResult::kSuccess;
  std::string fail_name_, failed_call_;
  std::size_t retained_ = 0, copies_done_ = 0, next_ = 1, break_in_ = 0;
  bool break_armed_ = false, held_ = false, stopping_ = false;
  std::thread worker_;
};

}  // namespace fairlead::gpu::testing
