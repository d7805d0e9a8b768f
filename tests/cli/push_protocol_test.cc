#include "cli/models/push_protocol.h"

#include <gmock/gmock.h>

namespace fairlead::cli {
namespace {

using testing::HasSubstr;

Result<PushMessage> decode_text(std::string_view text) { return decode(std::as_bytes(std::span(text))); }

TEST(PushProtocol, EveryMessageIsReadBack) {
  TensorEntry entry{{"conv1.weight", "F32", {64, 3, 7, 7}, 0, 37632}, 0xdeadbeef};
  TensorEntry scalar{{"n", "I64", {}, 0, 8}, {}};
  TensorEntry opaque{{"half", "F4", {2, 4}, 0, 4}, 0};
  const PushMessage messages[] = {
      PushBegin{"resnet50", 2, 161, 102'000'000},
      ModelFile{"model-00001-of-00002.safetensors", {{"format", "pt"}}, 161},
      ModelFile{"model.safetensors.index.json", {}, 1, true},
      TensorBatch{{entry, scalar, opaque}},
      PushReady{"push/17/"},
      PushFinish{},
      PushFinish{{0, 1, 0xffffffff}},
      PushResult{160, 1, {{"conv1.weight", "CRC differs"}}, 1.5},
      PullBegin{"resnet50"},
      PullReady{"model/resnet50/", 1, 2, 37640},
      PullFinish{},
      PullResult{0.25},
      ListModels{},
      Models{{{"a", 1, 2}, {"b", 3, 4}}},
      Refusal{Status(Code::kResourceExhausted, "no room")},
  };
  for (const PushMessage& message : messages) {
    const std::vector<std::byte> bytes = encode(message);
    const Result<PushMessage> back = decode(bytes);
    ASSERT_TRUE(back) << back.error().to_string();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes) << type_name(message);
  }
  const auto batch = std::get<TensorBatch>(*decode(encode(TensorBatch{{entry, scalar}})));
  EXPECT_EQ(batch.entries[0].tensor.bytes, 37632U);
  EXPECT_EQ(batch.entries[0].crc, 0xdeadbeefU);
  EXPECT_EQ(batch.entries[1].tensor.bytes, 8U);
  EXPECT_FALSE(batch.entries[1].crc.has_value());
}

TEST(PushProtocol, AnotherVersionIsNamed) {
  const auto other = decode_text(R"({"v":3,"type":"push_finish"})");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kVersionMismatch);
  EXPECT_THAT(other.error().message(), HasSubstr("version 3"));
}

TEST(PushProtocol, RefusesMalformedMessages) {
  for (
      const char* text :
      {"",
       "x",
       "[]",
       "{}",
       R"({"v":2})",
       R"({"v":"1","type":"push_finish"})",
       R"({"v":2,"type":"nonsense"})",
       R"({"v":2,"type":"push_begin"})",
       R"({"v":2,"type":"push_begin","model":1,"files":1,"tensors":1,"bytes":1})",
       R"({"v":2,"type":"push_begin","model":"m","files":1025,"tensors":1,"bytes":1})",
       R"({"v":2,"type":"push_begin","model":"m","files":1,"tensors":65537,"bytes":1})",
       R"({"v":2,"type":"push_begin","model":"m","files":1,"tensors":-1,"bytes":1})",
       R"({"v":2,"type":"push_begin","model":"m","files":1,"tensors":1,"bytes":9223372036854775808})",
       R"({"v":2,"type":"file","name":"../x","metadata":[],"tensors":1,"raw":false})",
       R"({"v":2,"type":"file","name":"..","metadata":[],"tensors":1,"raw":false})",
       R"({"v":2,"type":"file","name":"x","metadata":[["a"]],"tensors":1,"raw":false})",
       R"({"v":2,"type":"file","name":"x","metadata":[],"tensors":2,"raw":true})",
       R"({"v":2,"type":"file","name":"x","metadata":[],"tensors":1,"raw":0})",
       R"({"v":2,"type":"push_finish","crc32":[4294967296]})",
       R"({"v":2,"type":"push_finish","crc32":3})",
       R"({"v":2,"type":"tensors","tensors":[{"name":"a","dtype":"F\n1","shape":[1],"bytes":4,"crc32":1}]})",
       R"({"v":2,"type":"tensors","tensors":[{"name":"a","dtype":"F32","shape":[2],"bytes":4,"crc32":1}]})",
       R"({"v":2,"type":"tensors","tensors":[{"name":"a","dtype":"F32","shape":[4611686018427387904],"bytes":4,"crc32":1}]})",
       R"({"v":2,"type":"tensors","tensors":[{"name":"a","dtype":"F32","shape":[1],"bytes":4,"crc32":4294967296}]})",
       R"({"v":2,"type":"tensors","tensors":[3]})",
       R"({"v":2,"type":"tensors","tensors":[{"name":"__metadata__","dtype":"U8","shape":[1],"bytes":1,"crc32":1}]})",
       R"({"v":2,"type":"push_result","verified":1,"failed":0,"failures":[],"cpu_seconds":-1})"}) {
    const auto message = decode_text(text);
    ASSERT_FALSE(message) << text;
    EXPECT_EQ(message.error().code(), Code::kDataLoss) << text;
    EXPECT_FALSE(message.error().message().empty());
  }
  EXPECT_FALSE(decode(std::vector<std::byte>(kMaxPushMessage + 1, std::byte{' '})));
}

TEST(PushProtocol, AServerOfCommandsIsRecognised) {
  std::vector<std::byte> refused(60, std::byte{0});
  refused[0] = std::byte{3};
  const auto message = decode(refused);
  ASSERT_FALSE(message);
  EXPECT_THAT(message.error().message(), HasSubstr("need a `fairlead serve` without --gpu"));
  refused.resize(15);
  EXPECT_THAT(decode(refused).error().message(), HasSubstr("not valid JSON"));
}

TEST(PushProtocol, BatchesRespectTheLimits) {
  const std::string long_name(kMaxTensorName, '\x01');  // six bytes each as JSON
  std::vector<TensorEntry> entries;
  for (int i = 0; i < 1000; ++i) {
    entries.push_back({{long_name, "U8", std::vector<std::int64_t>(kMaxRank, 1), 0, 1}, 0});
  }
  std::size_t total = 0;
  for (const TensorBatch& batch : make_batches(entries)) {
    EXPECT_LE(batch.entries.size(), kMaxTensorsPerBatch);
    EXPECT_LE(encode(batch).size(), kMaxPushMessage);
    total += batch.entries.size();
  }
  EXPECT_EQ(total, entries.size());
  EXPECT_TRUE(make_batches({}).empty());
}

TEST(PushProtocol, LimitsAreKnownBeforeAnythingIsSent) {
  const auto with_metadata = [](std::size_t bytes, char c) {
    return std::vector{ModelFile{"m.safetensors", {{"tags", std::string(bytes, c)}}, 0}};
  };
  EXPECT_TRUE(check_limits("m", with_metadata(300'000, '"'), {}).ok());  // twice as long in a message
  for (const auto& files : {with_metadata(kMaxMetadata, 'a'), with_metadata(kMaxMetadata / 2, '\x01')}) {
    const Status status = check_limits("m.safetensors", files, {});
    EXPECT_EQ(status.code(), Code::kOutOfRange);
    EXPECT_THAT(status.message(), HasSubstr("the limit is 786432"));
  }
  const TensorEntry entry{{std::string(kMaxTensorName + 1, 'n'), "U8", {1}, 0, 1}, {}};
  EXPECT_EQ(check_limits("m", {}, std::vector{entry}).code(), Code::kOutOfRange);
  EXPECT_EQ(check_limits("m", {}, std::vector<TensorEntry>(kMaxTensors + 1)).code(), Code::kOutOfRange);
}

TEST(PushProtocol, ModelNames) {
  EXPECT_EQ(model_name_of("/data/resnet50.safetensors"), "resnet50");
  EXPECT_EQ(model_name_of("my model v1.safetensors"), "my_model_v1");
  EXPECT_EQ(model_name_of(".safetensors"), ".safetensors");
  EXPECT_EQ(model_name_of("/models/llama/"), "llama");
  EXPECT_EQ(model_name_of("llama/model.safetensors.index.json"), "model");
  EXPECT_EQ(model_name_of(".."), "model");
  EXPECT_FALSE(check_model_name("..").ok());
  EXPECT_TRUE(check_model_name(model_name_of("/x/\xff\xfe/")).ok());
  EXPECT_FALSE(check_model_name("").ok());
  EXPECT_FALSE(check_model_name("a/b").ok());
  EXPECT_FALSE(check_model_name(std::string(kMaxModelName + 1, 'a')).ok());
}

}  // namespace
}  // namespace fairlead::cli
