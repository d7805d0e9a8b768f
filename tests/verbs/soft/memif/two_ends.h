// A master and a slave that have agreed, without sockets: what each says is handed to the other.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "verbs/soft/port/memif/handshake.h"

namespace fairlead::soft::memif::test {

struct TwoEnds {
  explicit TwoEnds(const Settings& of_master = {}, const Settings& of_slave = {})
      : master(Handshake::of(Role::kMaster, of_master)), slave(Handshake::of(Role::kSlave, of_slave)) {}

  /// Until nobody has anything to say. Empty, or why an end took offence.
  std::string talk() {
    std::optional<Outgoing> said = master->begin();
    for (Handshake* to = slave.get(); said; to = to == slave.get() ? master.get() : slave.get()) {
      const auto heard = decode(encode(said->message));
      auto answer = to->take(*heard, UniqueFd(said->descriptor >= 0 ? ::dup(said->descriptor) : -1));
      if (!answer) return answer.error().message();
      said = std::move(*answer);
    }
    return {};
  }

  std::unique_ptr<Handshake> master;
  std::unique_ptr<Handshake> slave;
};

}  // namespace fairlead::soft::memif::test
