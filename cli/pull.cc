#include <fmt/format.h>

#include <unordered_map>

#include "bench/base/file_output.h"
#include "bench/base/sizes.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/output_file.h"
#include "cli/session.h"
#include "datapath/base/crc.h"

namespace fairlead::cli {
namespace {

using bench::Json;

struct Options {
  EngineConfig config;
  std::string server, model, file, json;
  bool list = false;
};

struct Description {
  PullReady ready;
  std::vector<FileTensor> tensors;  // with the offsets that the file will have
  std::vector<std::uint32_t> crcs;
};

Result<Description> ask(Session& session, const std::string& model) {
  if (Status status = session.send(PullBegin{model}); !status.ok()) return status;
  Result<PullReady> ready = session.expect<PullReady>();
  if (!ready) return ready.error();
  Result<std::vector<TensorEntry>> entries = session.expect_tensors(ready->tensors);
  if (!entries) return entries.error();
  Description description{*std::move(ready), {}, {}};
  std::uint64_t offset = 0;
  for (TensorEntry& entry : *entries) {
    entry.tensor.offset = offset;
    if (__builtin_add_overflow(offset, entry.tensor.bytes, &offset)) break;
    description.tensors.push_back(std::move(entry.tensor));
    description.crcs.push_back(entry.crc);
  }
  if (description.tensors.size() == entries->size() && offset == description.ready.bytes) return description;
  return Status(Code::kDataLoss,
                fmt::format("the server says {} bytes, but its tensors have another sum", description.ready.bytes));
}

Result<std::vector<Move>> pair_up(Session& session, const Description& description, const Memory& data) {
  Result<std::vector<RemoteMemory>> regions = session.peer().list(description.ready.prefix);
  if (!regions) return regions.error();
  std::unordered_map<std::string_view, const RemoteMemory*> by_name;
  for (const RemoteMemory& region : *regions) by_name.emplace(region.name(), &region);
  std::vector<Move> moves;
  for (const FileTensor& tensor : description.tensors) {
    if (tensor.bytes == 0) continue;
    const auto found = by_name.find(description.ready.prefix + tensor.name);
    if (found == by_name.end() || found->second->size() != tensor.bytes) {
      return Status(
          Code::kUnavailable,
          fmt::format("tensor {} is gone: the server replaced or dropped the model; pull again", tensor.name));
    }
    moves.push_back({tensor.name, data.slice(tensor.offset, tensor.bytes), *found->second, 0});
  }
  return moves;
}

// Names the first tensor whose bytes are not what the server checked.
Status verify(const Description& description, const Memory& data) {
  for (std::size_t i = 0; i < description.tensors.size(); ++i) {
    const FileTensor& tensor = description.tensors[i];
    if (tensor.bytes == 0) continue;
    const std::uint32_t crc = crc32(data.slice(tensor.offset, tensor.bytes).bytes());
    if (crc != description.crcs[i]) {
      return {Code::kDataLoss, fmt::format("tensor {}: CRC-32 is {:08x}, expected {:08x} (was the model replaced "
                                           "meanwhile? pull again)",
                                           tensor.name, crc, description.crcs[i])};
    }
  }
  return {};
}

Status report(const Options& options, const Session& session, const MoveFigures& figures, std::size_t tensors,
              double server_cpu) {
  if (options.json.empty()) return {};
  const auto bytes = static_cast<double>(figures.bytes);
  const auto per_gb = [bytes](double seconds) { return bytes > 0 ? Json(seconds * 1e9 / bytes) : Json(); };
  Json::Object out{
      {"schema", "fairlead.pull/1"},
      {"model", options.model},
      {"file", options.file},
      {"tensors", std::uint64_t{tensors}},
      {"bytes", figures.bytes},
      {"verified", std::uint64_t{tensors}},
      {"seconds", figures.seconds},
      {"bytes_per_second", figures.seconds > 0 ? bytes / figures.seconds : 0.0},
      {"cpu_seconds_per_gb", Json::Object{{"initiator", per_gb(figures.cpu_seconds)}, {"target", per_gb(server_cpu)}}}};
  session.describe(out);
  return bench::write_text(options.json, Json(std::move(out)).dump(2) + "\n");
}

Status pull(Session& session, const Options& options, Console& console) {
  const Result<Description> description = ask(session, options.model);
  if (!description) return description.error();
  const std::string prefix = safetensors_prefix(description->tensors, description->ready.metadata);
  std::uint64_t size = 0;
  if (__builtin_add_overflow(description->ready.bytes, prefix.size(), &size) || size > INT64_MAX) {
    return {Code::kOutOfRange,
            fmt::format("model {} of {} bytes is larger than a file can be", options.model, description->ready.bytes)};
  }
  Result<OutputFile> output = OutputFile::create(options.file, prefix, size);
  if (!output) return output.error();
  // Access that no one is ever granted: it makes the mapping writable.
  const Result<Memory> file = session.engine().map_file(output->temporary_path(), Access::kRemoteWrite);
  if (!file) return file.error();
  const Memory data = file->slice(prefix.size(), description->ready.bytes);
  const Result<std::vector<Move>> moves = pair_up(session, *description, data);
  if (!moves) return moves.error();
  const Result<MoveFigures> figures = session.move(Session::Direction::kRead, *moves);
  if (!figures) return figures.error();
  if (Status status = session.send(PullFinish{}); !status.ok()) return status;
  const Result<PullResult> result = session.expect<PullResult>();
  if (!result) return result.error();
  if (Status status = verify(*description, data); !status.ok()) return status;
  if (Status status = output->commit(); !status.ok()) return status;
  const auto bytes = static_cast<double>(figures->bytes);
  console.line(fmt::format("{}: {} tensors verified, {} in {:.3f} s, {}/s", options.file, description->tensors.size(),
                           bench::format_bytes(bytes), figures->seconds,
                           bench::format_bytes(figures->seconds > 0 ? bytes / figures->seconds : 0)));
  return report(options, session, *figures, description->tensors.size(), result->cpu_seconds);
}

Status list(Session& session, const Options& options, Console& console) {
  if (Status status = session.send(ListModels{}); !status.ok()) return status;
  const Result<Models> models = session.expect<Models>();
  if (!models) return models.error();
  Json::Array out;
  for (const ModelSummary& model : models->models) {
    out.push_back(Json::Object{{"name", model.name}, {"tensors", model.tensors}, {"bytes", model.bytes}});
    console.line(fmt::format("{}  {} tensors, {}", model.name, model.tensors,
                             bench::format_bytes(static_cast<double>(model.bytes))));
  }
  if (models->models.empty()) console.line("no models");
  if (options.json.empty()) return {};
  const Json::Object report{{"schema", "fairlead.models/1"}, {"models", std::move(out)}};
  return bench::write_text(options.json, Json(report).dump(2) + "\n");
}

Status run(Engine engine, const Options& options, Console& console) {
  // What cannot be written is said before anything is sent.
  Status status = options.list ? Status() : OutputFile::check(options.file);
  if (status.ok() && !options.json.empty()) status = bench::check_writable(options.json);
  if (!status.ok()) return status;
  Result<Session> session = Session::open(std::move(engine), options.server, &console);
  if (!session) return session.error();
  status = options.list ? list(*session, options, console) : pull(*session, options, console);
  session->close();
  return status;
}

}  // namespace

int pull_command(Words words) {
  Options options;
  Args args("pull",
            "Fetches a model from `fairlead serve` by RDMA READ (or its like) into a safetensors file, and checks "
            "every tensor.",
            "Examples:\n  fairlead pull gpu7:7471 --list\n  fairlead pull gpu7:7471 resnet50 copy.safetensors");
  bool no_failover = false;
  args.positional("HOST:PORT", "Where the server listens", set_host_port(&options.server, true));
  args.positional("MODEL", "Its name there", set_text(&options.model), false);
  args.positional("OUT", "The file to create or replace", set_text(&options.file), false);
  args.flag("--list", &options.list, "List the models that the server has");
  args.flag("--no-failover", &no_failover, "Fail if the path dies, rather than carry on over another");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  if (const auto exit = args.parse(words)) return *exit;
  if (options.list == !options.file.empty() || options.list == !options.model.empty()) {
    return args.usage_error("give HOST:PORT MODEL OUT, or HOST:PORT --list");
  }
  options.config.failover = !no_failover;

  Console console("pull", options.json == "-");
  Result<Engine> engine = Engine::create(options.config);
  if (!engine) return console.no_engine(engine.error());
  const Status status = run(*std::move(engine), options, console);
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
