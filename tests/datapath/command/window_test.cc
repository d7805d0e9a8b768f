// Payload that a client writes into memory of the service's: a session that is told of it, rightly and wrongly.
#include <array>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using testing::HasSubstr;

class CommandWindow : public FedSession {
 protected:
  void give_window(std::span<std::byte> window) {
    session_->take_window(window, "its capability");
    EXPECT_EQ(sent_.size(), 1u);
    sent_.clear();
  }
  void tell(std::uint64_t sequence, std::uint64_t offset, std::uint64_t bytes,
            TrafficClass traffic = TrafficClass::kBulk) {
    std::vector<std::byte> message = make_message(
        {.type = static_cast<std::uint8_t>(MessageType::kPlaced), .channel = 0, .count = 1, .sequence = sequence});
    put(message, PlacedBody{offset, bytes});
    session_->take(std::move(message), traffic);
  }
  static std::vector<std::byte> copy_in(std::uint64_t bytes) { return record(Opcode::kCopyIn, CopyBody{1, 0, bytes}); }
  /// What allocation 1 begins with, by command `sequence`.
  std::vector<std::byte> look(std::uint64_t sequence, std::uint64_t bytes) {
    give(0, sequence, {record(Opcode::kCopyOut, CopyBody{1, 0, bytes})});
    sent_.clear();
    run();
    for (const auto& message : sent_) {
      Bytes body = message;
      const auto header = take<MessageHeader>(body);
      if (header && header->type == static_cast<std::uint8_t>(MessageType::kResult)) return {body.begin(), body.end()};
    }
    return {};
  }

  std::array<std::byte, 8192> window_{};
};

TEST_F(CommandWindow, WhatIsThereIsCopiedWhenItIsTold) {
  greet();
  give_window(window_);
  std::memset(window_.data() + 100, 0x11, 2000);
  give(0, 1, {allocate(1, 4096), copy_in(2000)});
  run();
  EXPECT_EQ(replies(0).executed, 1u) << "nobody said that it is there";
  tell(2, 100, 2000);
  tell(4, 4096, 2000);  // before its command
  run();
  EXPECT_EQ(replies(0).executed, 2u);
  EXPECT_EQ(look(3, 2000), std::vector<std::byte>(2000, std::byte{0x11}));
  std::memset(window_.data() + 4096, 0x22, 2000);  // as who lies does; nobody but itself has less of it
  give(0, 4, {copy_in(2000)});
  run();
  EXPECT_EQ(look(5, 2000), std::vector<std::byte>(2000, std::byte{0x22}));
}

TEST_F(CommandWindow, MessagesMayComeBetween) {
  greet();
  give_window(window_);
  std::memset(window_.data() + 100, 0x11, 2000);
  give(0, 1, {allocate(1, 4096), copy_in(2000)});
  tell(2, 100, 2000);
  run();
  EXPECT_EQ(look(3, 2000), std::vector<std::byte>(2000, std::byte{0x11}));
  give_payload(0, 4, 2000);
  tell(5, 0, 1999);
  give(0, 4, {copy_in(2000)});
  run();
  EXPECT_EQ(replies(0).executed, 4u);
  give(0, 5, {copy_in(2000)});
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_THAT(replies(0).failure->text, HasSubstr("a copy of 2000 bytes came with 1999 of payload"));
  tell(3, 0, 2000);  // of one that has run: it is none any more
  EXPECT_FALSE(session_->is_over());
}

// What messages carry is bound by what an engine takes; that is nothing to a window.
TEST_F(CommandWindow, APieceThereMayBeLargerThanOneOfAMessage) {
  std::vector<std::byte> large(kMaxPlaced + 1, std::byte{0x33});
  greet({.payload_bytes = 4096});
  give_window(large);
  give(0, 1, {allocate(1, kMaxPlaced), copy_in(kMaxPlaced)});
  tell(2, 1, kMaxPlaced);
  run();
  EXPECT_EQ(replies(0).executed, 2u);
  EXPECT_EQ(look(3, 2000), std::vector<std::byte>(2000, std::byte{0x33}));
  tell(4, 0, kMaxPlaced + 1);
  EXPECT_THAT(refusal().message(), HasSubstr("and 1048576 in one piece"));
}

TEST_F(CommandWindow, CopiesOutMayGoThere) {
  const auto copy_out = [](std::uint64_t bytes, std::uint64_t at) {
    return record(Opcode::kCopyOut, CopyToWindowBody{{1, 8, bytes}, at}, {}, kPlaced);
  };
  greet({.payload_bytes = 1024});
  give_window(window_);
  give(0, 1,
       {allocate(1, 4096), record(Opcode::kFill, FillBody{1, 0, 4096, 0x44}), copy_out(4000, 192), copy_out(8, 8184)});
  run();
  EXPECT_EQ(replies(0).executed, 4u);
  EXPECT_EQ(sent_.size(), 1u) << "a reply, and nothing else";
  EXPECT_TRUE(std::ranges::all_of(std::span(window_).subspan(192, 4000),
                                  [](std::byte each) { return each == std::byte{0x44}; }));
  EXPECT_EQ(window_[191], std::byte{0});
  EXPECT_EQ(window_[4192], std::byte{0});
  EXPECT_EQ(window_[8191], std::byte{0x44});
  for (const auto& [bytes, at] :
       {std::pair<std::uint64_t, std::uint64_t>{9, 8184}, {1, 8193}, {8, ~std::uint64_t{0}}, {~std::uint64_t{0}, 1}}) {
    greet();
    give_window(window_);
    give(0, 1, {allocate(1, 4096), copy_out(bytes, at)});
    run();
    ASSERT_TRUE(replies(0).failure) << at;
    EXPECT_THAT(replies(0).failure->text,
                HasSubstr("of the session's window, which has 8192; one has at most 1048576"));
    EXPECT_FALSE(session_->is_over());
  }
  greet();
  give(0, 1, {allocate(1, 4096), copy_out(8, 0)});
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_THAT(replies(0).failure->text, HasSubstr("a copy of 8 bytes to 0 of the session's window, which has 0"));
}

TEST_F(CommandWindow, WhatIsWrongEndsTheSession) {
  const auto ends = [this](const std::function<void()>& give, std::string_view words, bool has_window = true) {
    greet();
    if (has_window) give_window(window_);
    give();
    run();
    EXPECT_TRUE(session_->is_over()) << words;
    EXPECT_THAT(refusal().message(), HasSubstr(words));
  };
  ends([&] { tell(1, 0, 100); }, "100 bytes at 0 of the session's window, which has 0", false);
  ends([&] { tell(1, 8000, 193); }, "193 bytes at 8000 of the session's window, which has 8192");
  ends([&] { tell(1, 8193, 1); }, "1 bytes at 8193");
  ends([&] { tell(1, ~std::uint64_t{0}, 2); }, "2 bytes at 18446744073709551615");
  ends([&] { tell(1, 1, ~std::uint64_t{0}); }, "18446744073709551615 bytes at 1");
  ends([&] { tell(1, 0, 0); }, "0 bytes at 0");
  ends([&] { tell(1, 0, 100, TrafficClass::kCommands); }, "a message of type 18 has no place here");
  ends([&] { tell(3000, 0, 100); }, "payload for command 3000 of channel 0, of which 0 have run");
  ends(
      [&] {
        tell(2, 0, 100);
        tell(2, 0, 100);
      },
      "payload for command 2 of channel 0 behind that for a later one, or twice");
  ends(
      [&] {
        session_->take(
            make_message({.type = static_cast<std::uint8_t>(MessageType::kPlaced), .count = 1, .sequence = 1}),
            TrafficClass::kBulk);
      },
      "0 bytes at 0");
}

// They would be read twice, and the client may write in between.
TEST_F(CommandWindow, RecordsOfAGraphAreSent) {
  greet();
  give_window(window_);
  const std::vector<std::byte> fill = record(Opcode::kFill, FillBody{1, 0, 8, 1});
  std::ranges::copy(fill, window_.begin());
  give(0, 1, {allocate(1, 8), record(Opcode::kGraph, GraphBody{9, fill.size(), 1})});
  tell(2, 0, fill.size());
  run();
  EXPECT_TRUE(session_->is_over());
  EXPECT_THAT(refusal().message(),
              HasSubstr("the records of the graph of command 2 of channel 0 are placed, not sent"));
}

}  // namespace
}  // namespace fairlead::datapath::command
