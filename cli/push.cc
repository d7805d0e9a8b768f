#include <fmt/format.h>

#include <unordered_map>

#include "bench/base/file_output.h"
#include "bench/base/sizes.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/session.h"
#include "datapath/base/crc.h"

namespace fairlead::cli {
namespace {

using bench::Json;

struct Options {
  EngineConfig config;
  std::string file, server, name, json;
};

// The tensors of a mapped file, with the checksums of their bytes.
std::vector<TensorEntry> describe(const SafetensorsHeader& header, const Memory& file) {
  std::vector<TensorEntry> entries;
  for (const FileTensor& tensor : header.tensors) {
    const Memory bytes = file.slice(header.data_begin + tensor.offset, tensor.bytes);
    entries.push_back({tensor, tensor.bytes == 0 ? 0 : crc32(bytes.bytes())});
  }
  return entries;
}

Status check_limits(const SafetensorsHeader& header, const std::string& file) {
  if (header.tensors.size() > kMaxTensors) {
    return {Code::kOutOfRange,
            fmt::format("{} has {} tensors; the limit is {}", file, header.tensors.size(), kMaxTensors)};
  }
  for (const FileTensor& tensor : header.tensors) {
    if (tensor.name.size() > kMaxTensorName || tensor.shape.size() > kMaxRank) {
      return {Code::kOutOfRange,
              fmt::format("{}: tensor '{:.80}' has a name of {} bytes and {} dimensions; the limits are "
                          "{} and {}",
                          file, tensor.name, tensor.name.size(), tensor.shape.size(), kMaxTensorName, kMaxRank)};
    }
  }
  return {};
}

// Announces the tensors; gives the prefix under which the server lets them be written.
Result<std::string> announce(Session& session, const std::string& model, const SafetensorsHeader& header,
                             const std::vector<TensorEntry>& entries) {
  Status status = session.send(PushBegin{model, header.metadata, entries.size(), header.data_bytes});
  for (const TensorBatch& batch : make_batches(entries)) {
    if (!status.ok()) break;
    status = session.send(batch);
  }
  if (!status.ok()) return status;
  Result<PushReady> ready = session.expect<PushReady>();
  if (!ready) return ready.error();
  return std::move(ready->prefix);
}

// Pairs every tensor that has bytes with the region that the server published for it.
Result<std::vector<Move>> pair_up(Session& session, const std::string& prefix, const SafetensorsHeader& header,
                                  const Memory& file) {
  Result<std::vector<RemoteMemory>> regions = session.peer().list(prefix);
  if (!regions) return regions.error();
  std::unordered_map<std::string_view, const RemoteMemory*> by_name;
  for (const RemoteMemory& region : *regions) by_name.emplace(region.name(), &region);
  std::vector<Move> moves;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const FileTensor& tensor = header.tensors[i];
    if (tensor.bytes == 0) continue;
    const auto found = by_name.find(fmt::format("{}{}", prefix, i));
    if (found == by_name.end() || found->second->size() != tensor.bytes) {
      return Status(Code::kDataLoss,
                    fmt::format("the server has no region of {} bytes for tensor {}", tensor.bytes, tensor.name));
    }
    moves.push_back({tensor.name, file.slice(header.data_begin + tensor.offset, tensor.bytes), *found->second, i});
  }
  return moves;
}

Json per_gb(double seconds, std::uint64_t bytes) {
  return bytes == 0 ? Json() : Json(seconds * 1e9 / static_cast<double>(bytes));
}

Status report(const Options& options, const Session& session, const MoveFigures& figures, std::size_t tensors,
              const PushResult& result) {
  if (options.json.empty()) return {};
  Json::Object out{
      {"schema", "fairlead.push/1"},
      {"file", options.file},
      {"tensors", std::uint64_t{tensors}},
      {"bytes", figures.bytes},
      {"verified", result.verified},
      {"seconds", figures.seconds},
      {"bytes_per_second", figures.seconds > 0 ? static_cast<double>(figures.bytes) / figures.seconds : 0.0},
      {"cpu_seconds_per_gb", Json::Object{{"initiator", per_gb(figures.cpu_seconds, figures.bytes)},
                                          {"target", per_gb(result.cpu_seconds, figures.bytes)}}}};
  session.describe(out);
  return bench::write_text(options.json, Json(std::move(out)).dump(2) + "\n");
}

void summarize(Console& console, const MoveFigures& figures, std::size_t tensors, const PushResult& result) {
  const auto bytes = static_cast<double>(figures.bytes);
  for (const auto& [tensor, reason] : result.failures) console.error(fmt::format("tensor {}: {}", tensor, reason));
  console.line(fmt::format("{} of {} tensors verified, {} in {:.3f} s, {}/s", result.verified, tensors,
                           bench::format_bytes(bytes), figures.seconds,
                           bench::format_bytes(figures.seconds > 0 ? bytes / figures.seconds : 0)));
  if (bytes > 0) {
    console.line(fmt::format("processor: {:.3f} s/GB here, {:.3f} s/GB there", figures.cpu_seconds * 1e9 / bytes,
                             result.cpu_seconds * 1e9 / bytes));
  }
}

Status push(Engine engine, const Options& options, Console& console) {
  const Result<SafetensorsHeader> header = read_safetensors(options.file);
  if (!header) return header.error();
  if (Status status = check_limits(*header, options.file); !status.ok()) return status;
  if (!options.json.empty()) {
    if (Status status = bench::check_writable(options.json); !status.ok()) return status;
  }
  Result<Session> session = Session::open(std::move(engine), options.server, &console);
  if (!session) return session.error();
  const Result<Memory> file = session->engine().map_file(options.file, Access::kNone);
  if (!file) return file.error();
  if (file->size() != header->data_begin + header->data_bytes) {
    return {Code::kDataLoss, options.file + " changed its size while it was read"};
  }
  const std::vector<TensorEntry> entries = describe(*header, *file);
  const Result<std::string> prefix = announce(*session, options.name, *header, entries);
  if (!prefix) return prefix.error();
  const Result<std::vector<Move>> moves = pair_up(*session, *prefix, *header, *file);
  if (!moves) return moves.error();
  const Result<MoveFigures> figures = session->move(Session::Direction::kWrite, *moves);
  if (!figures) return figures.error();
  if (Status status = session->send(PushFinish{}); !status.ok()) return status;
  const Result<PushResult> result = session->expect<PushResult>();
  if (!result) return result.error();
  summarize(console, *figures, entries.size(), *result);
  if (Status status = report(options, *session, *figures, entries.size(), *result); !status.ok()) return status;
  session->close();
  if (result->failed == 0 && result->verified == entries.size()) return {};
  return {Code::kDataLoss, fmt::format("{} of {} tensors failed", entries.size() - result->verified, entries.size())};
}

}  // namespace

int push_command(Words words) {
  Options options;
  Args args("push",
            "Sends a safetensors file to `fairlead serve`, straight from the mapped file, and has every tensor "
            "checked on the far side.",
            "Examples:\n  fairlead push resnet50.safetensors gpu7:7471\n"
            "  fairlead push m.safetensors 127.0.0.1:7471 --transport verbs:soft0 --json -");
  bool no_failover = false;
  args.positional("FILE", "A safetensors file", set_text(&options.file));
  args.positional("HOST:PORT", "Where the server listens", set_host_port(&options.server, true));
  args.option("--name", "NAME", "The model's name there (default: the file's name)", set_text(&options.name));
  args.flag("--no-failover", &no_failover, "Fail if the path dies, rather than carry on over another");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  if (const auto exit = args.parse(words)) return *exit;
  options.config.failover = !no_failover;
  if (options.name.empty()) options.name = model_name_of(options.file);
  if (const Status status = check_model_name(options.name); !status.ok()) return args.usage_error(status.message());

  Console console("push", options.json == "-");
  Result<Engine> engine = Engine::create(options.config);
  if (!engine) return console.no_engine(engine.error());
  const Status status = push(*std::move(engine), options, console);
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
