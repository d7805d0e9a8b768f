// One more path of a flow, for data alone.
//
// It has a PathSet of its own, so it comes to be, dies, is fenced and comes back by itself, beside the flow's first
// path and the other rails. Nothing but reads, writes and what proves it goes over it. What it took into its death is
// posted again, over any path, once it is fenced. Threads: the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "datapath/flow/path_set.h"
#include "datapath/flow/share.h"

namespace fairlead::datapath {

class Rail;

/// The flow that it belongs to.
class RailUser {
 public:
  virtual void rail_says(const Rail& rail, const control::Frame& frame) = 0;
  /// It may take data, or did something else of interest; the peer gave a sign of life on it.
  virtual void rail_moved(bool alive) noexcept = 0;
  virtual void rail_in_use(const Rail& rail, bool again) = 0;
  virtual void rail_lost() = 0;
  virtual void rail_ended(const PostedRequest& request, Code code) = 0;
  virtual void rail_fenced(const Rail& rail) = 0;
  /// The peer sent what does not belong there.
  virtual void rail_misused(const Rail& rail) = 0;

 protected:
  ~RailUser() = default;
};

class Rail final : public PathEvents, private PathUser {
 public:
  static constexpr std::size_t kMost = 7;  // beside a flow's first path

  Rail(PathHost& host, RailUser& user, bool active, const PathSet::Rules& rules, std::uint8_t number,
       std::uint64_t stripe);

  [[nodiscard]] const PathHost& host() const noexcept { return host_; }
  [[nodiscard]] std::uint8_t number() const noexcept { return number_; }
  /// It has been in use.
  [[nodiscard]] bool was_used() const noexcept { return was_used_; }
  [[nodiscard]] PathSet& paths() noexcept { return paths_; }
  [[nodiscard]] Share& share() noexcept { return share_; }
  /// Active: sets out with the best of these.
  void begin(std::vector<Candidate> candidates);
  /// A transport works again: so may this one's.
  void hurry() noexcept;
  void advance(Clock::time_point now);
  /// Active, with a path: its candidate's.
  [[nodiscard]] int rank() noexcept { return candidates_[paths_.slot()->candidate].rank; }
  /// What data may be posted to; null: nothing.
  [[nodiscard]] PathSlot* carrying() noexcept;

 private:
  void on_ready(Path& path) noexcept override;
  void on_completion(Path& path, const Ended& ended) noexcept override;
  void one_completed(PathSlot& slot, std::uint64_t id, Code code);
  void on_message(Path& path, std::span<const std::byte> bytes) noexcept override;
  void on_notification(Path& path, std::uint32_t value) noexcept override;
  void on_down(Path& path, Code code, std::string_view reason) noexcept override;

  [[nodiscard]] PathEvents& path_events() noexcept override { return *this; }
  void send_frame(const control::Frame& frame) override { user_.rail_says(*this, frame); }
  void path_in_use() override;
  void path_lost() override { user_.rail_lost(); }
  void path_gone(InFlight& held) override;
  void no_path(Status why) override;
  // There are no messages on it.
  [[nodiscard]] std::uint64_t received() const noexcept override { return 0; }
  [[nodiscard]] std::uint64_t acknowledged() const noexcept override { return 0; }
  [[nodiscard]] bool apply_received(std::uint64_t received, std::string& why) override;

  PathHost& host_;
  RailUser& user_;
  const std::uint8_t number_;
  PathSet paths_;
  Share share_;
  bool was_used_ = false;
  // Active.
  std::vector<Candidate> candidates_;
  std::optional<Clock::time_point> again_at_;  // all were given up
  unsigned pauses_ = 0;
};

}  // namespace fairlead::datapath
