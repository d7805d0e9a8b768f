#include "bench/trace/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kHeader = R"({"fairlead_trace":1,"name":"n","made":"by hand"})";

std::string with(const std::string& record) { return kHeader + "\n" + record + "\n"; }

std::string error_of(const std::string& text) {
  const Result<Trace> trace = parse_trace(text, "a.jsonl");
  if (trace) return "no error";
  EXPECT_EQ(trace.error().code(), Code::kDataLoss);
  return trace.error().message();
}

TEST(Trace, AllFieldsAreRead) {
  const Result<Trace> trace = parse_trace(
      R"({"fairlead_trace":1,"name":"step","made":"by hand","device_ns":9}
{"gap_ns":5,"op":"launch","bytes_out":96,"bytes_back":0,"blocking":true,"stream":3,"device_ns":7}
{"gap_ns":0,"op":"launch","bytes_out":0,"bytes_back":0,"blocking":false,"stream":0}
{"gap_ns":1,"op":"copy_in","bytes_out":1000,"bytes_back":0,"blocking":false,"stream":1}
{"gap_ns":1,"op":"copy_out","bytes_out":0,"bytes_back":2000,"blocking":true,"stream":1}
{"gap_ns":1,"op":"mark","stream":1}
{"gap_ns":1,"op":"fence","stream":0,"on":1}
{"op":"synchronize","gap_ns":2})",
      "a.jsonl");
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->name, "step");
  EXPECT_EQ(trace->made, "by hand");
  ASSERT_EQ(trace->records.size(), 7U);
  const TraceRecord& first = trace->records[0];
  EXPECT_EQ(first.op, TraceOp::kLaunch);
  EXPECT_EQ(first.gap_ns, 5U);
  EXPECT_EQ(first.bytes_out, 96U);
  EXPECT_EQ(first.stream, 3);
  EXPECT_EQ(first.device_ns, 7U);
  EXPECT_TRUE(first.blocking);
  EXPECT_EQ(trace->records[1].device_ns, 9U);  // the header's
  EXPECT_EQ(trace->records[2].device_ns, 0U);  // a copy is no launch
  EXPECT_EQ(trace->records[3].bytes_back, 2000U);
  EXPECT_EQ(trace->records[5].on, 1);
  EXPECT_TRUE(trace->records[6].blocking);

  const TraceTotals totals = totals_of(*trace);
  EXPECT_EQ(totals.streams, 4U);
  EXPECT_EQ(totals.blocking, 3U);
  EXPECT_EQ(totals.bytes_out, 1096U);
  EXPECT_EQ(totals.bytes_back, 2000U);
  EXPECT_EQ(totals.gap_ns, 11U);
  EXPECT_EQ(totals.device_ns, 16U);
  EXPECT_EQ(totals.ops[static_cast<std::size_t>(TraceOp::kLaunch)].count, 2U);
  EXPECT_EQ(totals.ops[static_cast<std::size_t>(TraceOp::kLaunch)].blocking, 1U);
}

TEST(Trace, LimitsThemselvesAreLegal) {
  for (const std::string record :
       {R"({"op":"launch","gap_ns":10000000000,"bytes_out":4096,"device_ns":10000000000,"stream":15})",
        R"({"op":"copy_in","bytes_out":67108864})", R"({"op":"copy_out","bytes_back":67108864})"}) {
    EXPECT_TRUE(parse_trace(with(record), "a")) << record;
  }
}

TEST(Trace, ErrorsNameLineFieldValueAndLimit) {
  for (const auto& [record, words] : std::initializer_list<std::pair<const char*, std::vector<std::string>>>{
           {R"({"op":"launch","bytes_out":4097})", {"'bytes_out' is 4097", "0 to 4096"}},
           {R"({"op":"copy_in","bytes_out":67108865})", {"'bytes_out' is 67108865", "0 to 67108864"}},
           {R"({"op":"copy_in","bytes_back":1})", {"'bytes_back' is 1", "0 for copy_in"}},
           {R"({"op":"copy_out","bytes_out":8})", {"'bytes_out' is 8", "0 for copy_out"}},
           {R"({"op":"mark","bytes_out":8})", {"'bytes_out' is 8", "0 for mark"}},
           {R"({"op":"launch","gap_ns":10000000001})", {"'gap_ns' is 10000000001", "0 to 10000000000"}},
           {R"({"op":"launch","gap_ns":-1})", {"'gap_ns' is -1", "a whole number"}},
           {R"({"op":"launch","gap_ns":1.5})", {"'gap_ns' is 1.5", "a whole number"}},
           {R"({"op":"launch","gap_ns":1e3})", {"'gap_ns' is 1000.0", "a whole number"}},
           {R"({"op":"launch","gap_ns":"5"})", {"'gap_ns' is \"5\"", "a whole number"}},
           {R"({"op":"launch","gap_ns":99999999999999999999})", {"'gap_ns' is", "a whole number"}},
           {R"({"op":"launch","stream":16})", {"'stream' is 16", "0 to 15"}},
           {R"({"op":"launch","blocking":1})", {"'blocking' is 1", "true or false"}},
           {R"({"op":"lunch"})", {"'op' is 'lunch'", "launch, copy_in, copy_out, mark, fence, synchronize"}},
           {R"({"op":7})", {"'op' is 7", "a text"}},
           {R"({"gap_ns":7})", {"'op' is missing"}},
           {R"({"op":"launch","gapns":7})", {"no field 'gapns'", "legal: gap_ns, op"}},
           {R"({"op":"launch","op":"mark"})", {"'op' is there twice"}},
           {R"({"op":"copy_in","device_ns":7})", {"'device_ns' is for launch", "copy_in"}},
           {R"({"op":"launch","on":0})", {"'on' is for fence"}},
           {R"({"op":"fence"})", {"'on' is missing"}},
           {R"({"op":"fence","stream":1,"on":1})", {"'on' is 1", "own stream"}},
           {R"({"op":"fence","stream":1,"on":0})", {"'on' is 0", "without a mark"}},
           {R"({"op":"synchronize","blocking":false})", {"'blocking' is false", "always blocks"}},
           {R"([1])", {"a line is a JSON object", "array"}},
           {"7", {"a line is a JSON object", "number"}},
           {"", {"not valid JSON"}},
           {"{\"op\":\"launch\"", {"not valid JSON", "byte"}}}) {
    const std::string error = error_of(with(record));
    EXPECT_THAT(error, HasSubstr("a.jsonl: line 2: ")) << record;
    for (const std::string& word : words) EXPECT_THAT(error, HasSubstr(word)) << record;
  }
}

TEST(Trace, HeaderIsChecked) {
  for (const auto& [header, word] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"name":"n","made":"m"})", "'fairlead_trace' is missing"},
           {R"({"fairlead_trace":2,"name":"n","made":"m"})", "'fairlead_trace' is 2; legal is 1"},
           {R"({"fairlead_trace":1,"made":"m"})", "'name' is missing"},
           {R"({"fairlead_trace":1,"name":"n"})", "'made' is missing"},
           {R"({"fairlead_trace":1,"name":5,"made":"m"})", "'name' is 5"},
           {R"({"fairlead_trace":1,"name":"n","made":"m","device":5})", "no field 'device'"},
           {R"({"op":"launch"})", "'fairlead_trace' is missing"},
           {R"({"fairlead_trace":1,"name":"n","made":"m","device_ns":10000000001})", "'device_ns' is 10000000001"}}) {
    EXPECT_THAT(error_of(std::string(header) + "\n{\"op\":\"launch\"}\n"),
                AllOf(HasSubstr("a.jsonl: line 1: "), HasSubstr(word)));
  }
  EXPECT_THAT(error_of(kHeader), HasSubstr("no call in it"));
  EXPECT_THAT(error_of(""), HasSubstr("no call in it"));
}

TEST(Trace, SizesAreBounded) {
  const std::string name(kMaxTraceText + 1, 'x');
  EXPECT_THAT(error_of(R"({"fairlead_trace":1,"made":"m","name":")" + name + "\"}"), HasSubstr("at most 1024 bytes"));
  EXPECT_THAT(error_of(with(std::string(kMaxTraceLine + 1, ' '))), HasSubstr("it has 4097 bytes, of at most 4096"));
  EXPECT_THAT(error_of(with(std::string(kMaxTraceLine, '['))), HasSubstr("nested deeper"));
  std::string many = kHeader + "\n";
  for (std::size_t i = 0; i < kMaxTraceRecords; ++i) many += "{\"op\":\"mark\"}\n";
  EXPECT_TRUE(parse_trace(many, "a"));
  EXPECT_THAT(error_of(many + "{\"op\":\"mark\"}"), HasSubstr("line 1000002: more than 1000000 calls"));
  std::string slow = kHeader + "\n";
  for (int i = 0; i < 61; ++i) slow += "{\"op\":\"launch\",\"device_ns\":10000000000}\n";
  EXPECT_THAT(error_of(slow), HasSubstr("line 62: gaps and launches take 610000000000 ns so far"));
}

TEST(Trace, ForeignTextIsHarmlessInErrors) {
  const std::string error = error_of(with("{\"op\":\"\\u001b[2J\"}"));
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_THAT(error, HasSubstr("\\x1b"));
}

// What damage does to a trace: another trace within the limits, or an error that names where.
TEST(Trace, DamageIsSeenOrHarmless) {
  const std::string whole =
      with(R"({"gap_ns":5,"op":"launch","bytes_out":96,"blocking":true,"stream":3,"device_ns":7})") +
      R"({"op":"mark","stream":1})" + "\n" + R"({"op":"fence","on":1})" + "\n" +
      R"({"op":"copy_out","bytes_back":2000})" + "\n";
  ASSERT_TRUE(parse_trace(whole, "a"));
  std::mt19937 random(7);
  int refused = 0, taken = 0;
  const auto look = [&](const std::string& text) {
    const Result<Trace> trace = parse_trace(text, "a");
    if (!trace) {
      ++refused;
      EXPECT_TRUE(trace.error().message().starts_with("a: ")) << trace.error().message();
      return;
    }
    ++taken;
    EXPECT_FALSE(trace->records.empty());
    for (const TraceRecord& record : trace->records) {
      EXPECT_LE(record.gap_ns, kMaxTraceNs);
      EXPECT_LE(record.device_ns, kMaxTraceNs);
      EXPECT_LE(record.bytes_out, kMaxTraceCopy);
      EXPECT_LE(record.bytes_back, kMaxTraceCopy);
      EXPECT_LT(record.stream, kMaxTraceStreams);
      EXPECT_LT(record.on, kMaxTraceStreams);
    }
  };
  for (std::size_t end = 0; end < whole.size(); ++end) look(whole.substr(0, end));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char put : {'\0', '"', '{', '}', '9', '-', '\n', '\xff', ','}) {
      std::string damaged = whole;
      damaged[at] = put;
      look(damaged);
    }
  }
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 3; ++j) {
      const std::size_t from = random() % damaged.size(), to = random() % damaged.size();
      damaged.insert(to, damaged.substr(from, random() % 20));
    }
    look(damaged);
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(taken, 100);
}

TEST(Trace, FilesAreRead) {
  const std::string path = testing::TempDir() + fmt::format("trace-{}.jsonl", ::getpid());
  std::ofstream(path) << with(R"({"op":"launch"})");
  const Result<Trace> trace = read_trace(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->records.size(), 1U);
  EXPECT_THAT(read_trace(path).error().message(), AllOf(HasSubstr(path), HasSubstr("No such file")));
  EXPECT_THAT(read_trace("/").error().message(), HasSubstr("Is a directory"));
  EXPECT_THAT(read_trace("/dev/zero").error().message(), HasSubstr("more than 268435456 bytes"));
}

}  // namespace
}  // namespace fairlead::bench
