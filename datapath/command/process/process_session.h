// A session that another process runs: a kernel that crashes ends that process and its session, one that hangs is
// killed when its client goes, and no session reaches another's memory.
//
// The process is started for the session's first message, and ends with it. Ownership: the process, its socket, the
// page on which it counts. Threads: one at a time, but for abandon().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "datapath/command/process/frames.h"
#include "datapath/command/process/images.h"
#include "datapath/command/process/shared_page.h"
#include "datapath/command/tenants.h"

namespace fairlead::datapath::command {

class ProcessSession final : public SessionRunner {
 public:
  /// `program`: what to start, and its arguments: it calls fairlead::command::serve_session(). `images`: the service's.
  ProcessSession(Outlet& outlet, const ServerSession::Terms& terms, std::vector<std::string> program,
                 std::shared_ptr<TenantAccount> account, std::shared_ptr<ImageStore> images = nullptr);
  ~ProcessSession() override;

  void take(std::vector<std::byte> message, TrafficClass traffic) override;
  void resume(std::vector<std::byte> said) override;
  bool take_window(const Window& window) override;
  void overrun() override;
  void end(const Status& why) override { fail(why.code(), why.message()); }
  bool run(Clock::time_point until, std::uint32_t device) override;
  [[nodiscard]] bool look() noexcept override;
  void abandon() noexcept override;
  void set_news(bool is_there) noexcept override;

  [[nodiscard]] const Devices& devices() const noexcept override { return ran_.devices; }
  [[nodiscard]] std::uint64_t moves() const noexcept override { return ran_.moves; }
  [[nodiscard]] bool is_welcome() const noexcept override { return ran_.welcome != 0; }
  [[nodiscard]] bool is_over() const noexcept override { return ran_.over != 0; }
  [[nodiscard]] const Counts& counts() const noexcept override { return ran_.counts; }
  [[nodiscard]] std::uint64_t waiting() const noexcept override { return ran_.waiting; }

 private:
  [[nodiscard]] Status start();
  [[nodiscard]] Status start(std::size_t slot);
  [[nodiscard]] Status cannot_start(int error) const;
  /// What it says until it has run. False: it has gone, or talks nonsense, or says or copies more than it may.
  [[nodiscard]] bool relay(const Run& run);
  void pass_on(const FramePipe::Frame& frame);
  /// The session ends, and its client hears why.
  void fail(Code code, std::string why);
  void kill() noexcept;
  /// How it ended, in words.
  [[nodiscard]] std::string end_process() noexcept;

  Outlet& outlet_;
  const ServerSession::Terms terms_;
  const std::vector<std::string> program_;
  const std::shared_ptr<TenantAccount> account_;
  ImageDesk images_;

  SharedPage<SessionMeter> meter_;
  std::atomic<SessionMeter*> shared_{nullptr};  // meter_'s, once there is one
  UniqueFd socket_;
  UniqueFd memory_;  // a socket, by which descriptors go
  std::optional<FramePipe> pipe_;
  UniqueFd process_;                                  // a pidfd, so that no other process is ever killed
  std::atomic<bool> runs_{false}, abandoned_{false};  // each is set before the other is looked at
  pid_t pid_ = -1;
  std::size_t slot_ = 0;               // of the tenant's meter, while there is a process
  bool news_ = false;                  // something was put since the last run
  std::vector<std::byte> last_words_;  // the message that ended the session
  Ran ran_;
};

}  // namespace fairlead::datapath::command
