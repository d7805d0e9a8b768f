#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>

#include "bench/base/cpu_time.h"
#include "bench/base/file_output.h"
#include "bench/base/sizes.h"
#include "cli/base/args.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/models/file_checksums.h"
#include "cli/models/model_files.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

using bench::Json;

struct Options {
  EngineConfig config;
  std::string file, server, name, json, checksum = "crc32";
};

/// A tensor in a file, written to all of `remote`, which is as large.
struct FileMove {
  std::string name;
  std::size_t file = 0;  // which of the model's
  FileRange from;
  RemoteMemory remote;
  std::uint64_t notify = 0;
};

struct Written {
  MoveFigures moved;                // without the processor time of the sums
  std::vector<std::uint32_t> crcs;  // of each move, if they were wanted
};

// Maps every file that was opened for its header, whatever may have its name by now. One that changed its size since is
// refused.
Result<std::vector<Memory>> map_files(Engine& engine, const ModelFiles& model) {
  std::vector<Memory> mapped;
  for (const InputFile& input : model.files) {
    if (input.size == 0) {
      mapped.emplace_back();  // an empty index: nothing to send
      continue;
    }
    const std::string opened = fmt::format("/proc/self/fd/{}", input.fd.get());
    Result<Memory> memory = engine.map_file(opened, Access::kNone);
    if (!memory) {
      return Status(memory.error().code(), fmt::format("{}: {}", input.path, memory.error().message()));
    }
    if (memory->size() != input.size) {
      return Status(Code::kDataLoss, input.path + " changed its size while it was read");
    }
    mapped.push_back(*std::move(memory));
  }
  return mapped;
}

// Calls `each` with every tensor's number, file and entry.
template <typename Each>
void for_each_tensor(const ModelFiles& model, const Each& each) {
  std::size_t tensor = 0;
  for (std::size_t file = 0; file < model.files.size(); ++file) {
    for (const std::size_t end = tensor + model.files[file].file.tensors; tensor < end; ++tensor) {
      each(tensor, file, model.entries[tensor].tensor);
    }
  }
}

// Announces the tensors; gives the prefix under which the server lets them be written.
Result<std::string> announce(Session& session, const std::string& name, const ModelFiles& model, bool sums) {
  Status status = session.send(PushBegin{name, model.files.size(), model.entries.size(), model.bytes, sums});
  for (const InputFile& input : model.files) {
    if (status.ok()) status = session.send(input.file);
  }
  for (const TensorBatch& batch : make_batches(model.entries)) {
    if (status.ok()) status = session.send(batch);
  }
  if (!status.ok()) return status;
  Result<PushReady> ready = session.expect<PushReady>();
  if (!ready) return ready.error();
  return std::move(ready->prefix);
}

// Pairs every tensor that has bytes with the region that the server published for it.
Result<std::vector<FileMove>> pair_up(Session& session, const std::string& prefix, const ModelFiles& model) {
  Result<std::vector<RemoteMemory>> regions = session.peer().list(prefix);
  if (!regions) return session.reason_for(regions.error());
  std::unordered_map<std::string_view, const RemoteMemory*> by_name;
  for (const RemoteMemory& region : *regions) by_name.emplace(region.name(), &region);
  std::vector<FileMove> moves;
  Status status;
  for_each_tensor(model, [&](std::size_t index, std::size_t file, const FileTensor& tensor) {
    if (tensor.bytes == 0 || !status.ok()) return;
    const auto found = by_name.find(fmt::format("{}{}", prefix, index));
    if (found == by_name.end() || found->second->size() != tensor.bytes) {
      status = Status(Code::kDataLoss,
                      fmt::format("the server has no region of {} bytes for tensor {}", tensor.bytes, tensor.name));
      return;
    }
    const InputFile& input = model.files[file];
    moves.push_back(
        {tensor.name, file, {input.fd.get(), &input.path, tensor.offset, tensor.bytes}, *found->second, index});
  });
  if (!status.ok()) return status;
  return moves;
}

Status check_whole(const ModelFiles& model) {
  for (const InputFile& input : model.files) {
    if (Status whole = check_end({input.fd.get(), &input.path, 0, input.size}); !whole.ok()) return whole;
  }
  return {};
}

// Straight from the mapped files; a thread beside sums what is mapped.
Result<Written> write(Session& session, const ModelFiles& model, std::span<const FileMove> moves, bool sums) {
  const Result<std::vector<Memory>> mapped = map_files(session.engine(), model);
  if (!mapped) return mapped.error();
  std::optional<FileChecksums> checksums;
  if (sums) checksums.emplace();
  std::vector<Move> all;
  for (const FileMove& move : moves) {
    const Memory local = (*mapped)[move.file].slice(move.from.offset, move.from.bytes);
    all.push_back({move.name, local, move.remote, move.notify});
    if (!sums) continue;
    FileRange range = move.from;
    range.mapped = local.bytes().data();
    checksums->add(range);
  }
  const double before = sums ? checksums->cpu_seconds() : 0;
  const Result<MoveFigures> moved = session.move(Session::Direction::kWrite, all);
  if (Status whole = check_whole(model); !whole.ok()) return whole;  // names the file, which what failed may not
  if (!moved) return moved.error();
  Written figures{*moved, {}};
  if (!sums) return figures;
  figures.moved.cpu_seconds = std::max(0.0, figures.moved.cpu_seconds - (checksums->cpu_seconds() - before));
  Result<std::vector<std::uint32_t>> crcs = checksums->finish();
  if (!crcs) return crcs.error();
  figures.crcs = *std::move(crcs);
  return figures;
}

Json per_gb(double seconds, std::uint64_t bytes) {
  return bytes == 0 ? Json() : Json(seconds * 1e9 / static_cast<double>(bytes));
}

// What a push came to. `checked_seconds` counts from the first post to the server's answer, `total_seconds` from the
// reading of the file's header.
struct Outcome {
  MoveFigures figures;
  PushResult result;
  std::size_t files = 0, tensors = 0;
  double checked_seconds = 0, total_seconds = 0;
};

Status report(const Options& options, const Session& session, const Outcome& outcome) {
  if (options.json.empty()) return {};
  const MoveFigures& figures = outcome.figures;
  Json::Object out{
      {"schema", "fairlead.push/1"},
      {"file", options.file},
      {"files", std::uint64_t{outcome.files}},
      {"tensors", std::uint64_t{outcome.tensors}},
      {"bytes", figures.bytes},
      {"verified", options.checksum == "off" ? std::uint64_t{0} : outcome.result.verified},
      {"checksum", options.checksum},
      {"seconds", figures.seconds},
      {"checked_seconds", outcome.checked_seconds},
      {"total_seconds", outcome.total_seconds},
      {"bytes_per_second", figures.seconds > 0 ? static_cast<double>(figures.bytes) / figures.seconds : 0.0},
      {"cpu_seconds_per_gb", Json::Object{{"initiator", per_gb(figures.cpu_seconds, figures.bytes)},
                                          {"target", per_gb(outcome.result.cpu_seconds, figures.bytes)}}}};
  session.describe(out);
  return bench::write_text(options.json, Json(std::move(out)).dump(2) + "\n");
}

void summarize(Console& console, const Options& options, const Outcome& outcome) {
  const MoveFigures& figures = outcome.figures;
  const auto bytes = static_cast<double>(figures.bytes);
  for (const auto& [tensor, reason] : outcome.result.failures) {
    console.error(fmt::format("tensor {}: {}", tensor, reason));
  }
  console.line(fmt::format(
      "{} of {} tensors {}, {} in {:.3f} s, {}/s; {:.3f} s in all", outcome.result.verified, outcome.tensors,
      options.checksum == "off" ? "received without checksums" : "verified", bench::format_bytes(bytes),
      figures.seconds, bench::format_bytes(figures.seconds > 0 ? bytes / figures.seconds : 0), outcome.total_seconds));
  if (bytes > 0) {
    console.line(fmt::format("processor: {:.3f} s/GB here, {:.3f} s/GB there", figures.cpu_seconds * 1e9 / bytes,
                             outcome.result.cpu_seconds * 1e9 / bytes));
  }
}

Status push(Engine engine, const Options& options, Console& console) {
  const bench::Stopwatch watch;
  const Result<ModelFiles> model = open_model(options.file);
  if (!model) return model.error();
  if (!options.json.empty()) {
    if (Status status = bench::check_writable(options.json); !status.ok()) return status;
  }
  Result<Session> session = Session::open(std::move(engine), options.server, &console);
  if (!session) return session.error();
  const bool sums = options.checksum != "off";
  const Result<std::string> prefix = announce(*session, options.name, *model, sums);
  if (!prefix) return prefix.error();
  const Result<std::vector<FileMove>> moves = pair_up(*session, *prefix, *model);
  if (!moves) return moves.error();
  const bench::Stopwatch since_first;
  const Result<Written> written = write(*session, *model, *moves, sums);
  if (!written) return written.error();
  PushFinish finish;
  if (sums) finish.crcs.resize(model->entries.size());  // 0: that of no bytes
  for (std::size_t i = 0; i < written->crcs.size(); ++i) finish.crcs[(*moves)[i].notify] = written->crcs[i];
  if (Status status = session->send(finish); !status.ok()) return status;
  Result<PushResult> result = session->expect<PushResult>();
  if (!result) return result.error();
  const Outcome outcome{written->moved,        *std::move(result),    model->files.size(),
                        model->entries.size(), since_first.seconds(), watch.seconds()};
  summarize(console, options, outcome);
  if (Status status = report(options, *session, outcome); !status.ok()) return status;
  session->close();
  if (outcome.result.failed == 0 && outcome.result.verified == outcome.tensors) return {};
  return {Code::kDataLoss,
          fmt::format("{} of {} tensors failed", outcome.tensors - outcome.result.verified, outcome.tensors)};
}

}  // namespace

int push_command(Words words) {
  Options options;
  Args args(
      "push",
      "Sends a safetensors file, or a model of several, to `fairlead serve`, reading every byte once, and has every "
      "tensor checked on the far side. The server keeps models in memory, and on disk if it was told to.",
      "Examples:\n  fairlead push resnet50.safetensors gpu7:7471\n"
      "  fairlead push llama/ gpu7:7471                    a folder: the shards of its *.index.json\n"
      "  fairlead push m.safetensors 127.0.0.1:7471 --transport verbs:soft0 --json -");
  bool no_failover = false, quiet = false;
  args.positional("FILE", "A safetensors file, a *.index.json with its shards, or a folder of them",
                  set_text(&options.file));
  args.positional("HOST:PORT", "Where the server listens", set_places(&options.server));
  args.option("--name", "NAME", "The model's name there (default: the file's name)", set_text(&options.name));
  args.option("--checksum", "HOW", "What the server compares: crc32, or off to rely on the transport (default crc32)",
              set_choice(&options.checksum, {"crc32", "off"}));
  args.flag("--no-failover", &no_failover, "Fail if the path dies, rather than carry on over another");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  args.flag("--quiet", &quiet, "Say nothing but what goes wrong");
  add_engine_options(args, &options.config);
  set_push_limits(&options.config);
  if (const auto exit = args.parse(words)) return *exit;
  options.config.failover = !no_failover;
  if (options.name.empty()) options.name = model_name_of(options.file);
  if (const Status status = check_model_name(options.name); !status.ok()) return args.usage_error(status.message());

  Console console("push", Console::lines_of(quiet, options.json == "-"));
  Result<Engine> engine = Engine::create(options.config);
  if (!engine) return console.no_engine(engine.error());
  const Status status = push(*std::move(engine), options, console);
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
