// An application on one end of one simulated session, and the judge of what happens to its transfers.
//
// It posts what its script says, takes events, looks regions up, cancels. The judge (app_judge.cc) knows what every
// transfer was to do: every byte where it belongs and none beside it, one true end for each, notifications once, in
// order of their class and not before their bytes, nothing written after the end, all released.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datapath/transfer/tensor_plan.h"
#include "outcome.h"
#include "plan.h"
#include "sim_host.h"

namespace fairlead::simulation {

/// Which of an end's transfers come next: it goes on where the end before it died.
struct Script {
  const std::vector<Post>* posts = nullptr;
  std::size_t next = 0;
  [[nodiscard]] bool done() const noexcept { return next == posts->size(); }
};

class App {
 public:
  /// `name` is its own among all apps of the world; its regions are called after it.
  App(World& world, std::shared_ptr<SimHost> host, std::string name, const Plan& plan, Script& script,
      Outcome& outcome);

  void begin(std::shared_ptr<datapath::SessionImpl> session, App& other);
  /// Takes events, looks at transfers, perhaps posts one or takes one back.
  void step();
  /// Cancels the last `count` that are under way.
  void take_back(unsigned count);
  void stop_posting() noexcept { posting_ = false; }
  /// `grace`: for what is under way.
  void close(microseconds grace);
  /// Its process is gone.
  void die();

  [[nodiscard]] datapath::SessionImpl& session() noexcept { return *session_; }
  [[nodiscard]] SimHost& host() noexcept { return *host_; }
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  [[nodiscard]] bool quiet() const noexcept { return dead_ || unfinished_ == 0; }
  [[nodiscard]] bool closed() const noexcept {
    return dead_ || (session_->finished() && session_->inbox.pending() == 0);
  }
  /// Nothing more will be posted by it.
  [[nodiscard]] bool posted_all() const noexcept { return dead_ || script_.done() || session_->finished(); }
  /// Why the session ended.
  [[nodiscard]] const std::string& end() const noexcept { return end_; }
  [[nodiscard]] bool lost() const noexcept { return end_code_ != Code::kOk; }
  /// Its session may end as lost, though it was closed.
  void excuse_end() noexcept { excused_ = true; }
  /// Which transfers are not finished, in words.
  [[nodiscard]] std::string unfinished() const;

  /// After the end: what still has to be so. `lives`: the session was not lost, nor closed early. `true_ends`: no
  /// transfer of this end may have failed for the session's sake.
  void check_end(bool lives, bool true_ends);
  void release();

 private:
  using Kind = Post::Kind;
  struct Record {
    Kind kind = Kind::kWrite;
    std::size_t slot = 0;
    std::uint64_t bytes = 0, offset = 0;
    std::vector<datapath::TensorRun> runs;  // of a strided one
    TrafficClass traffic = TrafficClass::kBulk;
    std::uint64_t follows = 0;             // the id of another
    std::uint64_t expected = 0, held = 0;  // of an atomic
    bool followed = false;
    bool notifies = false, finished = false, holds_slot = false, taken_back = false;
    Code code = Code::kOk;
    [[nodiscard]] bool is_atomic() const noexcept { return kind == Kind::kAdd || kind == Kind::kSwap; }
    [[nodiscard]] bool takes_slot() const noexcept { return kind != Kind::kSend && !is_atomic(); }
    const char* untrue = nullptr;  // why it should not have ended so, if its session lived
    unsigned delivered = 0;
    Clock::time_point cancel_at = Clock::time_point::max(), deadline = Clock::time_point::max();
    datapath::TransferImpl* transfer = nullptr;
  };
  using Remote = std::shared_ptr<const datapath::RemoteRegionImpl>;

  // app.cc
  std::shared_ptr<datapath::RegionImpl> register_region(std::span<std::byte> bytes);
  [[nodiscard]] std::string region(const char* what) const { return name_ + "." + what; }
  void take_events();
  void look_up();
  void withdraw();
  bool post(const Post& post);
  void fill_atomic(datapath::TransferImpl& transfer, Record& record, std::uint64_t id);
  void fill_one_sided(datapath::TransferImpl& transfer, Record& record, const Post& post, std::uint64_t id);
  void on_event(Event& event);
  [[nodiscard]] std::span<std::byte> slot(std::vector<std::byte>& memory, std::size_t index) const {
    return std::span(memory).subspan(index * plan_.slot_bytes, plan_.slot_bytes);
  }

  // app_judge.cc
  void wrong(std::string what);
  void on_delivered(const Event& event, const std::vector<std::byte>* message);
  void on_finished(std::uint64_t id, Record& record);
  [[nodiscard]] static bool has_ended_well(const Record& record);
  void free_slot(Record& record);
  [[nodiscard]] const char* untrue(const Record& record) const;
  void check_words(bool lives);
  [[nodiscard]] bool placed(std::uint64_t id, const Record& record) const;

  World& world_;
  std::shared_ptr<SimHost> host_;
  const std::string name_;
  const Plan& plan_;
  Script& script_;
  Outcome& outcome_;
  std::shared_ptr<datapath::SessionImpl> session_;
  App* other_ = nullptr;
  std::string end_;  // what was said of the session's
  Code end_code_ = Code::kOk;
  bool excused_ = false;
  bool posting_ = true, connected_ = false, dead_ = false;

  std::vector<std::byte> source_, inbox_, shelf_, temporary_, landing_, withdrawn_;
  std::array<std::uint64_t, 2> words_{};  // of adds, of swaps
  std::uint64_t swapped_ = 0;             // what the other's word of swaps held when we heard of it last
  std::shared_ptr<datapath::RegionImpl> source_region_, inbox_region_, shelf_region_, temporary_region_,
      landing_region_, words_region_;
  std::map<std::string, std::shared_ptr<datapath::LookupRequest>> lookups_;
  std::vector<std::shared_ptr<datapath::LookupRequest>> listings_;
  Remote inbox_of_other_, shelf_of_other_, temporary_of_other_, words_of_other_;
  std::shared_ptr<datapath::PreparedImpl> prepared_;
  Clock::time_point sleeps_until_{}, post_at_{}, withdrawn_until_{};
  std::vector<bool> slot_used_;
  std::vector<Record> records_;                                  // the id of a transfer is its place, from 1 on
  std::vector<std::uint64_t> live_;                              // ids of those that are not finished, or hold a slot
  std::array<std::uint64_t, kTrafficClasses> last_delivered_{};  // of this app's, at the other
  std::size_t unfinished_ = 0;
};

}  // namespace fairlead::simulation
