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

void load(const ModelDisk::File& file, ModelDisk& disk, ModelStore& store, ServeCounters& counters, Console& console) {
  Result<std::shared_ptr<Model>> model = ModelDisk::read(file, store.engine());
  if (!model && model.error().code() == Code::kDataLoss) {
    ++counters.store_damaged;
    const Result<std::string> aside = disk.set_aside(file);
    return console.error(fmt::format("model {}: {}; {}", called(file), model.error().message(),
                                     aside ? "it was set aside as " + *aside : aside.error().message()));
  }
  const auto dropped = model ? store.keep(*std::move(model)) : model.error();
  if (!dropped) {
    return console.error(
        fmt::format("model {} stays on the disk and is not served: {}", called(file), dropped.error().message()));
  }
  ++counters.store_models_loaded;
  for (const auto& each : *dropped) {
    console.warning(
        fmt::format("model {} stays on the disk and is not served: it made room for {}", each->name, called(file)));
  }
}

}  // namespace

Status load_models(ModelDisk& disk, ModelStore& store, ServeCounters& counters, Front& front, Console& console) {
  Result<std::vector<ModelDisk::File>> files = disk.files();
  if (!files) return files.error();
  const bench::Stopwatch watch;
  std::uint64_t bytes = 0;
  std::size_t first = files->size();  // of those that fit: the newest
  while (first > 0 && (*files)[first - 1].bytes <= store.max_bytes() - bytes) bytes += (*files)[--first].bytes;
  for (std::size_t i = 0; i < files->size(); ++i) {
    const ModelDisk::File& file = (*files)[i];
    if (i < first) {
      console.warning(fmt::format("model {} stays on the disk and is not served: newer ones take --max-bytes {}",
                                  called(file), bench::format_size(store.max_bytes())));
      continue;
    }
    front.starting(fmt::format("loading model {} of {}: {}", i + 1, files->size(), called(file)),
                   std::chrono::minutes(10));
    load(file, disk, store, counters, console);
  }
  if (!files->empty()) {
    console.line(fmt::format("{} models of {} loaded and verified in {:.1f} s", store.count(),
                             bench::format_bytes(static_cast<double>(bytes)), watch.seconds()));
  }
  return {};
}

}  // namespace fairlead::cli
