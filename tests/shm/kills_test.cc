// Peers that are killed in the middle of copies, again and again: nothing is left of them, and nothing is torn.
//
// FAIRLEAD_SHM_KILLS: how many, of each way (default 16).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "tests/shm/arenas_mapped.h"
#include "tests/shm/end.h"
#include "tests/shm/other_end.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

using datapath::LocalSegment;
using datapath::OpKind;
using datapath::WorkRequest;

constexpr std::size_t kHalf = End::kBytes / 2;
constexpr std::uint64_t kWindow = 16;

int kills() {
  const char* const wanted = std::getenv("FAIRLEAD_SHM_KILLS");
  return wanted == nullptr ? 16 : std::max(1, std::atoi(wanted));
}

std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

class ShmKills : public testing::TestWithParam<bool> {};  // whether memory is in arenas

/// Writes from the first half of its memory, and reads into the second, until the peer is gone.
class Busy {
 public:
  explicit Busy(End& end, std::uint64_t key) : end_(end), key_(key) {}

  bool run_for(std::chrono::microseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < deadline) {
      while (posted_ - end_.codes.size() < kWindow && post()) {
      }
      end_.endpoint->poll();
      if (end_.downs != 0) return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t posted() const { return posted_; }

 private:
  bool post() {
    const bool writes = posted_ % 2 == 0;
    const std::size_t bytes = posted_ % 3 == 0 ? 3000 : kHalf;
    const LocalSegment segment{end_.memory.data() + (writes ? 0 : kHalf), bytes, end_.registration.local};
    const WorkRequest work{.kind = writes ? OpKind::kWrite : OpKind::kRead,
                           .local = {&segment, 1},
                           .remote_address = writes ? 0 : kHalf,
                           .remote_key = key_};
    const bool taken = end_.path->post({&work, 1}) == 1;
    posted_ += taken ? 1 : 0;
    return taken;
  }

  End& end_;
  const std::uint64_t key_;
  std::uint64_t posted_ = 0;
};

TEST_P(ShmKills, LeaveNothingAndTearNothing) {
  std::mt19937 random(20'26);
  std::uniform_int_distribution<int> wait_us(0, 3000);
  std::ptrdiff_t descriptors_before = 0, mapped_before = 0;
  for (int kill = 0; kill < kills(); ++kill) {
    const OwnDirectory directory;
    {
      ShmConfig config = directory.config();
      config.arenas = GetParam();
      OtherEnd other(config, GetParam());
      End end;
      ASSERT_TRUE(end.open(config, datapath::PathRole::kActive, GetParam()) && other.meet(end) && end.ready == 1);
      std::memset(end.memory.data(), 1, kHalf);
      Busy busy(end, other.key());
      ASSERT_TRUE(busy.run_for(std::chrono::milliseconds(2)));
      std::thread killer([&, after = std::chrono::microseconds(wait_us(random))] {
        std::this_thread::sleep_for(after);
        other.signal(SIGKILL);
      });
      while (busy.run_for(std::chrono::milliseconds(50))) {
      }
      killer.join();
      ASSERT_TRUE(end.poll_until([&] { return end.path->drained(); }));
      EXPECT_EQ(end.downs, 1);
      EXPECT_EQ(end.down, Code::kUnavailable);
      ASSERT_EQ(end.codes.size(), busy.posted()) << "each once";
      EXPECT_TRUE(
          std::ranges::all_of(end.codes, [](Code code) { return code == Code::kOk || code == Code::kAborted; }));
      EXPECT_TRUE(std::all_of(end.memory.begin(), end.memory.begin() + kHalf, [](std::byte each) {
        return each == std::byte{1};
      })) << "what was only to be read has changed";
      end.device->revoke(end.granted);
      end.path.reset();
    }
    if (kill == 0) {
      descriptors_before = descriptors();
      mapped_before = arenas_mapped();
    }
    ASSERT_EQ(descriptors(), descriptors_before) << kill;
    ASSERT_EQ(arenas_mapped(), mapped_before) << kill;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ShmKills, testing::Bool(),
                         [](const auto& each) { return each.param ? "Mapped" : "Pulled"; });

}  // namespace
}  // namespace fairlead::shm
