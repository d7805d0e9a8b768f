// Two ends with one session between them, and a region at each: the smallest world for a named scenario or a fuzzer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairlead/config.h"
#include "sim_host.h"
#include "sim_stream.h"
#include "world.h"

namespace fairlead::simulation {

/// A transport with room for sixteen requests.
[[nodiscard]] Habits device(const char* name = "verbs:fake0");

class TwoEnds {
 public:
  static constexpr std::size_t kBytes = 1 << 19;  // of each end's region

  /// Nothing has happened yet.
  TwoEnds(std::uint64_t seed, const std::vector<Habits>& transports, EngineConfig config = {});
  /// `keys`: see SimHost; config.principal is the active end's.
  TwoEnds(std::uint64_t seed, const std::vector<Habits>& active, const std::vector<Habits>& passive,
          EngineConfig config, std::vector<datapath::Place> places = {}, const std::string& keys = {});
  /// Lets go of everything; end() comes first.
  ~TwoEnds();
  TwoEnds(const TwoEnds&) = delete;
  TwoEnds& operator=(const TwoEnds&) = delete;

  /// Until end 0 is ready and knows end 1's region, and the other way round. False: it does not come to that.
  bool meet();
  /// Goes on until `done`; false: it never is.
  bool run(const std::function<bool()>& done);
  /// Lets time go by, in steps of `step`.
  void pass(microseconds time, microseconds step);
  /// Lets end `end` know the other's region as it is published now. False: it is not.
  bool look_up(int end);
  /// Takes end `end`'s region back, or publishes it again.
  void withdraw(int end);
  void publish(int end);
  /// The path that end `end` has; null: none, or several.
  [[nodiscard]] FakePath* path(int end);
  /// Closes the session at both ends. False: it does not end, or a transfer has none.
  bool end();
  /// As if its peer had said it: a frame of the control connection, a message or a notification of the path.
  void slip_frame(int hearer, const datapath::control::Frame& frame);
  void slip_message(int hearer, std::span<const std::byte> bytes);
  void slip_notification(int hearer, std::uint32_t value);
  /// A write of end `from` to the other's region, at the same offset.
  datapath::TransferImpl& write(int from, std::uint64_t offset, std::uint64_t length, bool notify = false,
                                microseconds deadline = microseconds::max());
  datapath::TransferImpl& read(int from, std::uint64_t offset, std::uint64_t length);
  datapath::TransferImpl& send(int from, std::size_t length, TrafficClass traffic = TrafficClass::kBulk,
                               datapath::TransferImpl* after = nullptr, microseconds deadline = microseconds::max());

  World world;
  Wire wire{world};
  std::shared_ptr<SimHost> hosts[2];
  std::shared_ptr<datapath::SessionImpl> session[2];
  SimStream::Line line;   // the control connection
  bool reachable = true;  // whether end 0 gets another if that breaks,
  std::string is_at;      // and where; empty: wherever it asks
  std::vector<std::byte> memory[2] = {std::vector<std::byte>(kBytes), std::vector<std::byte>(kBytes)};
  std::shared_ptr<const datapath::RemoteRegionImpl> remote[2];  // what an end knows of the other's
  std::vector<datapath::TransferImpl*> posted;

 private:
  datapath::TransferImpl& one_sided(int from, datapath::OpKind kind, std::uint64_t offset, std::uint64_t length);
  datapath::TransferImpl& submit(int from, datapath::TransferImpl& transfer);

  std::shared_ptr<datapath::RegionImpl> regions_[2];
};

}  // namespace fairlead::simulation
