// An application on one simulated end, and the judge of what happens to its transfers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "schedule.h"
#include "sim_host.h"

namespace fairlead::simulation {

class App {
 public:
  /// `flood`: many small messages to an end that takes them late.
  App(World& world, std::shared_ptr<SimHost> host, std::string name, bool flood, Outcome& outcome);

  void begin(std::shared_ptr<datapath::SessionImpl> session, App& other);
  /// Takes events, looks at transfers, perhaps posts one or takes one back.
  void step();
  /// Which transfers are not finished, in words.
  [[nodiscard]] std::string unfinished() const;
  void stop_posting() noexcept { posting_ = false; }
  [[nodiscard]] bool quiet() const noexcept { return unfinished_ == 0; }
  [[nodiscard]] std::size_t posted() const noexcept { return records_.size(); }
  [[nodiscard]] bool closed() const noexcept { return session_->finished() && session_->inbox.pending() == 0; }
  [[nodiscard]] const std::string& end() const noexcept { return end_; }
  void close();
  /// Takes back some of what is under way.
  void take_back();
  /// After the end: what still has to be so.
  /// `lives`: the session was not lost.
  void check_end(bool lives);
  void release();

 private:
  enum class Kind : std::uint8_t { kWrite, kRead, kSend, kForbidden };
  struct Record {
    Kind kind = Kind::kWrite;
    std::size_t slot = 0;
    std::uint64_t bytes = 0, offset = 0;
    bool notifies = false, finished = false, slot_free = true;
    Code code = Code::kOk;
    unsigned delivered = 0;
    datapath::TransferImpl* transfer = nullptr;
  };
  using Remote = std::shared_ptr<const datapath::RemoteRegionImpl>;
  static constexpr std::size_t kSlots = 10;
  static constexpr std::size_t kSlotBytes = 12'000;

  void wrong(std::string what);
  void look_up();
  void post();
  void on_event(Event& event);
  void on_delivered(std::uint64_t id, const std::vector<std::byte>* message);
  void on_finished(std::uint64_t id, Record& record);
  void free_slot(Record& record);
  std::shared_ptr<datapath::RegionImpl> register_region(std::span<std::byte> bytes);
  [[nodiscard]] std::span<std::byte> slot(std::vector<std::byte>& memory, std::size_t index) const {
    return std::span(memory).subspan(index * kSlotBytes, kSlotBytes);
  }

  World& world_;
  const std::shared_ptr<SimHost> host_;
  const std::string name_;
  const bool flood_;
  Outcome& outcome_;
  std::shared_ptr<datapath::SessionImpl> session_;
  App* other_ = nullptr;
  std::string end_;
  bool posting_ = true, connected_ = false;

  std::vector<std::byte> source_, inbox_, shelf_, temporary_, landing_;
  std::shared_ptr<datapath::RegionImpl> source_region_, inbox_region_, shelf_region_, temporary_region_,
      landing_region_;
  std::map<std::string, std::shared_ptr<datapath::LookupRequest>> lookups_;
  std::vector<std::shared_ptr<datapath::LookupRequest>> listings_;
  Clock::time_point sleeps_until_{};
  Remote inbox_of_other_, shelf_of_other_, temporary_of_other_;
  bool slot_used_[kSlots]{};
  std::map<std::uint64_t, Record> records_;  // by id, in order of posting
  std::uint64_t last_delivered_ = 0;         // of this app's, at the other
  std::size_t unfinished_ = 0;
};

}  // namespace fairlead::simulation
