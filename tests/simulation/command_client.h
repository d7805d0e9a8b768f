// A client of one simulated service: it carries out its program over a session, as an application without threads
// does, and judges what it is told.
//
// A session that ends too early is begun anew by whoever owns this, with another. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command_device.h"
#include "command_plan.h"
#include "datapath/command/client_session.h"
#include "datapath/session/session.h"
#include "fairlead/command.h"
#include "world.h"

namespace fairlead::simulation {

class CommandClient {
 public:
  /// `begun` counts the actions of all clients. `late`: the device works by itself.
  /// `dial`: how another peer is to be had, if the session is to outlive this one; else empty.
  CommandClient(World& world, const Program& program, const Expected& expected,
                std::shared_ptr<datapath::SessionImpl> session, std::size_t& begun, bool late,
                datapath::command::Seeker::Dial dial = {}, datapath::command::Seeker::Now now = nullptr);
  ~CommandClient();

  /// Goes on. False: it is at its end, see below.
  bool step();
  [[nodiscard]] bool is_done() const noexcept { return done_; }
  /// Why the session ended too early: ok if it did not.
  [[nodiscard]] const Status& lost() const noexcept { return lost_; }
  /// Where the device was lost: the command that each channel says failed first.
  [[nodiscard]] const std::map<std::uint32_t, std::uint64_t>& lost_at() const noexcept { return lost_at_; }
  /// What was found to be wrong.
  [[nodiscard]] const std::string& wrong() const noexcept { return wrong_; }
  [[nodiscard]] std::string progress() const;
  /// How many commands of a channel were said to be executed.
  [[nodiscard]] std::uint64_t executed(std::size_t channel) const;
  [[nodiscard]] std::uint64_t recovered() const noexcept { return recovered_; }
  /// Copies from one device to another that were appended.
  [[nodiscard]] std::uint64_t across() const noexcept { return across_; }
  /// The service keeps the session while this one has no peer.
  [[nodiscard]] bool is_kept() const noexcept;
  [[nodiscard]] std::uint64_t resumptions() const noexcept { return session_ != nullptr ? session_->resumptions() : 0; }

  /// In order, in mid-program.
  void close();
  /// Its process is gone: nothing is said any more.
  void die() noexcept { dead_ = true; }

 private:
  enum class Went : std::uint8_t { kOn, kWaits, kFailed };

  void greet();
  void end(const Status& why);
  void wrong(std::string what);
  bool open_channels();
  Went go_on();
  [[nodiscard]] Result<std::uint64_t> append(const Action& action, std::size_t number);
  [[nodiscard]] Result<std::uint64_t> append_failing(command::Channel& channel, const Action& action);
  Went recover(const Action& action);
  Went sync(const Action& action);
  [[nodiscard]] bool context_is_lost();
  void judge_failure(const Action& failed, std::uint64_t sequence);
  void judge_results();
  void judge_what_is_there();

  World& world_;
  const Program& program_;
  const Expected& expected_;
  std::shared_ptr<datapath::SessionImpl> of_engine_;
  std::size_t& begun_;
  const bool late_;
  const Clock::time_point patience_;
  const datapath::command::Seeker::Dial dial_;
  const datapath::command::Seeker::Now now_;
  std::shared_ptr<datapath::command::ClientSession> session_;
  std::vector<command::Channel> channels_;
  std::size_t next_ = 0;
  std::vector<std::uint64_t> sequences_;  // of actions; 0: it was not appended
  std::vector<std::vector<std::byte>> outputs_;
  std::map<std::uint32_t, std::uint64_t> lost_at_;
  std::uint64_t recovered_ = 0, across_ = 0;
  bool done_ = false, dead_ = false;
  Status lost_;
  std::string wrong_;
};

}  // namespace fairlead::simulation
