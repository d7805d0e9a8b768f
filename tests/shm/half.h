// Half of a path, and a peer that writes what it likes into the memory that they share.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "shm/peer_memory.h"
#include "shm/requester.h"
#include "shm/responder.h"
#include "shm/ring/segment.h"

namespace fairlead::shm {

/// What the half under test reports.
struct Reported : Sink {
  std::vector<std::string> messages;
  std::vector<std::pair<std::uint64_t, Code>> completions;

  void on_message(std::span<const std::byte> bytes) noexcept override {
    messages.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::vector<std::uint32_t> notifications;
  void on_notification(std::uint32_t value) noexcept override { notifications.push_back(value); }
  std::vector<std::uint64_t> rows;  // how many were told by one call
  void on_completion(const datapath::Ended& ended) noexcept override {
    if (ended.code == Code::kOk) rows.push_back(ended.count);
    for (std::uint64_t i = 0; i < ended.count; ++i) completions.emplace_back(ended.first + i, ended.code);
  }
};

/// The passive end's half is under test; the active end is this.
struct Half {
  Half() {
    install_fault_handlers();
    UniqueFd descriptor;
    auto made = Segment::make(descriptor);
    auto adopted = Segment::adopt(descriptor);
    EXPECT_TRUE(made && adopted);
    peers = std::move(*made);
    own = std::move(*adopted);
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    sockets = {UniqueFd(ends[0]), UniqueFd(ends[1])};
    memory.meet({.id = ::getpid(), .life = {}}, sockets[1].get());
    memory.start(&own->sides[0], &own->sides[1], true, true);
    given.start(&own->sides[0], &own->sides[1], sockets[1].get(), true);
    out = {&peers->requests[0], &peers->sides[1].answered.requests};
    answers = {&peers->responses[1], &peers->sides[0].heard.responses};
    asked = {&peers->requests[1], &peers->sides[0].answered.requests};
    replies = {&peers->responses[0], &peers->sides[1].heard.responses};
  }

  /// The peer can read this end's memory, and says so.
  void peer_pulls() { peers->sides[0].state.pulls = 1; }
  void push(Slot slot, const void* payload = nullptr) {
    if (payload != nullptr)
      std::memcpy(slot.fits_inside() ? slot.inside() : out.place(slot.bytes), payload, slot.bytes);
    out.push(slot);
  }
  void answer(Slot slot, const void* payload = nullptr) {
    if (payload != nullptr) {
      std::memcpy(slot.fits_inside() ? slot.inside() : replies.place(slot.bytes), payload, slot.bytes);
    }
    replies.push(slot);
  }

  Segment peers, own;
  std::array<UniqueFd, 2> sockets;
  datapath::Copies copies;
  PeerMemory memory{copies};
  OwnArenas arenas;
  GivenArenas given{arenas};
  Producer<Requests> out;       // what the peer asks,
  Consumer<Responses> answers;  // and is answered
  Consumer<Requests> asked;     // what the peer is asked,
  Producer<Responses> replies;  // and answers
  Reported told;
};

}  // namespace fairlead::shm
