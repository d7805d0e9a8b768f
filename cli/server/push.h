// A push in progress, as the server sees it: what its client announced, what has arrived, what is right.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "bench/base/cpu_time.h"
#include "cli/models/model_disk.h"
#include "cli/models/model_store.h"
#include "cli/models/push_protocol.h"
#include "fairlead/status.h"

namespace fairlead::cli {

using Populate = void (*)(std::span<std::byte>, const std::stop_token&) noexcept;

/// One thread at a time works for it: the server's, but in kPreparing and kChecking its own. In kReceiving its own
/// clears memory and sums what has arrived.
struct Push {
  enum class Phase : std::uint8_t { kDescribed, kPreparing, kReceiving, kChecking };
  Phase phase = Phase::kDescribed;
  PushBegin begin;
  std::uint64_t files_seen = 0, described = 0, metadata = 0;
  std::vector<ModelFile> files;
  std::vector<TensorEntry> entries;
  ModelStore::Reservation room;
  std::shared_ptr<Model> model;  // from kPreparing on
  std::string prefix;
  Publication names;
  Status prepared;
  std::vector<bool> arrived;
  std::vector<std::uint32_t> crc_on_arrival;       // with Check::kOnArrival
  std::vector<std::optional<std::uint32_t>> sums;  // of its thread: of those that nobody writes any more
  std::vector<std::string> wrong;                  // per tensor; empty: nothing
  std::size_t missing = 0;                         // tensors that have not arrived
  std::vector<std::uint64_t> seen;                 // by moves(), of the model's memory at equal distances
  bench::CpuStopwatch since_ready;
  bench::Stopwatch since_sign;
  std::optional<double> cpu_seconds;  // when the last tensor arrived
  double seconds = 0;                 // from ready to the client's end
  ModelDisk::Draft draft;             // of a model that is right, where models are kept on disk
  Status drafted;
  double disk_seconds = 0;
  std::atomic<bool> waiting{false};  // for the server's thread: the push's own has got that far
  std::atomic<bool> ended{true};     // nothing is left for the push's own thread to do
  std::mutex arrivals_mutex;         // guards what follows
  std::condition_variable_any arrivals_changed;
  std::vector<std::size_t> arrivals;       // not looked at yet
  std::atomic<bool> sums_arrivals{false};  // its thread ends as soon as it is told to
  std::jthread thread;                     // last: it ends before what it works on goes

  /// It waits for its own thread, not for its client.
  [[nodiscard]] bool works() const noexcept { return phase == Phase::kPreparing || phase == Phase::kChecking; }
  /// Whether bytes of tensors that are not whole yet have come since the last call (or the beginning): a part of a
  /// tensor is announced by nothing, and of devices that place data by themselves nobody hears. So it looks at some
  /// bytes of them, all over; zeros that come over zeros are not seen.
  [[nodiscard]] bool moves();
  [[nodiscard]] std::uint32_t crc_of(std::size_t index, const std::stop_token& stop = {}) const;
  /// Finds pages for what of the model's memory has none yet, ahead of the data.
  void populate(Populate by, const std::stop_token& stop);
  /// To be summed. Of the server's thread.
  void arrive(std::size_t index);
  /// Sums tensors as they arrive, until `stop` is requested; before that their write access is withdrawn.
  void sum_arrivals(const std::stop_token& stop);
  /// Says in `wrong` what is not as announced of a tensor. It never names the checksum that was found: it may be that
  /// of bytes which the client did not send.
  void check(std::size_t index, const std::stop_token& stop);
};

}  // namespace fairlead::cli
