// The fault matrix: verified data over every kind of bad network, with default timeouts, against floors and a snapshot.
//
// Two devices on a 10 Gb/s switch, 10 microseconds apart, on a clock that the test moves; so goodput is that of the
// protocol, and every number repeats. FAIRLEAD_MATRIX_MB sets the volume of a cell (32 by default).
// FAIRLEAD_UPDATE_SNAPSHOT=1 rewrites the snapshot of that volume: look at the difference before you commit it.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/verbs/soft/switch.h"
#include "verbs/soft/port/wrap/fault_port.h"

namespace fairlead::soft::test {
namespace {

struct Cell {
  const char* name;
  FaultConfig faults;
  double floor;  // goodput, MB/s of simulated time
};

// A floor of reordering is nine tenths of the clean network's: packets that overtake each other are no loss.
// Payload of a 10 Gb/s link is at most 1140 MB/s at path MTU 1024, and WRITEs and READs use both directions.
const Cell kCells[] = {
    {"clean", {}, 1000},
    {"loss 0.01 %", {.drop = 0.0001}, 900},
    {"loss 0.1 %", {.drop = 0.001}, 1100},
    {"loss 1 %", {.drop = 0.01}, 700},
    {"loss 5 %", {.drop = 0.05}, 100},
    {"burst loss 1 %, 8 in a row", {.drop = 0.01, .burst = 8}, 700},
    {"reordering 1 %", {.reorder = 0.01}, 1320},
    {"duplication 1 %", {.duplicate = 0.01}, 1000},
    {"corruption 1 %, 1 bit", {.corrupt = 0.01}, 700},
    {"all of it", {.drop = 0.01, .reorder = 0.01, .duplicate = 0.01, .corrupt = 0.01}, 400},
};

struct Op {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::size_t source = 0;
  std::size_t slot = 0;
  std::size_t length = 0;
  bool receiver_done = false;
};

constexpr std::size_t kSlotBytes = 256 << 10;
constexpr std::size_t kDepth = 16;
constexpr std::size_t kSourceBytes = 4 << 20;
constexpr Nanos kStep = 5 * kMicrosecond;

class Matrix {
 public:
  explicit Matrix(const FaultConfig& faults) {
    // Loss is applied by one end, to both directions; the rest by each end to what arrives there.
    FaultConfig left = faults;
    left.drop = 0;
    FaultConfig right = faults;
    right.seed = 2;
    constexpr EndpointOptions kOptions{.buffer_bytes = kSourceBytes + kDepth * kSlotBytes};
    a_ = std::make_unique<Endpoint>(device(0, left), kOptions);
    b_ = std::make_unique<Endpoint>(device(1, right), kOptions);
    connect(*a_, *b_, {.mtu = IBV_MTU_1024});
    fill_pattern(a_->buffer, 1);
    fill_pattern(b_->buffer, 2);
    for (std::size_t slot = 0; slot < kDepth; ++slot) free_slots_.push_back(slot);
  }

  /// A line of the snapshot. Ends early, with a failure, if nothing completes for a simulated second.
  std::string run(const char* name, std::uint64_t bytes, double floor) {
    const Nanos begin = clock_.now();
    progress_at_ = begin;
    while (verified_ < bytes) {
      while (posted_bytes_ < bytes && !free_slots_.empty()) post();
      a_->poll();
      b_->poll();
      clock_.advance(kStep);
      check_receives();
      check_completions();
      if (failed_ != 0 || clock_.now() - progress_at_ > kSecond) break;
    }
    EXPECT_EQ(failed_, 0U) << name;
    EXPECT_GE(verified_, bytes) << name << ": nothing completed for a second";
    const double goodput = static_cast<double>(verified_) / (static_cast<double>(clock_.now() - begin) * 1e-9) / 1e6;
    EXPECT_GE(goodput, floor) << name;
    const auto both = [this](const char* counter) { return a_->counter(counter) + b_->counter(counter); };
    return fmt::format("{:<28} {:>6} ops {:>6} MB verified {:>6.0f} MB/s (at least {:.0f}); went back {}, NAKs {}, ",
                       name, operations_, verified_ >> 20, goodput, floor, both("completer_retry_err"),
                       both("send_seq_err")) +
           fmt::format("responses lost {}, duplicates {}, damaged {}\n", both("lost_responses"),
                       both("duplicate_request"), both("drop_icrc"));
  }

 private:
  Device* device(std::size_t index, const FaultConfig& faults) {
    std::unique_ptr<PacketPort> port = switch_.port(index);
    if (faults.any()) port = std::make_unique<FaultPort>(std::move(port), faults);
    return new Device(entry_, Profile::kFull, clock_, std::move(port));
  }

  void post() {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
    Op op;
    op.opcode = kOpcodes[random_() % 3];
    op.length = random_() % 4 == 0 ? random_() % 5000 : random_() % kSlotBytes;
    op.source = random_() % (kSourceBytes - kSlotBytes);
    op.slot = free_slots_.front();
    free_slots_.pop_front();
    const std::size_t to = kSourceBytes + op.slot * kSlotBytes;
    const std::uint64_t id = next_id_++;
    if (op.opcode == IBV_WR_SEND) {
      EXPECT_EQ(b_->post_recv(id, to, kSlotBytes), 0);
    }
    const bool read = op.opcode == IBV_WR_RDMA_READ;
    EXPECT_EQ(a_->post(op.opcode, id, read ? to : op.source, op.length, b_.get(), read ? op.source : to), 0);
    op.receiver_done = op.opcode != IBV_WR_SEND;
    posted_bytes_ += op.length;
    open_.push_back(op);
  }

  Op& op_of(std::uint64_t id) { return open_.at(id - first_open_); }

  void check_receives() {
    for (const ibv_wc& completion : b_->done) {
      Op& op = op_of(completion.wr_id);
      if (completion.status != IBV_WC_SUCCESS || completion.byte_len != op.length || op.receiver_done) ++failed_;
      op.receiver_done = true;
    }
    b_->done.clear();
  }

  // Requests complete in the order of their posting, and a SEND's receiver before its sender.
  void check_completions() {
    for (const ibv_wc& completion : a_->done) {
      const Op& op = open_.front();
      const bool read = op.opcode == IBV_WR_RDMA_READ;
      const auto& from = read ? b_->buffer : a_->buffer;
      const auto& to = read ? a_->buffer : b_->buffer;
      const bool intact = std::memcmp(&from[op.source], &to[kSourceBytes + op.slot * kSlotBytes], op.length) == 0;
      if (completion.wr_id != first_open_ || completion.status != IBV_WC_SUCCESS || !intact || !op.receiver_done) {
        ++failed_;
      }
      verified_ += op.length;
      ++operations_;
      free_slots_.push_back(op.slot);
      open_.pop_front();
      ++first_open_;
      progress_at_ = clock_.now();
    }
    a_->done.clear();
  }

  ManualClock clock_;
  ibv_device entry_{};
  Switch switch_{clock_, {.rate = 10e9}, 2};
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::mt19937 random_{11};
  std::deque<Op> open_;
  std::deque<std::size_t> free_slots_;
  std::uint64_t next_id_ = 0;
  std::uint64_t first_open_ = 0;
  std::uint64_t posted_bytes_ = 0;
  std::uint64_t verified_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t failed_ = 0;
  Nanos progress_at_ = 0;
};

TEST(FaultMatrix, EveryCellVerifiesItsDataAboveItsFloor) {
  const char* wanted = std::getenv("FAIRLEAD_MATRIX_MB");
  const std::uint64_t megabytes = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 32;
  ASSERT_GT(megabytes, 0U);
  std::string table;
  for (const Cell& cell : kCells) {
    const std::string row = Matrix(cell.faults).run(cell.name, megabytes << 20, cell.floor);
    std::fputs(row.c_str(), stdout);
    std::fflush(stdout);
    table += row;
  }
  const std::filesystem::path path =
      std::filesystem::path(FAIRLEAD_SNAPSHOTS) / fmt::format("fault_matrix_{}MB.txt", megabytes);
  if (std::getenv("FAIRLEAD_UPDATE_SNAPSHOT") != nullptr) std::ofstream(path) << table;
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << "no snapshot for " << megabytes << " MB; floors and data were checked";
  EXPECT_EQ(table, std::string((std::istreambuf_iterator<char>(file)), {}))
      << "if the change is meant, FAIRLEAD_UPDATE_SNAPSHOT=1 rewrites " << path;
}

}  // namespace
}  // namespace fairlead::soft::test
