#include <fmt/format.h>

#include <unordered_map>

#include "bench/base/cpu_time.h"
#include "bench/base/file_output.h"
#include "bench/base/sizes.h"
#include "cli/base/args.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/models/file_checksums.h"
#include "cli/models/output_file.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

using bench::Json;

struct Options {
  EngineConfig config;
  std::string server, model, file, json, checksum = "crc32";
  bool list = false;
};

struct Description {
  PullReady ready;
  std::vector<ModelFile> files;
  std::vector<TensorEntry> entries;  // of all files, in order
};

Result<Description> ask(Session& session, const std::string& model) {
  if (Status status = session.send(PullBegin{model}); !status.ok()) return status;
  Result<PullReady> ready = session.expect<PullReady>();
  if (!ready) return ready.error();
  Result<std::vector<ModelFile>> files = session.expect_files(ready->files, ready->tensors);
  if (!files) return files.error();
  Result<std::vector<TensorEntry>> entries = session.expect_tensors(ready->tensors);
  if (!entries) return entries.error();
  std::uint64_t bytes = 0;
  for (const TensorEntry& entry : *entries) {
    if (__builtin_add_overflow(bytes, entry.tensor.bytes, &bytes) || bytes > ready->bytes) break;
  }
  if (bytes == ready->bytes) return Description{*std::move(ready), *std::move(files), *std::move(entries)};
  return Status(Code::kDataLoss,
                fmt::format("the server says {} bytes, but its tensors have another sum", ready->bytes));
}

// One tensor of the model on its way into a file.
struct Target {
  const Output::File* file = nullptr;
  const TensorEntry* entry = nullptr;
  std::uint64_t offset = 0;  // in the file
  Memory memory;
};

// Creates and maps the files. Tensors of 0 bytes have no target.
Result<std::vector<Target>> create_files(Engine& engine, Output& output, const Description& description) {
  std::vector<Target> targets;
  auto entry = description.entries.begin();
  for (const ModelFile& file : description.files) {
    std::vector<FileTensor> tensors;
    for (std::uint64_t i = 0; i < file.tensors; ++i) tensors.push_back(entry[static_cast<std::ptrdiff_t>(i)].tensor);
    const std::string prefix = file.raw ? std::string() : safetensors_prefix(tensors, file.metadata);
    std::uint64_t size = prefix.size();
    for (const FileTensor& tensor : tensors) {
      if (!__builtin_add_overflow(size, tensor.bytes, &size) && size <= INT64_MAX) continue;
      return Status(Code::kOutOfRange, fmt::format("file {} is larger than a file can be", file.name));
    }
    const Result<const Output::File*> created = output.add(file.name, prefix, size);
    if (!created) return created.error();
    Memory memory;
    if (size > 0) {
      // Access that no one is ever granted: it makes the mapping writable.
      Result<Memory> mapped = engine.map_file((*created)->path, Access::kRemoteWrite);
      if (!mapped) return mapped.error();
      memory = *std::move(mapped);
    }
    std::uint64_t offset = prefix.size();
    for (std::uint64_t i = 0; i < file.tensors; ++i, ++entry) {
      const std::uint64_t bytes = entry->tensor.bytes;
      if (bytes > 0) targets.push_back({*created, &*entry, offset, memory.slice(offset, bytes)});
      offset += bytes;
    }
  }
  return targets;
}

Result<std::vector<Move>> pair_up(Session& session, const Description& description,
                                  const std::vector<Target>& targets) {
  Result<std::vector<RemoteMemory>> regions = session.peer().list(description.ready.prefix);
  if (!regions) return regions.error();
  std::unordered_map<std::string_view, const RemoteMemory*> by_name;
  for (const RemoteMemory& region : *regions) by_name.emplace(region.name(), &region);
  std::vector<Move> moves;
  for (const Target& target : targets) {
    const FileTensor& tensor = target.entry->tensor;
    const auto found = by_name.find(description.ready.prefix + tensor.name);
    if (found == by_name.end() || found->second->size() != tensor.bytes) {
      return Status(
          Code::kUnavailable,
          fmt::format("tensor {} is gone: the server replaced or dropped the model; pull again", tensor.name));
    }
    moves.push_back({tensor.name, target.memory, *found->second, 0});
  }
  return moves;
}

// What a pull came to.
struct Outcome {
  MoveFigures figures;
  std::size_t files = 0, tensors = 0, verified = 0;
  double server_cpu = 0, total_seconds = 0;

  [[nodiscard]] std::size_t unchecked() const noexcept { return tensors - verified; }
};

// Names the first tensor whose bytes are not what the server checked. Those without a checksum are not counted.
Status compare(const std::vector<Target>& targets, const std::vector<std::uint32_t>& crcs, Outcome& outcome) {
  std::size_t at = 0;
  for (const Target& target : targets) {
    if (!target.entry->crc) continue;
    if (crcs[at++] != *target.entry->crc) {
      return {Code::kDataLoss,
              fmt::format("tensor {}: its CRC-32 is not {:08x} (was the model replaced meanwhile? pull "
                          "again)",
                          target.entry->tensor.name, *target.entry->crc)};
    }
  }
  outcome.verified = at + (outcome.tensors - targets.size());
  return {};
}

Status report(const Options& options, const Session& session, const Outcome& outcome) {
  if (options.json.empty()) return {};
  const MoveFigures& figures = outcome.figures;
  const auto bytes = static_cast<double>(figures.bytes);
  const auto per_gb = [bytes](double seconds) { return bytes > 0 ? Json(seconds * 1e9 / bytes) : Json(); };
  Json::Object out{{"schema", "fairlead.pull/1"},
                   {"model", options.model},
                   {"file", options.file},
                   {"files", std::uint64_t{outcome.files}},
                   {"tensors", std::uint64_t{outcome.tensors}},
                   {"bytes", figures.bytes},
                   {"verified", std::uint64_t{outcome.verified}},
                   {"unchecked", std::uint64_t{outcome.unchecked()}},
                   {"checksum", options.checksum},
                   {"seconds", figures.seconds},
                   {"total_seconds", outcome.total_seconds},
                   {"bytes_per_second", figures.seconds > 0 ? bytes / figures.seconds : 0.0},
                   {"cpu_seconds_per_gb",
                    Json::Object{{"initiator", per_gb(figures.cpu_seconds)}, {"target", per_gb(outcome.server_cpu)}}}};
  session.describe(out);
  return bench::write_text(options.json, Json(std::move(out)).dump(2) + "\n");
}

void summarize(Console& console, const Options& options, const Outcome& outcome) {
  const MoveFigures& figures = outcome.figures;
  const auto bytes = static_cast<double>(figures.bytes);
  const bool checked = outcome.unchecked() == 0;
  console.line(fmt::format("{}: {} of {} tensors {}, {} in {:.3f} s, {}/s; {:.3f} s in all", options.file,
                           checked ? outcome.verified : outcome.unchecked(), outcome.tensors,
                           checked ? "verified" : "received without checksums", bench::format_bytes(bytes),
                           figures.seconds, bench::format_bytes(figures.seconds > 0 ? bytes / figures.seconds : 0),
                           outcome.total_seconds));
}

Status pull(Session& session, const Options& options, Console& console) {
  const bench::Stopwatch watch;
  const Result<Description> description = ask(session, options.model);
  if (!description) return description.error();
  Outcome outcome;
  outcome.files = description->files.size();
  outcome.tensors = description->entries.size();
  Result<Output> output = Output::create(options.file, outcome.files > 1);
  if (!output) return output.error();
  const Result<std::vector<Target>> targets = create_files(session.engine(), *output, *description);
  if (!targets) return targets.error();
  const Result<std::vector<Move>> moves = pair_up(session, *description, *targets);
  if (!moves) return moves.error();
  // Each tensor is checked while the next ones arrive. It is read from its file: that may be cut meanwhile.
  FileChecksums checksums;
  auto next = targets->begin();
  const auto check = [&](const Move&) {
    const Target& target = *next++;
    if (options.checksum == "off" || !target.entry->crc) return;
    checksums.add({target.file->fd.get(), &target.file->path, target.offset, target.entry->tensor.bytes});
  };
  Result<MoveFigures> figures = session.move(Session::Direction::kRead, *moves, check);
  if (!figures) return figures.error();
  figures->cpu_seconds -= checksums.cpu_seconds();
  outcome.figures = *figures;
  if (Status status = session.send(PullFinish{}); !status.ok()) return status;
  const Result<PullResult> result = session.expect<PullResult>();
  if (!result) return result.error();
  outcome.server_cpu = result->cpu_seconds;
  const Result<std::vector<std::uint32_t>> crcs = checksums.finish();
  if (!crcs) return crcs.error();
  if (options.checksum != "off") {
    if (Status status = compare(*targets, *crcs, outcome); !status.ok()) return status;
  }
  if (Status status = output->commit(); !status.ok()) return status;
  outcome.total_seconds = watch.seconds();
  summarize(console, options, outcome);
  return report(options, session, outcome);
}

/// The models, which are what was asked for: --quiet keeps back only what is said beside them.
Status list(Session& session, const Options& options) {
  Console console("pull", options.json == "-");
  if (Status status = session.send(ListModels{}); !status.ok()) return status;
  const Result<Models> models = session.expect<Models>();
  if (!models) return models.error();
  Json::Array out;
  for (const ModelSummary& model : models->models) {
    out.push_back(Json::Object{{"name", model.name}, {"tensors", model.tensors}, {"bytes", model.bytes}});
    console.line(fmt::format("{}  {} tensors, {}", model.name, model.tensors, bench::format_bytes(model.bytes)));
  }
  if (models->models.empty()) console.line("no models");
  if (options.json.empty()) return {};
  const Json::Object report{{"schema", "fairlead.models/1"}, {"models", std::move(out)}};
  return bench::write_text(options.json, Json(report).dump(2) + "\n");
}

Status run(Engine engine, const Options& options, Console& console) {
  // What cannot be written is said before anything is sent.
  Status status = options.list ? Status() : Output::check(options.file);
  if (status.ok() && !options.json.empty()) status = bench::check_writable(options.json);
  if (!status.ok()) return status;
  Result<Session> session = Session::open(std::move(engine), options.server, &console);
  if (!session) return session.error();
  status = options.list ? list(*session, options) : pull(*session, options, console);
  session->close();
  return status;
}

}  // namespace

int pull_command(Words words) {
  Options options;
  Args args("pull",
            "Fetches a model from `fairlead serve` by RDMA READ (or its like) into a safetensors file, and checks "
            "every tensor. A model of several files becomes a folder.",
            "Examples:\n  fairlead pull gpu7:7471 --list\n  fairlead pull gpu7:7471 resnet50 copy.safetensors");
  bool no_failover = false, quiet = false;
  args.positional("HOST:PORT", "Where the server listens", set_places(&options.server));
  args.positional("MODEL", "Its name there", set_text(&options.model), false);
  args.positional("OUT", "The file to create or replace; a new or empty folder for a model of several",
                  set_text(&options.file), false);
  args.flag("--list", &options.list, "List the models that the server has");
  args.option("--checksum", "HOW", "Check every tensor by crc32, or off (default crc32)",
              set_choice(&options.checksum, {"crc32", "off"}));
  args.flag("--no-failover", &no_failover, "Fail if the path dies, rather than carry on over another");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  args.flag("--quiet", &quiet, "Say nothing but what goes wrong");
  add_engine_options(args, &options.config);
  set_push_limits(&options.config);
  if (const auto exit = args.parse(words)) return *exit;
  if (options.list == !options.file.empty() || options.list == !options.model.empty()) {
    return args.usage_error("give HOST:PORT MODEL OUT, or HOST:PORT --list");
  }
  options.config.failover = !no_failover;

  Console console("pull", Console::lines_of(quiet, options.json == "-"));
  Result<Engine> engine = Engine::create(options.config);
  if (!engine) return console.no_engine(engine.error());
  const Status status = run(*std::move(engine), options, console);
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
