#include "bench/net/report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bench/base/file_output.h"
#include "bench/base/sizes.h"
#include "bench/net/columns.h"

namespace fairlead::bench {
namespace {

using testing::HasSubstr;

Sample sample_of(std::uint64_t size, std::uint64_t count) {
  Sample sample;
  sample.size = size;
  sample.iterations = count;
  sample.seconds = 2;
  sample.initiator_cpu = {.user = 0.75, .system = 0.25, .softirq = 0.1};
  sample.target_cpu = {.user = 0.5, .system = 0, .softirq = 0};
  sample.verified = true;
  for (std::uint64_t i = 1; i <= 100; ++i) sample.latency.record(i * 100);
  return sample;
}

Measured measured_of(const Sample& sample) {
  Measured measured;
  measured.add(sample);
  return measured;
}

std::vector<std::string> words_of_line(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Report, HasEveryFieldThatTheSchemaPromises) {
  Plan plan;
  EngineConfig config;
  config.verbs.packet_io = "udp,drop=0.01";
  const std::vector<Measured> samples = {measured_of(sample_of(1'000'000, 1000)), measured_of(sample_of(8, 10))};
  const Json document = report(plan, config, {"verbs:soft0", "softroce over UDP", "why", true}, samples);
  for (const char* name : {"schema", "commit", "host", "transport", "device", "packet_io", "op", "results"}) {
    EXPECT_NE(document.find(name), nullptr) << name;
  }
  EXPECT_EQ(*document.find("schema")->string(), "fairlead.bench/1");
  EXPECT_EQ(*document.find("packet_io")->string(), "udp,drop=0.01");
  EXPECT_EQ(*document.find("latency_kind")->string(), "completion_under_load");
  for (const char* name : {"cpu_model", "cores", "kernel"})
    EXPECT_NE(document.find("host")->find(name), nullptr) << name;
  const Json& first = (*document.find("results")->array())[0];
  EXPECT_EQ(first.find("size_bytes")->uint(), 1'000'000U);
  EXPECT_EQ(first.find("iterations")->uint(), 1000U);
  EXPECT_DOUBLE_EQ(*first.find("bytes_per_second")->number(), 5e8);
  EXPECT_DOUBLE_EQ(*first.find("messages_per_second")->number(), 500);
  EXPECT_DOUBLE_EQ(*first.find("cpu_seconds_per_gb")->find("initiator")->number(), 1);
  EXPECT_DOUBLE_EQ(*first.find("cpu_seconds_per_gb")->find("target")->number(), 0.5);
  for (const char* name : {"min", "p50", "p90", "p99", "p999", "max"}) {
    ASSERT_NE(first.find("latency_ns")->find(name), nullptr) << name;
  }
  EXPECT_NEAR(static_cast<double>(*first.find("latency_ns")->find("p50")->uint()), 5000, 50);
  EXPECT_EQ(first.find("latency_ns")->find("max")->uint(), 10'000U);
  const Result<Json> read_back = Json::parse(document.dump(2));
  ASSERT_TRUE(read_back) << read_back.error().to_string();
  EXPECT_EQ(read_back->dump(), document.dump());
}

TEST(Report, TellsProcessorTimeApartAndAsCores) {
  const Json document = report({}, {}, {"tcp", "tcp", "", false}, std::vector{measured_of(sample_of(1'000'000, 1000))});
  const Json& cpu = *(*document.find("results")->array())[0].find("cpu")->find("initiator");
  EXPECT_DOUBLE_EQ(*cpu.find("user_seconds")->number(), 0.75);
  EXPECT_DOUBLE_EQ(*cpu.find("system_seconds")->number(), 0.25);
  EXPECT_DOUBLE_EQ(*cpu.find("host_softirq_seconds")->number(), 0.1);
  EXPECT_DOUBLE_EQ(*cpu.find("cores")->number(), 0.5);  // a second of it in two
}

TEST(Report, RepeatsAreMergedAndTheirSpreadIsTold) {
  Measured measured = measured_of(sample_of(1'000'000, 1000));
  EXPECT_EQ(report({}, {}, {}, std::vector{measured}).find("results")->array()->at(0).find("repeats")->type_name(),
            "null");
  measured.add(sample_of(1'000'000, 2000));
  const Json document = report({}, {}, {}, std::vector{measured});
  const Json& result = document.find("results")->array()->at(0);
  EXPECT_EQ(result.find("iterations")->uint(), 3000U);
  EXPECT_DOUBLE_EQ(*result.find("bytes_per_second")->number(), 7.5e8);
  EXPECT_EQ(result.find("verified")->boolean(), true);
  const Json& rate = *result.find("repeats")->find("bytes_per_second");
  EXPECT_DOUBLE_EQ(*rate.find("mean")->number(), 7.5e8);
  EXPECT_LT(*rate.find("low")->number(), 5e8);
  EXPECT_THAT(repeats_line(measured), testing::AllOf(HasSubstr("2 runs"), HasSubstr("too few for an interval")));
}

TEST(Report, BothDirectionsAreToldApart) {
  Plan plan;
  plan.bidirectional = true;
  Sample sample = sample_of(1000, 8);
  sample.add_part({.name = "to target", .iterations = 6, .seconds = 2});
  sample.add_part({.name = "from target", .iterations = 2, .seconds = 2});
  const Json document = report(plan, {}, {"tcp", "tcp", "", false}, std::vector{measured_of(sample)});
  EXPECT_EQ(*document.find("op")->string(), "write+read");
  const Json::Array& parts = *document.find("results")->array()->at(0).find("parts")->array();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(*parts[0].find("name")->string(), "to target");
  EXPECT_EQ(parts[1].find("iterations")->uint(), 2U);
  EXPECT_DOUBLE_EQ(*parts[1].find("bytes_per_second")->number(), 1000);
  EXPECT_THAT(table_head(plan), HasSubstr("write+read"));
  EXPECT_THAT(part_line(sample.parts[0], 1000), testing::EndsWith("to target"));
}

TEST(Report, WhatWasSentAgainIsToldIfItIsKnown) {
  Sample sample = sample_of(1000, 8);
  const auto field = [](const Sample& of, const char* end) {
    const Json document = report({}, {}, {}, std::vector{measured_of(of)});
    return *document.find("results")->array()->at(0).find("retransmissions")->find(end);
  };
  EXPECT_EQ(field(sample, "initiator").type_name(), "null");
  EXPECT_THAT(table_line(sample), testing::Not(HasSubstr("retransmissions")));
  sample.initiator_sent_again = 0;
  EXPECT_EQ(field(sample, "initiator").uint(), 0U);
  EXPECT_THAT(table_line(sample), testing::Not(HasSubstr("retransmissions")));
  sample.target_sent_again = 3;
  EXPECT_EQ(field(sample, "target").uint(), 3U);
  EXPECT_THAT(table_line(sample), testing::EndsWith("retransmissions: 0, target 3"));
  Sample other = sample;
  sample.merge(other);
  EXPECT_EQ(sample.target_sent_again, 6U);
  other.target_sent_again.reset();
  sample.merge(other);
  EXPECT_FALSE(sample.target_sent_again) << "of one nothing is known";
}

TEST(Report, ColumnsOfPerftest) {
  Plan plan;
  Sample sample = sample_of(1'000'000, 1000);
  EXPECT_THAT(perftest_head(plan), testing::StartsWith(" #bytes     #iterations    BW peak[GB/s] "));
  EXPECT_THAT(words_of_line(perftest_line(plan, sample)),
              testing::ElementsAre("1000000", "1000", "-", "0.500000", "0.000500"));
  plan.kind = Kind::kLatency;
  EXPECT_THAT(perftest_head(plan), HasSubstr("t_typical[usec]"));
  const std::vector<std::string> words = words_of_line(perftest_line(plan, sample));
  ASSERT_EQ(words.size(), 9U);  // of 0.1 to 10 us
  EXPECT_THAT(words, testing::Contains("10.00"));
  EXPECT_NEAR(std::stod(words[5]), 5.05, 0.05);
  EXPECT_NEAR(std::stod(words[6]), 2.89, 0.05);
  sample.verified = false;
  EXPECT_THAT(perftest_line(plan, sample), testing::EndsWith("  not verified"));
}

TEST(Report, CsvHasAsManyFieldsAsNames) {
  const auto fields = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  const std::string line = csv_line({}, {"tcp", "tcp", "", false}, measured_of(sample_of(4096, 10)));
  EXPECT_EQ(fields(line), fields(csv_head()));
  EXPECT_THAT(line, testing::StartsWith("tcp,bw,write,4096,10,2,20480,5,"));
  EXPECT_THAT(line, testing::EndsWith(",true,false\n"));
}

TEST(Report, PacketIoIsNullWhereThereIsNone) {
  const Json document = report({}, {}, {"tcp", "tcp", "", false}, {});
  EXPECT_EQ(document.find("packet_io")->type_name(), "null");
}

TEST(Report, LatencyKinds) {
  Plan plan;
  plan.kind = Kind::kLatency;
  EXPECT_EQ(latency_kind(plan), "half_round_trip");
  plan.op = Op::kRead;
  EXPECT_EQ(latency_kind(plan), "full_read");
  plan.rate = 100;
  EXPECT_EQ(latency_kind(plan), "round_trip_since_due");
  plan.kind = Kind::kBandwidth;
  EXPECT_EQ(latency_kind(plan), "completion_since_due");
}

TEST(Report, SaysHowAWriteWasSeenWhereThatMatters) {
  const auto arrival = [](const Plan& plan) {
    const Json document = report(plan, {}, {"tcp", "tcp", "", false}, {});
    const Json* field = document.find("arrival");
    return field != nullptr && field->string() != nullptr ? *field->string() : "";
  };
  Plan plan;
  EXPECT_EQ(arrival(plan), "") << "bandwidth";
  plan.kind = Kind::kLatency;
  EXPECT_EQ(arrival(plan), "notification");
  plan.arrival = Arrival::kMemory;
  EXPECT_EQ(arrival(plan), "memory");
  plan.op = Op::kSend;
  EXPECT_EQ(arrival(plan), "");
}

TEST(Report, TableSaysWhenNothingWasVerified) {
  Sample sample = sample_of(4096, 10);
  EXPECT_THAT(table_line(sample), HasSubstr("4K"));
  EXPECT_THAT(table_line(sample), testing::Not(HasSubstr("not verified")));
  sample.verified = false;
  EXPECT_THAT(table_line(sample), HasSubstr("not verified"));
}

TEST(Report, WhatWasInterruptedIsMarked) {
  Sample sample = sample_of(4096, 10);
  sample.verified = false;
  sample.interrupted = true;
  EXPECT_THAT(table_line(sample), testing::EndsWith("interrupted, not verified"));
  const Json document =
      report({}, {}, {"tcp", "tcp", "", false}, std::vector{measured_of(sample), measured_of(sample_of(8, 1))});
  const Json::Array& results = *document.find("results")->array();
  EXPECT_EQ(results[0].find("interrupted")->boolean(), true);
  EXPECT_EQ(results[1].find("interrupted")->boolean(), false);
  EXPECT_EQ(document.find("interrupted")->boolean(), false);
  EXPECT_EQ(document.find("error")->type_name(), "null");
  sample.verified = true;  // it lacks a repeat
  EXPECT_THAT(table_line(sample), testing::EndsWith("  interrupted"));
  Setting setting;
  setting.interrupted = true;
  setting.error = "size 8: lost the target";
  const Json failed = report({}, {}, setting, {});
  EXPECT_EQ(failed.find("interrupted")->boolean(), true);
  EXPECT_EQ(*failed.find("error")->string(), setting.error);
}

TEST(WriteText, ReplacesFilesWritesToDevicesAndNamesWhatItCannot) {
  const std::string path = testing::TempDir() + "fairlead_write_text_test";
  ASSERT_TRUE(write_text(path, "old").ok());
  ASSERT_TRUE(write_text(path, "new\n").ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "new\n");
  std::remove(path.c_str());
  EXPECT_TRUE(write_text("/dev/null", "x").ok());
  EXPECT_FALSE(std::ifstream("/dev/null").fail());
  EXPECT_THAT(write_text("/nonexistent/x", "x").message(), HasSubstr("/nonexistent/x"));
}

}  // namespace
}  // namespace fairlead::bench
