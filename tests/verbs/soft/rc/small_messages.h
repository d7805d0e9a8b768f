// Small messages that are posted together, and a peer by hand that takes them in bundles.
#pragma once

#include <span>
#include <vector>

#include "tests/verbs/soft/raw_peer.h"
#include "verbs/soft/wire/bundle.h"

namespace fairlead::soft::test {

struct Small {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  std::size_t length = 8;
  std::uint32_t immediate = 0;
  unsigned flags = IBV_SEND_SIGNALED;
};

/// Message i has id i, its bytes at i * kPitch of the buffer, and is for 64 KiB further on.
inline constexpr std::size_t kPitch = 256, kThere = 64 << 10;

inline int post(Endpoint& from, std::span<const Small> messages, const Endpoint& to) {
  std::vector<ibv_sge> segments(messages.size());
  std::vector<ibv_send_wr> list(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    segments[i] = from.sge(i * kPitch, messages[i].length);
    list[i] = {};
    list[i].wr_id = i;
    list[i].opcode = messages[i].opcode;
    list[i].send_flags = messages[i].flags;
    list[i].imm_data = messages[i].immediate;
    list[i].sg_list = &segments[i];
    list[i].num_sge = 1;
    list[i].wr.rdma = {reinterpret_cast<std::uint64_t>(to.buffer.data()) + kThere + i * kPitch, to.mr->rkey};
    list[i].next = i + 1 < messages.size() ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(from.qp, list.data(), &bad);
}

/// A device whose peer, the test, has shown that it is of its kind.
struct Kin : RawPeer {
  explicit Kin(bool kin = true, const EndpointOptions& options = {}) : RawPeer(options) {
    for (std::size_t i = 0; i < device->buffer.size(); ++i)
      device->buffer[i] = static_cast<std::uint8_t>(i / kPitch + 1);
    EXPECT_EQ(device->post(IBV_WR_RDMA_WRITE, 99, 0, 8, device.get(), 0), 0);
    EXPECT_EQ(receive().size(), 1U);
    acknowledge(1, kin);
  }
  void acknowledge(std::uint32_t packets, bool kin = true) {
    own = own + packets;
    msn += packets;
    send({.opcode = Opcode::kAcknowledge, .psn = own - 1, .aeth = {0x1f, msn}, .kin = kin});
  }
  std::vector<Seen> post_all(std::span<const Small> messages) {
    EXPECT_EQ(post(*device, messages, *device), 0);
    return receive();
  }

  Psn own = psn;
  std::uint32_t msn = 0;
};

/// The messages of a bundle, which outlives them.
inline std::vector<Packet> taken_apart(const Seen& seen) {
  Packet bundle;
  bundle.bth.psn = seen.psn;
  bundle.bth.ack_request = seen.ack_request;
  bundle.payload = seen.payload;
  Unbundling messages(bundle);
  std::vector<Packet> all;
  for (Packet each; messages.next(each);) all.push_back(each);
  EXPECT_FALSE(messages.malformed());
  return all;
}

}  // namespace fairlead::soft::test
