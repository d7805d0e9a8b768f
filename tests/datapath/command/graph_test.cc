// Graphs at the server, fed by hand: what a client may say of them that is wrong.
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Failure;
using fairlead::command::kInvalidValue;
using fairlead::command::kOutOfMemory;
using fairlead::command::Scope;
using testing::HasSubstr;

constexpr std::uint64_t kGraph = 9;

class CommandGraph : public FedSession {
 protected:
  static std::vector<std::byte> fill(std::uint64_t handle) { return record(Opcode::kFill, FillBody{handle, 0, 8, 1}); }
  static std::vector<std::byte> upload(Bytes records, std::uint64_t count, std::uint64_t handle = kGraph) {
    return record(Opcode::kGraph, GraphBody{handle, records.size(), count}, records, kInline);
  }
  static std::vector<std::byte> together(std::initializer_list<std::vector<std::byte>> records) {
    std::vector<std::byte> all;
    for (const auto& each : records) all.insert(all.end(), each.begin(), each.end());
    return all;
  }
  void give_records(std::uint64_t sequence, Bytes records) {
    std::vector<std::byte> message = make_message(
        {.type = static_cast<std::uint8_t>(MessageType::kPayload), .channel = 0, .count = 1, .sequence = sequence});
    message.insert(message.end(), records.begin(), records.end());
    session_->take(std::move(message), TrafficClass::kBulk);
  }
  /// Uploads it in a session of its own, in which allocation 1 has 8 bytes: its failure.
  std::optional<Failure> failure_of(const std::vector<std::byte>& graph) {
    greet();
    give(0, 1, {allocate(1, 8), graph});
    run();
    EXPECT_FALSE(session_->is_over());
    return replies(0).failure;
  }
};

TEST_F(CommandGraph, BytesThatAreNoCommandsRefuseItByNumber) {
  EXPECT_FALSE(failure_of(upload(fill(1), 1)));
  const auto refused = [this](const std::vector<std::byte>& records, std::string_view words) {
    const std::optional<Failure> failure = failure_of(upload(records, 2));
    ASSERT_TRUE(failure) << words;
    EXPECT_EQ(failure->sequence, 2u);
    EXPECT_EQ(failure->scope, Scope::kCommand);
    EXPECT_EQ(failure->result, kInvalidValue);
    EXPECT_THAT(failure->text, HasSubstr(words));
  };
  refused(together({fill(1), std::vector<std::byte>(7)}), "command 2 of graph 9 is cut short");
  refused(together({fill(1), std::vector<std::byte>(8)}), "command 2 of graph 9 is cut short");
  refused(together({fill(1), record(Opcode::kFill, ReleaseBody{1})}), "command 2 of graph 9 is malformed");
  refused(together({fill(1), record(Opcode::kLaunch, LaunchBody{1, {1, 1, 1}, {1, 1, 1}, 0, 4096})}),
          "command 2 of graph 9 is malformed");
  refused(together({fill(1), record(Opcode::kCopyWithin, CopyWithinBody{1, 0, 1, 3, 4})}),
          "command 2 of graph 9 copies within memory that overlaps");
  refused(fill(1), "graph 9 has 1 commands, and was said to have 2");
  refused({}, "graph 9 has 0 commands");
  const std::string name = "nothing";
  const std::vector<std::vector<std::byte>> strange{
      allocate(2, 8),
      record(Opcode::kRelease, ReleaseBody{1}),
      record(Opcode::kCopyIn, CopyBody{1, 0, 8}),
      record(Opcode::kCopyIn, CopyBody{1, 0, 0}, {}, kInline),
      record(Opcode::kCopyOut, CopyBody{1, 0, 8}),
      load(3, name),
      record(static_cast<std::uint16_t>(Opcode::kMark), 0, {}),
      record(Opcode::kFence, FenceBody{1, 1}),
      record(Opcode::kRecover, RecoverBody{1}),
      record(Opcode::kModule, ModuleBody{}),
      record(Opcode::kLoadFrom, LoadFromBody{}),
      upload(fill(1), 1, 10),
      record(Opcode::kLaunchGraph, GraphHandleBody{kGraph}),
      record(Opcode::kReleaseGraph, GraphHandleBody{kGraph}),
      record(Opcode::kAllocateAt, AllocateAtBody{}),
      record(77, 0, {}),
      record(Opcode(kFirstUserOpcode), UserBody{0}),
  };
  for (const auto& each : strange) {
    refused(together({fill(1), each}), "command 2 of graph 9 is of a kind that a graph does not take");
  }
}

TEST_F(CommandGraph, HandlesAndLimitsAreChecked) {
  ServerSession::Terms terms;
  terms.graph_records = 3;
  terms.graph_bytes = 100;
  const auto last = [this](const std::vector<std::vector<std::byte>>& records) {
    std::vector<std::vector<std::byte>> all{allocate(1, 8)};
    all.insert(all.end(), records.begin(), records.end());
    give(0, 1, all);
    run();
    const std::optional<Failure> failure = replies(0).failure;
    EXPECT_TRUE(failure && failure->sequence == all.size());
    return failure.value_or(Failure());
  };
  const std::vector<std::byte> one = fill(1), two = together({one, one});
  greet(terms);
  EXPECT_THAT(last({upload(one, 1, 0)}).text, HasSubstr("handle 0 names a graph already, or nothing"));
  greet(terms);
  EXPECT_THAT(last({upload(one, 1), upload(one, 1)}).text, HasSubstr("handle 9 names a graph already"));
  greet(terms);
  Failure failure = last({upload(two, 2), upload(two, 2, 10)});
  EXPECT_EQ(failure.result, kOutOfMemory);
  EXPECT_THAT(failure.text, HasSubstr("2 commands in 80 bytes beside 2 in 80, of 3 in 100"));
  greet(terms);
  EXPECT_EQ(last({upload(two, 2), upload(one, 1, 10)}).result, kOutOfMemory) << "the commands, but not the bytes";
  greet(terms);
  EXPECT_EQ(last({upload(one, ~std::uint64_t{0})}).result, kOutOfMemory);
  greet(terms);
  // What is given back may be had again, once.
  const std::vector<std::byte> release = record(Opcode::kReleaseGraph, GraphHandleBody{kGraph});
  failure = last({upload(two, 2), release, upload(two, 2), release, release});
  EXPECT_THAT(failure.text, HasSubstr("handle 9 names no graph"));
}

TEST_F(CommandGraph, PayloadIsItsRecords) {
  greet();
  std::vector<std::byte> records;
  while (records.size() <= kMaxInline) {
    const std::vector<std::byte> one = fill(1);
    records.insert(records.end(), one.begin(), one.end());
  }
  const std::uint64_t count = records.size() / fill(1).size();
  const auto graph = [&](std::uint64_t handle, std::size_t bytes) {
    return record(Opcode::kGraph, GraphBody{handle, bytes, count});
  };
  give(0, 1, {allocate(1, 8), graph(kGraph, records.size()), record(Opcode::kLaunchGraph, GraphHandleBody{kGraph})});
  run();
  EXPECT_EQ(replies(0).executed, 1u) << "it waits for them";
  give_records(2, records);
  run();
  EXPECT_EQ(replies(0).executed, 3u);
  EXPECT_FALSE(replies(0).failure);
  give(0, 4, {graph(10, records.size() + 8)});
  give_records(4, records);
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_THAT(replies(0).failure->text, HasSubstr("came with " + std::to_string(records.size()) + " of payload"));
  // What another record's payload stands before will never come.
  greet();
  give(0, 1, {allocate(1, 8), graph(kGraph, records.size()), graph(10, records.size())});
  give_records(3, records);
  run();
  EXPECT_THAT(refusal().message(), HasSubstr("command 2 of channel 0 takes bytes that were not sent"));
}

TEST_F(CommandGraph, AFaultInOneLosesTheContext) {
  greet();
  const std::vector<std::byte> records = together({fill(1), launch(2), launch(3)});
  give(0, 1,
       {allocate(1, 8), load(2, "nothing"), load(3, "fault"), upload(records, 3),
        record(Opcode::kLaunchGraph, GraphHandleBody{kGraph})});
  run();
  const Reply end = replies(0);
  ASSERT_TRUE(end.failure);
  EXPECT_EQ(end.failure->sequence, 5u);
  EXPECT_EQ(end.failure->scope, Scope::kContext);
  EXPECT_THAT(end.failure->text, HasSubstr("command 3 of graph 9: 'fault' failed: a fault"));
}

// ---- updates -------------------------------------------------------------------------------------------------------

class GraphUpdate : public CommandGraph {
 protected:
  /// set(to, value): the byte there.
  void add_kernels(HostExecutorConfig& config) override {
    using fairlead::command::Call;
    using fairlead::command::ParameterKind;
    config.kernels.push_back({"set",
                              {{ParameterKind::kPointer}, {ParameterKind::kU32}},
                              [](const Call&, std::size_t) { return std::uint64_t{1}; },
                              [this](const Call& call) {
                                ++ran_;
                                *call.pointer<std::uint8_t>(0) = static_cast<std::uint8_t>(call.u32(1));
                                grid_ = call.grid.x;
                                return Status();
                              },
                              true});
  }
  static constexpr std::uint64_t kSet = 5;
  static auto parameters(std::uint64_t handle, std::uint64_t offset, std::uint32_t value) {
    return fairlead::command::pack(fairlead::command::Pointer{{handle}, offset}, value);
  }
  static std::vector<std::byte> set(std::uint64_t handle, std::uint64_t offset, std::uint32_t value) {
    const auto bytes = parameters(handle, offset, value);
    return record(Opcode::kLaunch, LaunchBody{kSet, {1, 1, 1}, {1, 1, 1}, 0, bytes.size()}, bytes);
  }
  static std::vector<std::byte> update(std::uint32_t number, Bytes bytes, std::uint32_t grid = 1,
                                       std::uint64_t graph = kGraph) {
    const auto size = static_cast<std::uint32_t>(bytes.size());
    return record(Opcode::kUpdateGraph, UpdateGraphBody{graph, number, size, {grid, 1, 1}, {1, 1, 1}, 0, 0}, bytes,
                  kMustKnow);
  }
  static std::vector<std::byte> launch_graph() {
    return record(Opcode::kLaunchGraph, GraphHandleBody{kGraph}, {}, kMustKnow);
  }
  /// Allocations 1 and 2, and a graph: a fill of 1, then two launches that set bytes 0 and 1 of it.
  void make() {
    greet();
    const std::vector<std::byte> records = together({fill(1), set(1, 0, 10), set(1, 1, 20)});
    next({allocate(1, 8), allocate(2, 8), load(kSet, "set"), upload(records, 3)});
    ASSERT_FALSE(replies(0).failure);
  }
  void next(const std::vector<std::vector<std::byte>>& records) {
    give(0, last_ + 1, records);
    last_ += records.size();
    run();
  }
  /// The first bytes of an allocation.
  std::string bytes_of(std::uint64_t handle, std::size_t count) {
    sent_.clear();
    next({record(Opcode::kCopyOut, CopyBody{handle, 0, count})});
    Bytes body = sent_.back();
    const auto header = take<MessageHeader>(body);
    const auto reply = read_reply(*header, body);
    Bytes data = reply->data;
    const auto item = take_data(data);
    std::string text;
    for (const std::byte byte : item->bytes) text += fmt::format("{} ", static_cast<int>(byte));
    return text;
  }
  /// What the last command failed for; the channel goes on.
  Failure failed(const std::vector<std::byte>& record_of_it) {
    next({record_of_it});
    const std::optional<Failure> failure = replies(0).failure;
    EXPECT_TRUE(failure);
    if (!failure) return {};
    EXPECT_EQ(failure->sequence, last_);
    EXPECT_EQ(failure->scope, Scope::kCommand);
    sent_.clear();
    next({record(Opcode::kRecover, RecoverBody{failure->sequence})});
    return *failure;
  }

  std::uint64_t last_ = 0;
  int ran_ = 0;
  std::uint32_t grid_ = 0;
};

TEST_F(GraphUpdate, ALaunchHasOtherParametersFromThenOn) {
  make();
  next({launch_graph()});
  EXPECT_EQ(bytes_of(1, 3), "10 20 1 ");
  next({update(3, parameters(2, 0, 77), 5), launch_graph()});
  EXPECT_EQ(bytes_of(1, 3), "10 1 1 ");
  EXPECT_EQ(bytes_of(2, 2), "77 0 ");
  EXPECT_EQ(grid_, 5u);
  next({update(2, parameters(1, 2, 30)), update(2, parameters(1, 2, 31)), launch_graph()});
  EXPECT_EQ(bytes_of(1, 3), "1 1 31 ") << "the last one counts";
  EXPECT_EQ(ran_, 6);
}

TEST_F(GraphUpdate, WhatIsWrongIsSaidAndLeavesTheGraphAsItWas) {
  make();
  const auto few = fairlead::command::pack(fairlead::command::Pointer{{1}});
  struct Wrong {
    std::vector<std::byte> update;
    std::int32_t result;
    const char* words;
  };
  const std::vector<Wrong> all{
      {update(0, parameters(1, 0, 9)), kInvalidValue, "command 0 of graph 9 is no launch"},
      {update(4, parameters(1, 0, 9)), kInvalidValue, "command 4 of graph 9 is no launch"},
      {update(1, parameters(1, 0, 9)), kInvalidValue, "command 1 of graph 9 is no launch"},
      {update(2, few), kInvalidValue, "command 2 of graph 9: 'set' takes 20 bytes"},
      {update(2, parameters(3, 0, 9)), fairlead::command::kInvalidHandle, "command 2 of graph 9: parameter 0 of 'set'"},
      {update(2, parameters(1, 8, 9)), fairlead::command::kIllegalAddress, "command 2 of graph 9"},
      {update(2, parameters(1, 0, 9), 0), kInvalidValue, "past the limits"},
      {update(2, parameters(1, 0, 9), 1, 8), fairlead::command::kInvalidHandle, "handle 8 names no graph"},
  };
  for (const Wrong& each : all) {
    const Failure failure = failed(each.update);
    EXPECT_EQ(failure.result, each.result) << each.words;
    EXPECT_THAT(failure.text, HasSubstr(each.words));
    next({launch_graph()});
    EXPECT_EQ(bytes_of(1, 3), "10 20 1 ") << each.words;
  }
}

// One that cannot be launched, as memory of it was released, can again when nothing of it uses that.
TEST_F(GraphUpdate, BringsBackAGraphWhoseMemoryWasReleased) {
  greet();
  const std::vector<std::byte> records = together({set(1, 0, 10), set(1, 1, 20), set(2, 0, 30)});
  next({allocate(1, 8), allocate(2, 8), load(kSet, "set"), upload(records, 3),
        record(Opcode::kRelease, ReleaseBody{1})});
  EXPECT_THAT(failed(launch_graph()).text, HasSubstr("command 1 of graph 9 uses allocation 1"));
  // Another one of that name is another one.
  next({allocate(1, 8), update(1, parameters(1, 2, 11))});
  EXPECT_THAT(failed(launch_graph()).text, HasSubstr("command 2 of graph 9 uses allocation 1"));
  EXPECT_EQ(ran_, 0);
  next({update(2, parameters(2, 1, 21)), launch_graph()});
  EXPECT_EQ(bytes_of(1, 3), "0 0 11 ");
  EXPECT_EQ(bytes_of(2, 2), "30 21 ");
  // What it uses since then counts, and what it does not use any more does not.
  next({update(1, parameters(2, 4, 50)), record(Opcode::kRelease, ReleaseBody{1}), launch_graph()});
  EXPECT_FALSE(replies(0).failure);
  next({record(Opcode::kRelease, ReleaseBody{2})});
  EXPECT_THAT(failed(launch_graph()).text, HasSubstr("command 1 of graph 9 uses allocation 2"));
  next({record(Opcode::kReleaseGraph, GraphHandleBody{kGraph}, {}, kMustKnow)});
  EXPECT_FALSE(replies(0).failure);
}

TEST_F(GraphUpdate, ParametersThatAreCutShortEndTheSession) {
  make();
  std::vector<std::byte> cut = update(2, parameters(1, 0, 9));
  UpdateGraphBody body;
  std::memcpy(&body, cut.data() + sizeof(RecordHeader), sizeof body);
  body.parameter_bytes = 100;
  std::memcpy(cut.data() + sizeof(RecordHeader), &body, sizeof body);
  give(0, last_ + 1, {cut});
  EXPECT_EQ(refusal().code(), Code::kDataLoss);
}

// Bytes of graphs are bytes that a tenant copies in: they wait for its bandwidth.
class PaidGraph : public CommandGraph {
 protected:
  [[nodiscard]] bool may_copy(std::uint64_t bytes) override {
    if (!may_) return false;
    paid_ += bytes;
    return true;
  }
  bool may_ = false;
  std::uint64_t paid_ = 0;
};

TEST_F(PaidGraph, WaitsForItsTenantsBandwidth) {
  greet();
  std::vector<std::byte> records;
  for (int i = 0; i < 100; ++i) {
    const std::vector<std::byte> one = fill(1);
    records.insert(records.end(), one.begin(), one.end());
  }
  give(0, 1, {allocate(1, 8), upload(fill(1), 1, 1), record(Opcode::kGraph, GraphBody{2, records.size(), 100})});
  give_records(3, records);
  run();
  EXPECT_EQ(replies(0).executed, 1u);
  EXPECT_TRUE(session_->is_held());
  EXPECT_EQ(paid_, 0u);
  may_ = true;
  run();
  EXPECT_EQ(replies(0).executed, 3u);
  EXPECT_FALSE(replies(0).failure);
  EXPECT_EQ(paid_, fill(1).size() + records.size());
}

}  // namespace
}  // namespace fairlead::datapath::command
