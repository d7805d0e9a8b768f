// Two devices of one kind in one process, and what their users need to see of them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/bytes.h"
#include "transport/device.h"

namespace fairlead::conformance {

using datapath::Device;
using datapath::Endpoint;
using datapath::Grant;
using datapath::LocalSegment;
using datapath::OpKind;
using datapath::Path;
using datapath::PathConfig;
using datapath::PathRole;
using datapath::Registration;
using datapath::WorkRequest;

/// One kind of transport: how to open it, by which address its ends reach each other.
struct TransportCase {
  std::string name;
  std::function<Result<std::unique_ptr<Device>>()> open;
  std::string host = "127.0.0.1";
  bool linux_rxe = false;  // whose answer to one kind of refusal is lost
  bool simulated = false;  // it has no descriptor to wait for, and an operation is one event, however large
};
/// The simulator's.
TransportCase fake_case();
/// The kinds that this build has.
std::vector<TransportCase> transport_cases();
std::ostream& operator<<(std::ostream& out, const TransportCase& each);

/// How often the stress tests repeat: FAIRLEAD_CONFORMANCE_SCALE times (default 1) what is given.
int scaled(int rounds);

class End;

/// Memory that one end registered, and granted to the other.
class Buffer {
 public:
  Buffer(const End& end, std::size_t bytes, Access access = Access::kRemoteReadWrite);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
  [[nodiscard]] const Grant& grant() const { return grant_; }
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t length) {
    return {bytes_.data() + offset, length, registration_.local};
  }
  void fill(std::uint64_t seed) { fill_pattern(bytes_, seed); }
  /// Revokes the grant, then takes the registration back.
  void deregister();

 private:
  Device& device_;
  std::vector<std::byte> bytes_;
  Registration registration_;
  Grant grant_;
  bool registered_ = false;
};

/// One end: its device and endpoint, its path and everything that was reported.
class End : public datapath::PathEvents {
 public:
  void open_path(PathRole role, const std::string& host);
  bool poll() { return endpoint->poll(); }
  /// Posts one request; fails the test if it is not taken.
  void post(const WorkRequest& work);
  void write(std::uint64_t id, LocalSegment from, const Buffer& to, std::size_t offset);
  void read(std::uint64_t id, LocalSegment into, const Buffer& from, std::size_t offset);
  void send(std::uint64_t id, std::span<const std::byte> bytes);
  [[nodiscard]] std::optional<Code> code_of(std::uint64_t id) const;
  [[nodiscard]] std::size_t completed() const { return completions.size(); }

  std::unique_ptr<Device> device;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Path> path;
  datapath::MemoryDomain* domain = nullptr;  // of its paths; null: the device's own
  std::size_t posted = 0;                    // by the members above
  int ready = 0;
  int downs = 0;
  Code down_code = Code::kOk;
  std::string down_reason;
  std::vector<std::pair<std::uint64_t, Code>> completions;
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::uint32_t> notifications;
  std::function<void(std::span<const std::byte>)> message_hook;  // instead of recording
  std::function<void(std::uint32_t)> notification_hook;          // beside recording
  std::function<void(std::uint64_t, Code)> completion_hook;      // beside recording

  void on_ready(Path& path) noexcept override;
  void on_completion(Path& path, const datapath::Ended& ended) noexcept override;
  void on_message(Path& path, std::span<const std::byte> bytes) noexcept override;
  void on_notification(Path& path, std::uint32_t value) noexcept override;
  void on_down(Path& path, Code code, std::string_view reason) noexcept override;
};

class TransportTest : public testing::TestWithParam<TransportCase> {
 protected:
  static constexpr std::chrono::seconds kPatience{60};

  void SetUp() override;
  void TearDown() override;
  /// Crosses the descriptions and polls until both ends are ready.
  void connect();
  /// Polls both ends by turns until `done`; false when patience ends.
  bool pump(const std::function<bool()>& done);
  /// Polls both ends for this long.
  void pump_for(std::chrono::milliseconds time);
  bool is_down(const End& end) const { return end.downs > 0; }

  End a;  // active
  End b;  // passive
};

}  // namespace fairlead::conformance
