// Where an end is that another process connects to: in memory that both map.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {

struct Seat {
  std::atomic<bool> taken{false};  // what follows is there
  std::uint32_t qpn = 0;
  ibv_gid gid{};
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;

  void take(Endpoint& end) {
    qpn = end.qp->qp_num;
    gid = end.gid();
    address = reinterpret_cast<std::uint64_t>(end.buffer.data());
    rkey = end.mr->rkey;
    taken = true;
  }
};

}  // namespace fairlead::soft::test
