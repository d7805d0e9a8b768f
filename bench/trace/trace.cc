#include "bench/trace/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "base/printable.h"
#include "base/unique_fd.h"
#include "bench/base/file_output.h"
#include "bench/base/json.h"

namespace fairlead::bench {
namespace {

constexpr std::array<std::string_view, kTraceOps> kOpNames = {"launch", "copy_in", "copy_out",
                                                              "mark",   "fence",   "synchronize"};
constexpr std::string_view kVersionField = "fairlead_trace";
constexpr std::size_t kShown = 60;  // bytes of a foreign value in a message

std::string shown_word(std::string_view text) {
  return printable(fmt::format("{}{}", text.substr(0, kShown), text.size() > kShown ? "..." : ""));
}

std::string shown(const Json& value) { return shown_word(value.dump()); }

/// The fields of one line. Each method that takes one records what is wrong with the first that is.
class Line {
 public:
  Line(std::string_view file, std::size_t number, const Json::Object& fields)
      : file_(file), number_(number), fields_(fields) {}

  [[nodiscard]] Status status() const { return wrong_; }
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }

  void fail(std::string_view why) {
    if (wrong_.ok()) wrong_ = Status(Code::kDataLoss, fmt::format("{}: line {}: {}", file_, number_, why));
  }

  void refuse_others(std::initializer_list<std::string_view> known) {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const std::string& name = fields_[i].first;
      if (std::ranges::find(known, name) == known.end()) {
        fail(fmt::format("there is no field '{}' (legal: {})", shown_word(name), fmt::join(known, ", ")));
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (fields_[j].first == name) fail(fmt::format("field '{}' is there twice", shown_word(name)));
      }
    }
  }

  /// 0 if it is not there.
  std::uint64_t number(std::string_view name, std::uint64_t most) {
    const Json* const value = find(name);
    if (value == nullptr) return 0;
    const std::optional<std::uint64_t> number = value->uint();
    if (number && *number <= most) return *number;
    fail(fmt::format("field '{}' is {}; legal is a whole number from 0 to {}", name, shown(*value), most));
    return 0;
  }

  bool flag(std::string_view name) {
    const Json* const value = find(name);
    if (value == nullptr) return false;
    if (!value->boolean()) fail(fmt::format("field '{}' is {}; legal is true or false", name, shown(*value)));
    return value->boolean().value_or(false);
  }

  std::string text(std::string_view name) {
    const Json* const value = find(name);
    if (value == nullptr) {
      fail(fmt::format("field '{}' is missing", name));
      return {};
    }
    if (value->string() != nullptr && value->string()->size() <= kMaxTraceText) return *value->string();
    fail(fmt::format("field '{}' is {}; legal is a text of at most {} bytes", name, shown(*value), kMaxTraceText));
    return {};
  }

  void need(std::string_view name) {
    if (!has(name)) fail(fmt::format("field '{}' is missing", name));
  }

 private:
  [[nodiscard]] const Json* find(std::string_view name) const {
    const auto found = std::ranges::find(fields_, name, &Json::Object::value_type::first);
    return found != fields_.end() ? &found->second : nullptr;
  }

  std::string_view file_;
  std::size_t number_;
  const Json::Object& fields_;
  Status wrong_;
};

class Parser {
 public:
  explicit Parser(std::string_view file) : file_(file) {}

  Status add(std::string_view text, std::size_t number) {
    if (text.size() > kMaxTraceLine) {
      return wrong(number, fmt::format("it has {} bytes, of at most {}", text.size(), kMaxTraceLine));
    }
    const Result<Json> json = Json::parse(text);
    if (!json) return wrong(number, json.error().message());
    if (json->object() == nullptr) {
      return wrong(number,
                   fmt::format("a line is a JSON object, and this is {} ({})", shown(*json), json->type_name()));
    }
    Line line(file_, number, *json->object());
    number == 1 ? header(line) : record(line);
    return line.status();
  }

  Result<Trace> finish() {
    if (!trace_.records.empty()) return std::move(trace_);
    return Status(Code::kDataLoss, fmt::format("{}: there is no call in it: a trace is a header and a line for each "
                                               "call (docs/benchmarks.md)",
                                               file_));
  }

 private:
  Status wrong(std::size_t number, std::string_view why) const {
    return {Code::kDataLoss, fmt::format("{}: line {}: {}", file_, number, why)};
  }

  void header(Line& line) {
    line.need(kVersionField);  // first: without it, this is something else
    const std::uint64_t version = line.number(kVersionField, ~std::uint64_t{0});
    if (version != 1) line.fail(fmt::format("field '{}' is {}; legal is 1", kVersionField, version));
    line.refuse_others({kVersionField, "name", "made", "device_ns"});
    trace_.name = line.text("name");
    trace_.made = line.text("made");
    device_ns_ = line.number("device_ns", kMaxTraceNs);
  }

  void record(Line& line) {
    if (trace_.records.size() == kMaxTraceRecords) line.fail(fmt::format("more than {} calls", kMaxTraceRecords));
    line.refuse_others({"gap_ns", "op", "bytes_out", "bytes_back", "blocking", "stream", "device_ns", "on"});
    TraceRecord record;
    const std::string op = line.text("op");
    const auto named = std::ranges::find(kOpNames, op);
    if (named == kOpNames.end()) {
      line.fail(fmt::format("field 'op' is '{}'; legal: {}", shown_word(op), fmt::join(kOpNames, ", ")));
      return;
    }
    record.op = static_cast<TraceOp>(named - kOpNames.begin());
    const bool launch = record.op == TraceOp::kLaunch, fence = record.op == TraceOp::kFence;
    const std::uint64_t out = launch ? kMaxTraceParameters : record.op == TraceOp::kCopyIn ? kMaxTraceCopy : 0;
    record.gap_ns = line.number("gap_ns", kMaxTraceNs);
    record.bytes_out = limited(line, "bytes_out", op, out);
    record.bytes_back = limited(line, "bytes_back", op, record.op == TraceOp::kCopyOut ? kMaxTraceCopy : 0);
    record.blocking = line.flag("blocking");
    if (record.op == TraceOp::kSynchronize) {
      if (line.has("blocking") && !record.blocking)
        line.fail("field 'blocking' is false, and synchronize always blocks");
      record.blocking = true;
    }
    record.stream = static_cast<std::uint8_t>(line.number("stream", kMaxTraceStreams - 1));
    if (line.has("device_ns") && !launch) line.fail(fmt::format("field 'device_ns' is for launch, not for {}", op));
    if (launch) record.device_ns = line.has("device_ns") ? line.number("device_ns", kMaxTraceNs) : device_ns_;
    if (line.has("on") && !fence) line.fail(fmt::format("field 'on' is for fence, not for {}", op));
    if (fence) {
      line.need("on");
      record.on = static_cast<std::uint8_t>(line.number("on", kMaxTraceStreams - 1));
      if (record.on == record.stream) line.fail(fmt::format("field 'on' is {}, the fence's own stream", record.on));
      if (!marked_[record.on]) line.fail(fmt::format("field 'on' is {}, a stream without a mark so far", record.on));
    }
    if (record.op == TraceOp::kMark) marked_.set(record.stream);
    total_ns_ += record.gap_ns + record.device_ns;
    if (total_ns_ > kMaxTraceTotalNs) {
      line.fail(fmt::format("gaps and launches take {} ns so far, of at most {}", total_ns_, kMaxTraceTotalNs));
    }
    total_bytes_ += record.bytes_out + record.bytes_back;
    if (total_bytes_ > kMaxTraceTotalBytes) {
      line.fail(fmt::format("calls move {} bytes so far, of at most {}", total_bytes_, kMaxTraceTotalBytes));
    }
    trace_.records.push_back(record);
  }

  static std::uint64_t limited(Line& line, std::string_view field, std::string_view op, std::uint64_t most) {
    if (most == 0 && line.number(field, ~std::uint64_t{0}) != 0) {
      line.fail(fmt::format("field '{}' is {}; legal is 0 for {}", field, line.number(field, ~std::uint64_t{0}), op));
    }
    return line.number(field, most);
  }

  std::string_view file_;
  Trace trace_;
  std::uint64_t device_ns_ = 0, total_ns_ = 0, total_bytes_ = 0;
  std::bitset<kMaxTraceStreams> marked_;
};

}  // namespace

std::string_view name_of(TraceOp op) noexcept { return kOpNames[static_cast<std::size_t>(op)]; }

TraceTotals totals_of(const Trace& trace) {
  TraceTotals totals;
  for (const TraceRecord& record : trace.records) {
    TraceTotals::Op& op = totals.ops[static_cast<std::size_t>(record.op)];
    ++op.count;
    op.blocking += record.blocking ? 1 : 0;
    op.bytes_out += record.bytes_out;
    op.bytes_back += record.bytes_back;
    totals.blocking += record.blocking ? 1 : 0;
    totals.bytes_out += record.bytes_out;
    totals.bytes_back += record.bytes_back;
    totals.gap_ns += record.gap_ns;
    totals.device_ns += record.device_ns;
    totals.streams = std::max<std::size_t>(totals.streams, std::size_t{record.stream} + 1);
  }
  return totals;
}

Result<Trace> parse_trace(std::string_view text, std::string_view file) {
  Parser parser(file);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (Status status = parser.add(text.substr(0, end), number); !status.ok()) return status;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parser.finish();
}

Result<Trace> read_trace(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return file_error("open", path, errno);
  std::string text;
  for (;;) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const ssize_t got = ::read(file.get(), text.data() + before, kPiece);
    if (got < 0 && errno != EINTR) return file_error("read", path, errno);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (text.size() > kMaxTraceFile) {
      return Status(Code::kDataLoss, fmt::format("{}: more than {} bytes, the most of a trace", path, kMaxTraceFile));
    }
  }
  return parse_trace(text, path);
}

}  // namespace fairlead::bench
