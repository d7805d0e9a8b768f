// What tests of the outbox share: an outbox, a path that takes what it has room for, and a peer's region of 64 KiB.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "datapath/flow/outbox.h"
#include "tests/datapath/counting_device.h"

namespace fairlead::datapath {

class OutboxTest : public testing::Test, protected OutboxUser {
 protected:
  static constexpr std::uint64_t kChunk = 1024;

  OutboxTest() {
    can.max_message = kPathHeaderBytes + 100;
    can.max_segments = 4;
    can.max_outstanding = 64;
    EXPECT_TRUE(table->attach(device).ok());
    auto added = table->add({.bytes = bytes});
    EXPECT_TRUE(added);
    range = *added;
    remote.name = "r";
    remote.id = 77;
    remote.size = 65536;
    remote.keys = {{0x10000, 5}};
    other.name = "s";
    other.id = 78;
    other.size = 65536;
    other.keys = {{0x30000, 6}};
    outbox.set_limits({.window = {.events = 4}, .max_message = 1000});
  }
  ~OutboxTest() override {
    range.reset();
    table->shutdown();
  }

  TransferImpl& transfer(OpKind kind, std::vector<std::uint64_t> lengths, bool notify = false) {
    TransferImpl& made = *made_.emplace_back(std::make_unique<TransferImpl>());
    made.own.kind = kind;
    std::uint64_t at = 0;
    for (std::uint64_t length : lengths) {
      made.own.ops.push_back({bytes.data() + at, length, range.get(), &remote, at});
      at += length;
    }
    made.own.bytes = at;
    made.list = &made.own;
    made.has_message = notify;
    made.value = made_.size();
    return made;
  }
  TransferImpl& message(std::size_t size) {
    TransferImpl& made = *made_.emplace_back(std::make_unique<TransferImpl>());
    made.message.resize(size);
    made.has_message = made.is_send = true;
    return made;
  }
  TransferImpl& notification() { return transfer(OpKind::kWrite, {}, true); }
  template <typename... T>
  void add(T&... transfers) {
    (outbox.add(transfers), ...);
  }

  struct Posted {
    OpKind kind;
    std::uint64_t id, bytes;
    bool operator==(const Posted&) const = default;
  };
  /// One batch; what the path took of it.
  std::vector<Posted> post(std::size_t takes = 1000) {
    const auto requests = outbox.build(way, path.room(can.max_outstanding), path.next_id());
    const std::size_t accepted = std::min(takes, requests.size());
    std::vector<Posted> posted;
    for (const WorkRequest& request : requests.first(accepted)) {
      std::uint64_t size = 0;
      for (const LocalSegment& segment : request.local) size += segment.length;
      if (request.kind == OpKind::kMessage) size -= kPathHeaderBytes;
      posted.push_back({request.kind, request.id, size});
      last = request;
    }
    outbox.commit(accepted, path);
    return posted;
  }
  void complete(std::uint64_t id, Code code = Code::kOk) {
    const auto request = path.end(id);
    ASSERT_TRUE(request) << id;
    outbox.completed(*request, code);
  }
  /// The path dies with all that is on it.
  void abort_all() {
    while (!path.empty()) outbox.completed(path.end_oldest(), Code::kAborted);
    outbox.abort_staged();
  }

  void transfer_ended(TransferImpl& ended_one, Code code) override {
    ended.push_back({&ended_one, code, code == Code::kOk ? std::string() : ended_one.reason});
  }
  [[nodiscard]] std::string who() const override { return "peer"; }

  struct Ended {
    TransferImpl* transfer;
    Code code;
    std::string reason;
  };
  std::vector<Ended> ended;
  Capabilities can;
  Outbox::Way way{.can = &can};
  InFlight path;
  WorkRequest last;
  Outbox outbox{*this, kChunk};
  std::string why;
  RemoteRegionImpl remote, other;

 private:
  std::array<std::byte, 65536> bytes{};
  CountingDevice device;
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  std::shared_ptr<RegisteredRange> range;
  std::vector<std::unique_ptr<TransferImpl>> made_;
};

}  // namespace fairlead::datapath
