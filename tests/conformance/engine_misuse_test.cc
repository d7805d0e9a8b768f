// What a program gets wrong with memory and transfers: each mistake has its code and a sentence that names it, and
// nothing else happens.
#include "tests/conformance/engine_misuse.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <functional>
#include <thread>

namespace fairlead {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// ---- memory

TEST_F(EngineMisuse, Registering) {
  std::byte bytes[64];
  const auto span = [](std::uintptr_t at, std::size_t size) {
    return std::span(reinterpret_cast<std::byte*>(at), size);  // NOLINT(performance-no-int-to-ptr)
  };
  const auto at = reinterpret_cast<std::uintptr_t>(bytes);
  expect_error(client->register_memory(span(0, 0)), Code::kInvalidArgument, "0 bytes");
  expect_error(client->register_memory(span(0, 64)), Code::kInvalidArgument, "64 bytes at");
  expect_error(client->register_memory(span(at, 0)), Code::kInvalidArgument, "0 bytes");
  expect_error(client->register_memory(span(at, std::size_t{1} << 60)), Code::kInvalidArgument, "may read");
  expect_error(client->register_memory(span(at, SIZE_MAX)), Code::kInvalidArgument, "may read");
  expect_error(client->register_memory(span(16, 4096)), Code::kInvalidArgument, "at 0x10");
  expect_error(client->register_memory(span(~std::uintptr_t{0} - 100, 64)), Code::kInvalidArgument, "may read");
  expect_error(own_pages(8192, PROT_NONE, Access::kNone), Code::kInvalidArgument, "8192 bytes");
  expect_error(client->register_memory(bytes, static_cast<Access>(0xff)), Code::kInvalidArgument, "access 255");
  expect_error(client->register_memory(bytes, Access::kRemoteWrite | Access::kLocalReadOnly), Code::kInvalidArgument,
               "contradict");
  bool released = false;
  expect_error(client->register_memory(span(0, 64), Access::kNone, [&] { released = true; }), Code::kInvalidArgument,
               "64 bytes at");
  EXPECT_FALSE(released);

  const std::vector<std::span<std::byte>> mixed{span(at, 64), span(at + 32, 8), span(at, 0)};
  expect_error(client->register_memory(mixed), Code::kInvalidArgument, "range 2 of 3");
  const std::vector<std::span<std::byte>> overlapping{span(at, 64), span(at + 32, 8), span(at, 64)};
  const Result<std::vector<Memory>> all = client->register_memory(overlapping);
  ASSERT_TRUE(all) << all.error().to_string();
  EXPECT_EQ((*all)[1].data(), bytes + 32);
  EXPECT_TRUE(client->register_memory(std::span<const std::span<std::byte>>()));
}

TEST_F(EngineMisuse, Allocating) {
  expect_error(client->allocate(0), Code::kInvalidArgument, "0 bytes");
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX, SIZE_MAX - 4096}) {
    expect_error(client->allocate(bytes), Code::kResourceExhausted, fmt::format("{} bytes", bytes));
  }
}

TEST_F(EngineMisuse, SlicesOutOfBounds) {
  for (const Memory& part : {source.slice(0, kBytes + 1), source.slice(kBytes, 1), source.slice(SIZE_MAX, 2),
                             source.slice(8, SIZE_MAX), Memory().slice(0, 0)}) {
    EXPECT_FALSE(part.valid());
    EXPECT_EQ(part.data(), nullptr);
    expect_failure(peer.write(part, remote), Code::kInvalidArgument, "local memory is not valid");
    expect_error(client->publish("part", part, Access::kRemoteRead), Code::kInvalidArgument, "not valid");
  }
  for (const RemoteMemory& part : {remote.slice(0, kBytes + 1), remote.slice(UINT64_MAX, 2),
                                   remote.slice(1, UINT64_MAX), RemoteMemory().slice(0, 0)}) {
    EXPECT_FALSE(part.valid());
    expect_failure(peer.read(source, part), Code::kInvalidArgument, "remote memory is not valid");
  }
  EXPECT_TRUE(source.slice(kBytes, 0).valid()) << "empty, at the end";
}

TEST_F(EngineMisuse, HandlesThatNameNothing) {
  const RemoteMemory nothing;
  EXPECT_EQ(nothing.name(), "");
  EXPECT_EQ(nothing.access(), Access::kNone);
  EXPECT_FALSE(nothing.tensor());
  EXPECT_EQ(Prepared().size() + Prepared().bytes(), 0u);
  expect_failure(peer.write(Memory(), remote), Code::kInvalidArgument, "local memory");
  expect_failure(peer.read(source, nothing), Code::kInvalidArgument, "remote memory");
  expect_failure(peer.post(Prepared()), Code::kInvalidArgument, "empty handle");
  expect_failure(peer.post(Prepared(), std::vector<std::uint32_t>{0}), Code::kInvalidArgument, "empty handle");
  expect_failure(peer.write_tensor(Memory(), {}, remote, {}), Code::kInvalidArgument, "local memory is not valid");
  expect_failure(peer.read_tensor(source, {}, nothing, {}), Code::kInvalidArgument, "remote memory is not valid");
  expect_error(client->publish("none", Memory(), Access::kRemoteRead), Code::kInvalidArgument, "not valid");

  Transfer none;
  EXPECT_TRUE(none.done());
  none.cancel();
  expect_error(none.wait(kPatience), Code::kInvalidArgument, "names no transfer");
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_EQ(none.bytes() + none.tag(), 0u);
  expect_error(wait_all(std::vector<Transfer>(3)), Code::kInvalidArgument, "names no transfer");
}

TEST_F(EngineMisuse, APeerThatIsNone) {
  const Result<Prepared> list = peer.prepare_write(std::vector<Descriptor>{{source, remote}});
  ASSERT_TRUE(list);
  Peer none;
  EXPECT_EQ(none.state(), PeerState::kClosed);
  EXPECT_EQ(none.name() + none.address() + none.transport() + none.explain(), "");
  EXPECT_EQ(none.stats().bytes_written, 0u);
  const std::vector<Descriptor> batch{{source, remote}};
  for (const Status& status :
       {none.wait_ready(), none.lookup("region").status(), none.list("").status(), none.prepare_read(batch).status(),
        none.prepare_write({}).status(), none.next_event(kPatience).status, none.write(source, remote).wait(),
        none.read(source, remote).wait(), none.write(batch).wait(), none.read(std::span<const Descriptor>()).wait(),
        none.write_tensor(source, {}, remote, {}).wait(), none.post(*list).wait(),
        none.post(*list, std::vector<std::uint32_t>{0}).wait(), none.send({}).wait(),
        none.send({}, 0, {.report = true}).wait()}) {
    expect_error(status, Code::kInvalidArgument, "names no peer");
  }
  EXPECT_EQ(none.next_event(kPatience).kind, Event::Kind::kNone);
  none.close();
}

TEST_F(EngineMisuse, MemoryOfAnotherEngine) {
  const Memory theirs = buffer(*server, kBytes);
  expect_failure(peer.write(theirs, remote), Code::kInvalidArgument, "another engine");
  expect_failure(peer.read_tensor(theirs, {}, remote, {}), Code::kInvalidArgument, "another engine");
  expect_error(peer.prepare_read(std::vector<Descriptor>{{source, remote}, {theirs, remote}}), Code::kInvalidArgument,
               "piece 1 of 2: the local memory for region 'region' is registered with another engine");
  expect_error(client->publish("theirs", theirs, Access::kRemoteRead), Code::kInvalidArgument, "another engine");

  Memory orphan;  // outlives its engine
  {
    Result<Engine> other = Engine::create(config_for({"tcp", "tcp"}));
    ASSERT_TRUE(other);
    orphan = buffer(*other, kBytes, 9);
  }
  EXPECT_EQ(orphan.data()[kBytes - 1], std::byte{9}) << "the bytes are its own";
  expect_failure(peer.write(orphan, remote), Code::kInvalidArgument, "another engine");
  expect_error(client->publish("orphan", orphan, Access::kRemoteRead), Code::kInvalidArgument, "another engine");
}

TEST_F(EngineMisuse, ReadOnlyPagesThatAreToBeWritten) {
  const Result<Memory> constant = own_pages(kBytes, PROT_READ, Access::kNone);
  ASSERT_TRUE(constant) << "to write from";
  EXPECT_TRUE(peer.write(*constant, remote).wait(kPatience).ok());
  const Status read = peer.read(*constant, remote).wait(kPatience);
  EXPECT_FALSE(read.ok());
  EXPECT_FALSE(read.message().empty());
  const Result<Memory> declared = own_pages(kBytes, PROT_READ, Access::kLocalReadOnly);
  ASSERT_TRUE(declared);
  expect_failure(peer.read(*declared, remote), Code::kPermissionDenied, "read-only");
  expect_error(client->publish("declared", *declared, Access::kRemoteWrite), Code::kPermissionDenied,
               "no remote access as read-only memory, which does not include remote writing");
}

// ---- names

TEST_F(EngineMisuse, Publishing) {
  Memory theirs = buffer(*server, kBytes);
  const auto publish = [&](std::string_view name, Access access = Access::kRemoteRead) {
    return server->publish(name, theirs, access);
  };
  expect_error(publish("region"), Code::kAlreadyExists, "'region' is published already");
  expect_error(publish(""), Code::kInvalidArgument, "1 to 1024 bytes");
  expect_error(publish(std::string(1 << 20, 'n')), Code::kInvalidArgument, "1048576");
  expect_error(publish("odd", static_cast<Access>(0x80)), Code::kPermissionDenied, "access 128");
  const Result<Memory> readable = server->register_memory(theirs.bytes(), Access::kRemoteRead);
  ASSERT_TRUE(readable);
  expect_error(server->publish("w", *readable, Access::kRemoteWrite), Code::kPermissionDenied,
               "registered for remote reading, which does not include remote writing");
  using namespace std::string_view_literals;
  for (const std::string_view name : {"a\0b"sv, "\xff\xfe"sv}) {
    EXPECT_TRUE(publish(name).ok()) << "a name is bytes";
    EXPECT_EQ(peer.lookup(name, kPatience)->name(), name);
  }
  expect_error(server->unpublish("never"), Code::kNotFound, "'never'");
  expect_error(server->unpublish(""), Code::kNotFound, "''");
  EXPECT_TRUE(server->unpublish("\xff\xfe").ok());
  expect_error(server->unpublish("\xff\xfe"), Code::kNotFound, "published");
}

TEST_F(EngineMisuse, LookingUp) {
  expect_error(peer.lookup(""), Code::kInvalidArgument, "1 to 1024");
  expect_error(peer.lookup(std::string(2000, 'n')), Code::kInvalidArgument, "2000");
  expect_error(peer.list(std::string(2000, 'n')), Code::kInvalidArgument, "2000");
  expect_error(peer.lookup("nothing", kPatience), Code::kNotFound, "'nothing'");
  // An answer that came before anybody looked is taken all the same, so who is put off meanwhile asks again.
  for (const nanoseconds over : {nanoseconds(-1), nanoseconds::min()}) {
    Result<RemoteMemory> found = peer.lookup("region", over);
    for (int tries = 0; found && tries < 100; ++tries) found = peer.lookup("region", over);
    expect_error(found, Code::kDeadlineExceeded, "in time");
  }
  EXPECT_TRUE(peer.lookup("region", nanoseconds::max()));
  EXPECT_TRUE(peer.list("nothing", kPatience)->empty());
}

TEST_F(EngineMisuse, TensorsThatDoNotFit) {
  const std::int64_t shape[] = {32, 32}, negative[] = {-1, 4}, huge[] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  const std::vector<std::int64_t> deep(9, 1);
  const TensorSpec fits = *TensorSpec::contiguous(DType::kF32, shape);
  expect_error(TensorSpec::contiguous(DType::kF32, negative), Code::kInvalidArgument, "negative");
  expect_error(TensorSpec::contiguous(DType::kF32, huge), Code::kInvalidArgument, "2^63");
  expect_error(TensorSpec::contiguous(DType::kF32, deep), Code::kInvalidArgument, "rank 9");
  expect_error(TensorSpec::contiguous(static_cast<DType>(99), shape), Code::kInvalidArgument, "99 is not a dtype");
  const auto changed = [&](const std::function<void(TensorSpec&)>& change) {
    TensorSpec spec = fits;
    change(spec);
    return spec;
  };
  const struct {
    TensorSpec spec;
    Code code;
    std::string_view words;
  } bad[] = {
      {changed([](TensorSpec& t) { t.shape[0] = 33; }), Code::kOutOfRange, "F32[33,32] at offset 0"},
      {changed([](TensorSpec& t) { t.offset = 1; }), Code::kOutOfRange, "offset 1"},
      {changed([](TensorSpec& t) { t.offset = UINT64_MAX; }), Code::kOutOfRange, "4096 bytes"},
      {changed([](TensorSpec& t) { t.strides[0] = -32; }), Code::kOutOfRange, "does not fit"},
      {changed([](TensorSpec& t) { t.strides[0] = INT64_MAX; }), Code::kOutOfRange, "does not fit"},
      {changed([](TensorSpec& t) { t.strides[1] = INT64_MIN; }), Code::kOutOfRange, "does not fit"},
      {changed([](TensorSpec& t) { t.shape[1] = -2; }), Code::kInvalidArgument, "negative"},
      {changed([](TensorSpec& t) { t.shape[0] = t.shape[1] = INT64_MAX; }), Code::kInvalidArgument, "2^63"},
      {changed([](TensorSpec& t) { t.rank = 200; }), Code::kInvalidArgument, "rank 200"},
      {changed([](TensorSpec& t) { t.dtype = static_cast<DType>(0); }), Code::kInvalidArgument, "not a dtype"},
  };
  for (const auto& [spec, code, words] : bad) {
    expect_error(client->publish("tensor", source, Access::kRemoteRead, spec), code, words);
    expect_failure(peer.write_tensor(source, spec, remote, fits), code, words);
    expect_failure(peer.write_tensor(source, fits, remote, spec), code, words);
    expect_failure(peer.read_tensor(source, fits, remote, spec), code, words);
  }
  const TensorSpec other = changed([](TensorSpec& t) { t.dtype = DType::kI32; });
  expect_failure(peer.write_tensor(source, fits, remote, other), Code::kInvalidArgument, "F32[32,32] here, I32[32,32]");
  const TensorSpec flat = changed([](TensorSpec& t) { t.rank = 1; });
  expect_failure(peer.write_tensor(source, fits, remote, flat), Code::kInvalidArgument, "differ");
  const TensorSpec overlapping = changed([](TensorSpec& t) { t.strides[0] = 0; });
  expect_failure(peer.write_tensor(source, fits, remote, overlapping), Code::kInvalidArgument, "overlap");
  expect_failure(peer.read_tensor(source, overlapping, remote, fits), Code::kInvalidArgument, "overlap");
  EXPECT_TRUE(peer.write_tensor(source, overlapping, remote, fits).wait(kPatience).ok()) << "one row, many times";
}

// ---- transfers

TEST_F(EngineMisuse, SizesAndAccess) {
  expect_failure(peer.write(source.slice(0, 100), remote), Code::kOutOfRange, "100 local bytes for 4096");
  const auto [read_memory, readable] = target("readable", kBytes, Access::kRemoteRead);
  const auto [write_memory, writable] = target("writable", kBytes, Access::kRemoteWrite);
  expect_failure(peer.write(source, readable), Code::kPermissionDenied, "'readable' does not grant writing");
  expect_failure(peer.read(source, writable), Code::kPermissionDenied, "'writable' does not grant reading");
  expect_error(peer.prepare_write(std::vector<Descriptor>{{source, readable}}), Code::kPermissionDenied, "'readable'");
}

TEST_F(EngineMisuse, ThingsOfAnotherSession) {
  const Peer first = peer;
  const RemoteMemory there = remote;
  const Result<Prepared> list = peer.prepare_write(std::vector<Descriptor>{{source, remote}});
  ASSERT_TRUE(list);
  connect();  // `peer` is another one
  remote = *peer.lookup("region", kPatience);
  expect_failure(peer.write(source, there), Code::kInvalidArgument, "another session");
  const std::vector<Descriptor> batch{{source, remote}, {source, there}};
  expect_failure(peer.write(batch), Code::kInvalidArgument, "piece 1 of 2: region 'region' was looked up in another");
  expect_error(peer.prepare_write(batch), Code::kInvalidArgument, "piece 1 of 2");
  expect_failure(peer.post(*list), Code::kInvalidArgument, "another peer");
  expect_failure(peer.post(*list, std::vector<std::uint32_t>{0}), Code::kInvalidArgument, "another peer");
}

TEST_F(EngineMisuse, ListsAndSelections) {
  const Result<Prepared> list = peer.prepare_write(std::vector<Descriptor>{{source, remote}});
  ASSERT_TRUE(list);
  expect_failure(peer.post(*list, std::vector<std::uint32_t>{0, 1}), Code::kOutOfRange, "index 1 of a list of 1");
  expect_failure(peer.post(*list, std::vector<std::uint32_t>{UINT32_MAX}), Code::kOutOfRange, "4294967295");
  // Nothing to move is no mistake, and is told of as anything else.
  const Result<Prepared> empty = peer.prepare_read({});
  ASSERT_TRUE(empty);
  std::uint64_t value = 0;
  for (Transfer transfer : {peer.write(std::span<const Descriptor>(), {.notify = 0}),
                            peer.read(std::span<const Descriptor>(), {.notify = 1}), peer.post(*empty, {.notify = 2}),
                            peer.post(*list, std::span<const std::uint32_t>(), {.notify = 3})}) {
    EXPECT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
    EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, value++);
  }
}

TEST_F(EngineMisuse, MessagesTooLarge) {
  const std::vector<std::byte> large(10'001), none;
  expect_failure(peer.send(large), Code::kInvalidArgument, "10001 bytes; the limit is 10000 (max_message_bytes)");
  expect_failure(peer.write(source, remote, {.notify_bytes = large}), Code::kInvalidArgument, "10001");
  expect_failure(peer.send(none, 0, {.notify = 1}), Code::kInvalidArgument, "notify");
  EXPECT_TRUE(peer.send(none, 5).wait(kPatience).ok());
  const Event event = next_of(server_peer, Event::Kind::kMessage);
  EXPECT_EQ(event.value, 5u);
  EXPECT_TRUE(event.data.empty());
}

TEST_F(EngineMisuse, TimesThatHavePassed) {
  expect_failure(peer.write(source, remote, {.deadline = nanoseconds(-1)}), Code::kDeadlineExceeded, "-1 ns");
  expect_failure(peer.send({}, 0, {.deadline = nanoseconds::min()}), Code::kDeadlineExceeded, "passed");
  EXPECT_TRUE(peer.write(source, remote, {.deadline = nanoseconds::max()}).wait(kPatience).ok());
  const Event none = peer.next_event(nanoseconds::min());
  EXPECT_TRUE(none.kind == Event::Kind::kNone || none.kind == Event::Kind::kConnected);
  EXPECT_EQ(server->accept(nanoseconds::min()).error().code(), Code::kDeadlineExceeded);
  std::vector<Transfer> transfers;
  for (int i = 0; i < 100; ++i) transfers.push_back(peer.write(source, remote));
  for (const nanoseconds timeout : {nanoseconds(-1), nanoseconds::min()}) {
    const Status waited = transfers.back().wait(timeout);
    EXPECT_TRUE(waited.ok() || waited.code() == Code::kDeadlineExceeded) << waited.to_string();
    EXPECT_LE(wait_any(transfers, timeout), transfers.size());
    (void)wait_all(transfers, timeout);
  }
  EXPECT_TRUE(wait_all(transfers, nanoseconds::max()).ok());
  EXPECT_TRUE(peer.wait_ready(nanoseconds::min()).ok()) << "it is ready";
}

TEST_F(EngineMisuse, WaitingInOddWays) {
  EXPECT_EQ(wait_any({}), 0u);
  EXPECT_TRUE(wait_all({}).ok());
  // From two threads, and one of them cancels, twice.
  Transfer transfer = peer.write(source, remote);
  std::thread another([copy = transfer]() mutable { (void)copy.wait(kPatience); });
  transfer.cancel();
  transfer.cancel();
  const Status end = transfer.wait(kPatience);
  another.join();
  EXPECT_TRUE(end.ok() || end.code() == Code::kCancelled) << end.to_string();
  transfer.cancel();
  EXPECT_EQ(transfer.code(), end.code()) << "it had ended";
  transfer.cancel();
}

// The first transfer never ends: nobody takes what fills the window. The second engine's does.
TEST(EngineMisuseAlone, WaitsForTransfersOfTwoEngines) {
  for (const Progress progress : {Progress::kAuto, Progress::kThread}) {
    EnginePair one, other;
    EngineConfig config = config_for({"tcp", "tcp"});
    config.progress = progress;
    other.start(config, config);
    config.max_pending_events = 1;
    one.start(config, config);
    std::vector<Transfer> stuck;
    for (int i = 0; i < 4; ++i) stuck.push_back(one.peer.send({}));
    ASSERT_TRUE(stuck[0].wait(kPatience).ok());
    const auto [memory, remote] = other.target("region", kBytes);
    const std::vector<Transfer> both{stuck.back(), other.peer.write(other.buffer(*other.client, kBytes), remote)};
    EXPECT_EQ(wait_any(both, kPatience), 1u);
    EXPECT_EQ(wait_all(both, milliseconds(20)).code(), Code::kDeadlineExceeded);
    EXPECT_EQ(wait_any(std::vector<Transfer>{stuck.back()}, milliseconds(20)), 1u) << "none";
    std::thread taking([&one] {
      for (int i = 0; i < 4; ++i) (void)next_of(one.server_peer, Event::Kind::kMessage);
    });
    EXPECT_TRUE(wait_all(both, kPatience).ok());
    taking.join();
  }
}

}  // namespace
}  // namespace fairlead
