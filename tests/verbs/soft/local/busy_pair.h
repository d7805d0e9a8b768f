// Two processes with a device each that write to, read from and send to each other, long messages by reference, and
// check every byte that they get: one is the test, the other is there to be killed and stopped.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "base/system/shared_lines.h"
#include "tests/verbs/soft/seat.h"

namespace fairlead::soft::test {

/// What both map: who they are, and how many of the other's writes each has looked at.
struct PairPage {
  struct BusySeat : Seat {
    std::atomic<std::uint64_t> looked_at{0}, exchanged{0};
    std::atomic<bool> idle{false};  // nothing is under way, nor will be
  };
  std::array<BusySeat, 2> seats;
  std::atomic<bool> ends{false};  // no more is begun
};

/// One of the two.
class BusyEnd {
 public:
  static constexpr std::size_t kMost = 1 << 20, kShift = 64 << 10, kReceives = 4;

  BusyEnd(PairPage& page, unsigned which)
      : page_(page), which_(which), random_(which + 1), end_(open_udp("udp,refer=16384"), {.buffer_bytes = kAll}) {
    fill_pattern(ours_, which);
    fill_pattern(theirs_, 1 - which);
    std::ranges::copy(ours_, end_.buffer.begin());
    page.seats[which].take(end_);
  }
  /// `timeout` and `retry_cnt` as verbs has them. False: the other end does not come.
  [[nodiscard]] bool connect(std::uint8_t timeout, std::uint8_t retry_cnt) {
    for (int i = 0; !other().taken; ++i) {
      if (i == 60'000) return false;
      ::usleep(1000);
    }
    const ConnectOptions options{.mtu = IBV_MTU_4096, .timeout = timeout, .retry_cnt = retry_cnt};
    if (end_.to_init() != 0) return false;
    for (std::size_t i = 0; i < kReceives; ++i) receive(i);
    return end_.to_rtr(other().qpn, other().gid, options) == 0 && end_.to_rts(options) == 0;
  }

  /// Begins what can begin, and looks at what has come. False: a request has failed, or something is wrong.
  bool step() {
    if (failed_ == IBV_WC_SUCCESS && !page_.ends) begin();
    end_.poll();
    for (const ibv_wc& each : std::exchange(end_.done, {})) take(each);
    return failed_ == IBV_WC_SUCCESS && wrong_.empty();
  }
  /// Of its own, all have completed.
  [[nodiscard]] bool is_idle() const { return !writes_ && !reads_ && !sends_; }
  [[nodiscard]] bool has_no_receives() const { return receives_ == 0; }
  /// The status of the first request that did not succeed.
  [[nodiscard]] ibv_wc_status failed() const { return failed_; }
  /// What is not as it should be; empty: nothing.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] std::uint64_t exchanged() const { return page_.seats[which_].exchanged; }
  [[nodiscard]] Endpoint& end() { return end_; }
  /// What was only to be read is as it was.
  [[nodiscard]] bool is_source_intact() const {
    return std::memcmp(end_.buffer.data(), ours_.data(), ours_.size()) == 0;
  }

 private:
  // Of the buffer: what is sent, where the other end writes, where is read to, receives.
  static constexpr std::size_t kTarget = kMost + kShift, kRead = kTarget + kMost, kFirst = kRead + kMost;
  static constexpr std::size_t kAll = kFirst + kReceives * kMost;
  enum : std::uint64_t { kWriteId = 100, kReadId, kSendId };

  [[nodiscard]] const PairPage::BusySeat& other() const { return page_.seats[1 - which_]; }
  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  std::size_t length() {
    static constexpr std::array<std::size_t, 6> kLengths{kMost, kMost, 300'000, 64 << 10, 20'000, 1000};
    return kLengths[random_() % kLengths.size()];
  }
  void begin() {
    // One by one, as the other end looks at what was written before it is written anew.
    if (!writes_ && other().looked_at == written_) {
      post(IBV_WR_RDMA_WRITE_WITH_IMM, kWriteId, length(), kTarget);
      writes_ = true;
      ++written_;
    }
    if (!reads_) {
      read_ = {random_() % kShift, length()};
      std::memset(&end_.buffer[kRead], 0, kMost);
      ibv_sge segment = end_.sge(kRead, read_.second);
      post(IBV_WR_RDMA_READ, kReadId, segment, read_.first, 0);
      reads_ = true;
    }
    if (!sends_) {
      post(IBV_WR_SEND_WITH_IMM, kSendId, length(), 0);
      sends_ = true;
    }
  }
  /// From a place that it says along with it.
  void post(ibv_wr_opcode opcode, std::uint64_t id, std::size_t bytes, std::size_t to) {
    const std::size_t shift = random_() % kShift;
    ibv_sge segment = end_.sge(shift, bytes);
    post(opcode, id, segment, to, static_cast<std::uint32_t>(shift));
  }
  void post(ibv_wr_opcode opcode, std::uint64_t id, ibv_sge& segment, std::size_t remote, std::uint32_t immediate) {
    const int error =
        end_.post_to(opcode, id, segment, other().address + remote, other().rkey, IBV_SEND_SIGNALED, immediate);
    if (error != 0) wrong("a request was not taken");
  }
  void receive(std::size_t i) {
    std::memset(&end_.buffer[kFirst + i * kMost], 0, kMost);
    if (end_.post_recv(i, kFirst + i * kMost, kMost) != 0) wrong("a receive request was not taken");
    ++receives_;
  }
  void expect(std::size_t at, std::size_t shift, std::size_t bytes, const char* what) {
    if (shift >= kShift || bytes > kMost || std::memcmp(&end_.buffer[at], &theirs_[shift], bytes) != 0) {
      return wrong(fmt::format("{} of {} bytes is not what the other end has", what, bytes));
    }
    ++page_.seats[which_].exchanged;
  }
  void take(const ibv_wc& done) {
    bool* const of_ours = done.wr_id == kWriteId  ? &writes_
                          : done.wr_id == kReadId ? &reads_
                          : done.wr_id == kSendId ? &sends_
                                                  : nullptr;
    if (of_ours != nullptr && !std::exchange(*of_ours, false)) wrong("a request completed twice");
    if (of_ours == nullptr && receives_-- == 0) wrong("a receive request completed twice");
    if (done.status != IBV_WC_SUCCESS) {
      // All behind the first that failed are flushed, and receive requests with them.
      const bool first = failed_ == IBV_WC_SUCCESS && of_ours != nullptr;
      if (first) failed_ = done.status;
      if (!first && done.status != IBV_WC_WR_FLUSH_ERR)
        wrong(fmt::format("a request ended with status {}", static_cast<int>(done.status)));
      return;
    }
    if (of_ours != nullptr && failed_ != IBV_WC_SUCCESS) wrong("a request behind one that failed did not");
    if (done.wr_id == kReadId) expect(kRead, read_.first, read_.second, "what was read");
    if (of_ours != nullptr) return;
    if (done.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      expect(kTarget, done.imm_data, done.byte_len, "what was written");
      std::memset(&end_.buffer[kTarget], 0, kMost);
      tell_tsan_of_release();
      ++page_.seats[which_].looked_at;
    } else {
      expect(kFirst + done.wr_id * kMost, done.imm_data, done.byte_len, "what was sent");
    }
    // At the end, too: the other one's last may wait for it. A test may have given the memory up.
    if (failed_ == IBV_WC_SUCCESS && end_.mr != nullptr) receive(done.wr_id);
  }

  PairPage& page_;
  const unsigned which_;
  std::mt19937 random_;
  Endpoint end_;
  std::vector<std::uint8_t> ours_ = std::vector<std::uint8_t>(kTarget), theirs_ = std::vector<std::uint8_t>(kTarget);
  bool writes_ = false, reads_ = false, sends_ = false;  // is under way
  std::uint64_t written_ = 0;
  std::pair<std::size_t, std::size_t> read_;  // from where, how much
  std::size_t receives_ = 0;
  ibv_wc_status failed_ = IBV_WC_SUCCESS;
  std::string wrong_;
};

/// The other process. It was forked before the test had a device.
class OtherProcessEnd {
 public:
  OtherProcessEnd(std::uint8_t timeout, std::uint8_t retry_cnt) {
    void* const memory = ::mmap(nullptr, sizeof(PairPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    page_ = new (memory) PairPage;
    child_ = ::fork();
    if (child_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(300);
    ::_exit(serve(timeout, retry_cnt));
  }
  OtherProcessEnd(const OtherProcessEnd&) = delete;
  OtherProcessEnd& operator=(const OtherProcessEnd&) = delete;
  ~OtherProcessEnd() {
    signal(SIGKILL);
    (void)wait();
    ::munmap(page_, sizeof(PairPage));
  }
  [[nodiscard]] PairPage& page() const { return *page_; }
  void signal(int number) const {
    if (child_ > 0) ::kill(child_, number);
  }
  /// How it ended (waitpid).
  int wait() {
    int status = -1;
    if (child_ > 0) ::waitpid(std::exchange(child_, -1), &status, 0);
    return status;
  }

 private:
  /// Until no more is begun, and nothing is under way.
  int serve(std::uint8_t timeout, std::uint8_t retry_cnt) {
    BusyEnd end(*page_, 1);
    if (!end.connect(timeout, retry_cnt)) return 2;
    while (end.step()) {
      if (page_->ends && end.is_idle()) break;
    }
    page_->seats[1].idle = true;
    // It answers until it is killed, or the test has gone.
    while (end.wrong().empty() && page_->seats[0].taken) end.step();
    if (!end.wrong().empty()) std::fprintf(stderr, "the other process: %s\n", end.wrong().c_str());
    return end.wrong().empty() && end.failed() == IBV_WC_SUCCESS ? 0 : 3;
  }

  PairPage* page_ = nullptr;
  pid_t child_ = -1;
};

}  // namespace fairlead::soft::test
