#include "cli/serve_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/base/cpu_time.h"
#include "bench/base/sizes.h"

namespace fairlead::cli {
namespace {

std::string called(const ModelDisk::File& file) {
  return file.owner.empty() ? file.model : fmt::format("{} of '{}'", file.model, file.owner);
}

/// Of each, the oldest first, why it is not to be loaded; empty: it is. The newest go before others, but one that is
/// too large hides none that fits.
std::vector<std::string> choose(const std::vector<ModelDisk::File>& files, std::uint64_t max_bytes) {
  std::vector<std::string> why_not(files.size());
  std::uint64_t left = max_bytes;
  for (std::size_t i = files.size(); i-- > 0;) {
    if (files[i].bytes <= left) {
      left -= files[i].bytes;
      continue;
    }
    const std::string limit = "--max-bytes " + bench::format_size(max_bytes);
    why_not[i] = files[i].bytes > max_bytes ? fmt::format("its file has {} bytes, more than {}", files[i].bytes, limit)
                                            : "newer ones take " + limit;
  }
  return why_not;
}

/// Adds what was loaded to `bytes`. False: it was told to stop.
bool load(const ModelDisk::File& file, ModelDisk& disk, ModelStore& store, ServeCounters& counters, Console& console,
          const std::function<bool()>& stop, std::uint64_t& bytes) {
  Result<std::shared_ptr<Model>> model = ModelDisk::read(file, store.engine(), stop);
  if (!model && model.error().code() == Code::kCancelled) return false;
  if (!model && model.error().code() == Code::kDataLoss) {
    ++counters.store_damaged;
    const Result<std::string> aside = disk.set_aside(file);
    console.error(fmt::format("model {}: {}; {}", called(file), model.error().message(),
                              aside ? "it was set aside as " + *aside : aside.error().message()));
    return true;
  }
  const auto dropped = model ? store.keep(*std::move(model)) : model.error();
  if (!dropped) {
    console.error(
        fmt::format("model {} stays on the disk and is not served: {}", called(file), dropped.error().message()));
    return true;
  }
  ++counters.store_models_loaded;
  bytes += file.bytes;
  for (const auto& each : *dropped) {
    console.warning(
        fmt::format("model {} stays on the disk and is not served: it made room for {}", each->name, called(file)));
  }
  return true;
}

}  // namespace

Status load_models(ModelDisk& disk, ModelStore& store, ServeCounters& counters, Front& front, Console& console,
                   const std::function<bool()>& stop) {
  Result<std::vector<ModelDisk::File>> files = disk.files();
  if (!files) return files.error();
  const bench::Stopwatch watch;
  const std::vector<std::string> why_not = choose(*files, store.max_bytes());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < files->size(); ++i) {
    const ModelDisk::File& file = (*files)[i];
    if (!why_not[i].empty()) {
      console.warning(fmt::format("model {} stays on the disk and is not served: {}", called(file), why_not[i]));
      continue;
    }
    front.starting(fmt::format("loading model {} of {}: {}", i + 1, files->size(), called(file)),
                   std::chrono::minutes(10));
    if (stop() || !load(file, disk, store, counters, console, stop, bytes)) {
      return {Code::kCancelled, fmt::format("{} of {} models loaded", store.count(), files->size())};
    }
  }
  if (!files->empty()) {
    console.line(fmt::format("{} models of {} loaded and verified in {:.1f} s", store.count(),
                             bench::format_bytes(bytes), watch.seconds()));
  }
  return {};
}

}  // namespace fairlead::cli
