// What posts and finds no memory has posted nothing, whichever of its allocations it is: it throws, nothing is under
// way, and what it took is given back.
#include <array>
#include <cstdlib>
#include <functional>
#include <new>

#include "datapath/flow/outbox.h"
#include "fairlead/burst.h"
#include "tests/conformance/engine_pair.h"

namespace {

// Of this thread: how many allocations until one fails, and all behind it, 0: it is the next; less: none does.
constinit thread_local int left_until_failure = -1;
constinit thread_local std::size_t transfers_made = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  using fairlead::datapath::TransferImpl;
  if (left_until_failure == 0) throw std::bad_alloc();
  if (left_until_failure > 0) --left_until_failure;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (bytes == sizeof(TransferImpl) && alignment == alignof(TransferImpl)) ++transfers_made;
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// A sanitizer has its own of this, whose memory is not for free().
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fairlead {
namespace {

using datapath::TransferImpl;

constexpr std::size_t kBytes = 1 << 16;

/// `act`, with memory for so many allocations. False: it threw for want of more.
bool goes_well(int allocations, const std::function<void()>& act) {
  left_until_failure = allocations;
  try {
    act();
  } catch (const std::bad_alloc&) {
    left_until_failure = -1;
    return false;
  }
  left_until_failure = -1;
  return true;
}

/// The client's lane drives, so that this thread does what a poster does, and no more.
class PostingMemory : public testing::Test, public EnginePair {
 protected:
  void SetUp() override {
    EngineConfig config;
    config.transport = "tcp";
    config.progress = Progress::kThread;
    start(config, config);
    if (HasFatalFailure()) return;
    std::tie(there, remote) = target("there", kBytes, Access::kRemoteReadWrite | Access::kRemoteAtomic);
    here = buffer(*client, kBytes, 7);
  }
  ~PostingMemory() override {
    for (TransferImpl* each : held_) datapath::drop_reference(*each);
  }

  /// All that there is to be used again, and one more, so that the next is new.
  void drain() {
    const std::size_t before = transfers_made;
    while (transfers_made == before) held_.push_back(datapath::acquire_transfer());
  }
  /// `post` until it finds memory.
  void expect_all_or_nothing(const std::function<Transfer()>& post, Code ends_with = Code::kOk) {
    int failures = 0;
    bool began = false;
    Transfer posted;
    for (;; ++failures) {
      ASSERT_LT(failures, 100);
      drain();
      const std::size_t made = transfers_made, held = held_.size();
      if (goes_well(failures, [&] { posted = post(); })) break;
      const std::size_t taken = transfers_made - made;
      began |= taken != 0;
      EXPECT_FALSE(client->next_completed()) << failures;
      EXPECT_EQ(peer.stats().transfers_under_way, 0U) << failures;
      drain();
      ASSERT_EQ(held_.size() - held, taken + 1) << "of " << failures << ": a transfer is lost";
      for (std::size_t i = held; i < held_.size(); ++i) expect_unused(*held_[i]);
    }
    EXPECT_GT(failures, 0) << "nothing was to be allocated";
    EXPECT_TRUE(began || failures == 1) << "a failure behind the first has a transfer to give back";
    EXPECT_EQ(posted.wait(kPatience).code(), ends_with);
  }
  static void expect_unused(const TransferImpl& t) {
    EXPECT_EQ(t.references.load(), 1);
    EXPECT_TRUE(t.own.ops.empty() && t.own.keep.empty() && t.message.empty() && t.reason.empty());
    EXPECT_EQ(t.own.bytes, 0U);
    EXPECT_EQ(t.prepared, nullptr);
    EXPECT_EQ(t.list, nullptr);
    EXPECT_FALSE(t.has_message || t.is_send || t.report || t.finished.load());
  }

  Memory there, here;
  RemoteMemory remote;

 private:
  std::vector<TransferImpl*> held_;
};

TEST_F(PostingMemory, Transfers) {
  const std::vector<std::byte> bytes(40);
  expect_all_or_nothing([&] { return peer.write(here, remote); });
  expect_all_or_nothing([&] { return peer.write(here, remote, {.notify_bytes = bytes}); });
  expect_all_or_nothing([&] { return peer.read(here, remote, {.deadline = kPatience}); });
  expect_all_or_nothing([&] { return peer.fetch_add(remote.slice(0, 8), 1); });
}

TEST_F(PostingMemory, Lists) {
  std::vector<Descriptor> pieces;
  for (std::size_t i = 0; i < 40; ++i) pieces.push_back({here.slice(i * 64, 64), remote.slice(i * 128, 64)});
  expect_all_or_nothing([&] { return peer.write(pieces); });
  expect_all_or_nothing([&] { return peer.read(pieces); });
  const Result<Prepared> list = peer.prepare_write(pieces);
  ASSERT_TRUE(list);
  const std::array<std::uint32_t, 3> some{1, 5, 30};
  expect_all_or_nothing([&] { return peer.post(*list); });
  expect_all_or_nothing([&] { return peer.post(*list, some); });
}

TEST_F(PostingMemory, Messages) {
  const std::vector<std::byte> small(100), large(100'000);
  expect_all_or_nothing([&] { return peer.send(small, 1); });
  expect_all_or_nothing([&] { return peer.send(large, 2); });
}

// What is refused takes words, and a place among those that are reported.
TEST_F(PostingMemory, WhatIsRefused) {
  const TransferOptions late{.deadline = std::chrono::seconds(-1), .report = true};
  expect_all_or_nothing([&] { return peer.write(here, remote, late); }, Code::kDeadlineExceeded);
  EXPECT_TRUE(client->next_completed());
  EXPECT_FALSE(client->next_completed());
  expect_all_or_nothing([&] { return peer.write(here.slice(0, 1), remote); }, Code::kOutOfRange);
}

// Where the poster drives itself what comes behind the throw is told by the transfer.
TEST_F(PostingMemory, OfWhoDrivesItself) {
  EngineConfig config;
  config.transport = "tcp";
  config.progress = Progress::kApplication;
  Result<Engine> driven = Engine::create(config);
  ASSERT_TRUE(driven);
  Result<Peer> to = driven->connect(server->listen_address());
  ASSERT_TRUE(to);
  ASSERT_TRUE(to->wait_ready(kPatience).ok());
  const Memory from = buffer(*driven, 64);
  const Result<RemoteMemory> target = to->lookup("there", kPatience);
  ASSERT_TRUE(target);
  int thrown = 0, told = 0;
  for (int allocations = 0; thrown + told == allocations; ++allocations) {
    ASSERT_LT(allocations, 100);
    drain();
    Transfer posted;
    const bool well = goes_well(
        allocations, [&] { posted = to->write(from, target->slice(0, 64), {.deadline = std::chrono::hours(1)}); });
    if (!well) {
      ++thrown;
      continue;
    }
    const Status ended = posted.wait(kPatience);
    told += ended.ok() ? 0 : 1;
    EXPECT_TRUE(ended.ok() || ended.code() == Code::kResourceExhausted) << ended.to_string();
    EXPECT_EQ(to->stats().transfers_under_way, 0U);
  }
  EXPECT_GT(thrown, 0);
  EXPECT_GT(told, 0) << "the first with a deadline takes room for it";
}

// One that was not added may be added again, and ends once.
TEST_F(PostingMemory, Bursts) {
  constexpr std::size_t kPiece = 16, kPieces = 250;
  std::uint64_t written = peer.stats().bytes_written;
  bool failed = true;
  for (int allocations = 0; failed; ++allocations) {
    ASSERT_LT(allocations, 2000);
    failed = false;
    drain();
    Burst burst = Burst::writes(peer);
    for (std::size_t i = 0; i < kPieces; ++i) {
      const auto add = [&] {
        const Status added = burst.add(here.slice(i * kPiece, kPiece), remote.slice(i * kPiece, kPiece));
        EXPECT_TRUE(added.ok()) << added.to_string();
      };
      if (!goes_well(failed ? -1 : allocations, add)) {
        failed = true;
        ASSERT_EQ(burst.added(), i);
        add();
      }
      ASSERT_EQ(burst.added(), i + 1);
    }
    const Status finished = burst.finish(kPatience);
    ASSERT_TRUE(finished.ok()) << finished.to_string();
    EXPECT_EQ(burst.ended(), kPieces);
    written += kPieces * kPiece;
    EXPECT_EQ(peer.stats().bytes_written, written);
  }
}

// The driver's part of it, before anything of a transfer is on its way.
struct Nobody : datapath::OutboxUser {
  void transfer_ended(TransferImpl&, Code) override { ++ended; }
  [[nodiscard]] std::string who() const override { return {}; }
  int ended = 0;
};

TEST(OutboxMemory, WhatHasNoRoomForItsDeadlineIsNotTaken) {
  Nobody user;
  const auto outbox = std::make_unique<datapath::Outbox>(user, 1024);
  TransferImpl late;
  late.deadline = datapath::Clock::now() + std::chrono::hours(1);
  bool added = true;
  ASSERT_TRUE(goes_well(0, [&] { added = outbox->add(late); }));
  EXPECT_FALSE(added);
  EXPECT_FALSE(late.active);
  EXPECT_EQ(outbox->size(), 0U);
  EXPECT_TRUE(outbox->add(late));
  EXPECT_EQ(user.ended, 1) << "there was nothing in it";
  TransferImpl later;
  later.deadline = late.deadline;
  ASSERT_TRUE(goes_well(0, [&] { added = outbox->add(later); }));
  EXPECT_TRUE(added) << "there was room already";
}

}  // namespace
}  // namespace fairlead
