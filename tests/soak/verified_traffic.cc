// Traffic of every kind between two processes, verified: writes with notifications, reads, messages of up to 200,000
// bytes, commands, and writes to a region that its owner withdraws now and then, in both directions at once.
//
//   fairlead-verified-traffic serve HOST:PORT [FLAGS]           prints "listening on HOST:PORT", then
//                                                               where it was put
//   fairlead-verified-traffic drive HOST:PORT SECONDS [FLAGS]   the other end; begins and ends it; prints "connected"
//
// With --stop-file F the other end drives until that file is there, if that is before SECONDS are over.
// FLAGS: --transport T, --packet-io PORT, --soft-address IP,..., --peer-timeout MS, --lanes N, --placement WHERE,
// --paths N (in stripes of 4 KiB). Checked: every byte; that what was posted arrives once and in order; that every
// transfer ends, and well, but for what is to be refused; that nothing is left over. Both print one line of JSON at the
// end, with counts. Exit code 1 with words if anything is wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/base/json.h"
#include "fairlead/engine.h"
#include "tests/soak/resident.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::Json;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

constexpr std::size_t kSlots = 32, kSlotBytes = 64 * 1024, kConstantBytes = 1 << 20, kForbiddenBytes = 4096;
constexpr std::size_t kMostMessage = 200'000;
constexpr std::chrono::seconds kPatience{120};  // for the end, when nothing is cut any more

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "fairlead-verified-traffic: {}\n", what);
  std::_Exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) die(result.error().to_string());
  return std::move(*result);
}

// What a notification or a message is, and its number in its class: the low bits of its value.
enum class Is : std::uint8_t { kWritten, kMessage, kTaken, kDone };
constexpr std::uint64_t kNumberMask = (1 << 22) - 1, kWide = std::uint64_t{1} << 50;

std::uint64_t value_of(Is is, std::size_t slot, std::uint64_t number) {
  return static_cast<std::uint64_t>(is) << 28 | slot << 22 | (number & kNumberMask);
}

bool is_there(const std::string& file) { return !file.empty() && ::access(file.c_str(), F_OK) == 0; }

std::uint64_t mixed(std::uint64_t seed) {
  seed = (seed ^ seed >> 31) * 0x9e3779b97f4a7c15;
  return seed ^ seed >> 29;
}

/// The bytes of whatever has this number, from word `first` on.
void fill(std::span<std::byte> bytes, std::uint64_t number, std::uint64_t first = 0) {
  for (std::size_t at = 0; at < bytes.size(); at += 8, ++first) {
    const std::uint64_t word = mixed(number) + first;
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
}

bool holds(std::span<const std::byte> bytes, std::uint64_t number, std::uint64_t first = 0) {
  for (std::size_t at = 0; at < bytes.size(); at += 8, ++first) {
    const std::uint64_t word = mixed(number) + first;
    if (std::memcmp(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at)) != 0) return false;
  }
  return true;
}

std::size_t length_of(std::uint64_t number, std::size_t most) {
  const std::uint64_t any = mixed(number ^ 0x5555);
  return static_cast<std::size_t>(any % 4 == 0 ? any / 7 % most : any / 7 % std::min<std::size_t>(most, 3000)) + 1;
}

class End {
 public:
  End(Engine& engine, std::uint64_t seed) : engine_(engine), random_(seed) {
    for (auto [memory, bytes] : {std::pair(&inbox_, kSlots * kSlotBytes),
                                 {&outbox_, kSlots * kSlotBytes},
                                 {&constant_, kConstantBytes},
                                 {&landing_, kSlots * kSlotBytes},
                                 {&words_, std::size_t{16}},
                                 {&forbidden_, kForbiddenBytes}}) {
      *memory = must(engine.allocate(bytes));
    }
    std::memset(words_.data(), 0, words_.size());
    fill(constant_.bytes(), 0);
    publish("inbox", inbox_, Access::kRemoteWrite);
    publish("constant", constant_, Access::kRemoteRead);
    publish("words", words_, Access::kRemoteAtomic);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      free_.push_back(slot);
      landings_.push_back(slot);
    }
  }

  /// Until `until`, and what is under way then; nothing: until the other end is done.
  void run(Peer peer, std::optional<Clock::time_point> until, const std::string& stop_file = {}) {
    peer_ = std::move(peer);
    their_inbox_ = must(peer_.lookup("inbox", kPatience));
    their_constant_ = must(peer_.lookup("constant", kPatience));
    their_words_ = must(peer_.lookup("words", kPatience));
    std::jthread forbidden([this](const std::stop_token& stop) { try_what_is_forbidden(stop); });
    std::optional<Clock::time_point> patience;
    while (!is_over()) {
      if (until && (Clock::now() >= *until || is_there(stop_file))) posting_ = false;
      if (posting_) post();
      take(peer_.next_event(std::chrono::milliseconds(1)));
      for (Event event = peer_.next_event(); event.kind != Event::Kind::kNone; event = peer_.next_event()) take(event);
      look_at_transfers();
      if (!posting_ && transfers_.empty() && free_.size() == kSlots) say_done();
      if (!posting_ && !patience) patience = Clock::now() + kPatience;
      if (patience && Clock::now() > *patience) {
        die(fmt::format("it does not end: {} transfers, {} slots, {}", transfers_.size(), kSlots - free_.size(),
                        peer_.explain()));
      }
      if (resident_ == 0 && ok_ > 20'000) resident_ = resident_kilobytes();
    }
    forbidden.request_stop();
  }

  [[nodiscard]] std::string report() const {
    const PeerStats stats = peer_.stats();
    return Json(Json::Object{{"ok", ok_},
                             {"refused", refused_.load()},
                             {"written", stats.bytes_written},
                             {"read", stats.bytes_read},
                             {"atomics", stats.atomics},
                             {"notified", arrived_[0]},
                             {"commands", arrived_[1]},
                             {"recoveries", stats.recoveries},
                             {"failovers", stats.failovers},
                             {"failbacks", stats.failbacks},
                             {"resumptions", stats.resumptions},
                             {"rail_bytes", stats.rail_bytes},
                             {"replayed", stats.replayed_transfers},
                             {"duplicates_dropped", stats.duplicate_notifications_dropped},
                             {"resident_kilobytes_early", std::uint64_t{resident_}},
                             {"resident_kilobytes", std::uint64_t{resident_kilobytes()}}})
        .dump();
  }

 private:
  struct UnderWay {
    Transfer transfer;
    std::optional<std::size_t> landing;  // of a read
    std::uint64_t offset = 0, length = 0;
    std::optional<std::uint64_t> held;  // of an atomic: what it must find
  };

  void publish(const char* name, const Memory& memory, Access access) {
    if (const Status done = engine_.publish(name, memory, access); !done.ok()) die(done.to_string());
  }

  std::uint64_t& posted(TrafficClass traffic) { return posted_[static_cast<std::size_t>(traffic)]; }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  void post() {
    while (transfers_.size() < 64) {
      const std::uint64_t dots = below(100);
      if (dots < 40 && !free_.empty()) {
        write();
      } else if (dots < 60 && !landings_.empty()) {
        read();
      } else if (dots < 65) {
        count();
      } else if (dots < 85) {
        message(TrafficClass::kBulk, Is::kMessage, length_of(posted(TrafficClass::kBulk), kMostMessage));
      } else {
        message(TrafficClass::kCommands, Is::kMessage, length_of(posted(TrafficClass::kCommands), 600));
      }
    }
  }

  void write() {
    const std::size_t slot = free_.front();
    free_.pop_front();
    const TrafficClass traffic = below(4) == 0 ? TrafficClass::kCommands : TrafficClass::kBulk;
    const std::uint64_t number = posted(traffic)++;
    const std::size_t length = length_of(number, kSlotBytes);
    const Memory source = outbox_.slice(slot * kSlotBytes, length);
    fill(source.bytes(), number);
    const std::uint64_t value = value_of(Is::kWritten, slot, number) | (below(2) == 0 ? kWide : 0);
    add(peer_.write(source, their_inbox_.slice(slot * kSlotBytes, length), {.notify = value, .traffic = traffic}));
  }

  void read() {
    const std::size_t landing = landings_.front();
    landings_.pop_front();
    const std::uint64_t offset = below(kConstantBytes / 8 - kSlotBytes / 8) * 8,
                        length = length_of(random_(), kSlotBytes);
    transfers_.push_back(
        {peer_.read(landing_.slice(landing * kSlotBytes, length), their_constant_.slice(offset, length)),
         landing,
         offset,
         length,
         {}});
  }

  /// A word of theirs that we alone count up: by adding, and by swaps of which none may be in vain.
  void count() {
    const bool add = below(2) == 0;
    const std::uint64_t held = counted_[add ? 0 : 1]++;
    const RemoteMemory word = their_words_.slice(add ? 0 : 8, 8);
    transfers_.push_back({.transfer = add ? peer_.fetch_add(word, 1) : peer_.compare_swap(word, held, held + 1),
                          .landing = {},
                          .held = held});
  }

  void message(TrafficClass traffic, Is is, std::size_t length, std::size_t slot = 0) {
    const std::uint64_t number = posted(traffic)++;
    std::vector<std::byte> bytes(length);
    fill(bytes, number);
    add(peer_.send(bytes, value_of(is, slot, number), {.traffic = traffic}));
  }

  void add(Transfer transfer) { transfers_.push_back({.transfer = std::move(transfer), .landing = {}, .held = {}}); }

  void look_at_transfers() {
    std::erase_if(transfers_, [this](UnderWay& each) {
      if (!each.transfer.done()) return false;
      if (const Status end = each.transfer.status(); !end.ok()) die("a transfer failed: " + end.to_string());
      if (each.landing) {
        const Memory landed = landing_.slice(*each.landing * kSlotBytes, each.length);
        if (!holds(landed.bytes(), 0, each.offset / 8)) die(fmt::format("a read of {} bytes has others", each.length));
        landings_.push_back(*each.landing);
      }
      if (each.held && each.transfer.old_value() != *each.held) {
        die(fmt::format("an atomic found {} where {} was due", each.transfer.old_value(), *each.held));
      }
      ++ok_;
      return true;
    });
  }

  void take(const Event& event) {
    if (event.kind == Event::Kind::kClosed) {
      closed_ = true;
      if (!event.status.ok()) die("the session ended: " + event.status.to_string());
      if (!done_here_ || !done_there_) die("the session ended before its time");
    }
    if (event.kind != Event::Kind::kNotification && event.kind != Event::Kind::kMessage) return;
    std::uint64_t& expected = arrived_[static_cast<std::size_t>(event.traffic)];
    if ((event.value & kNumberMask) != (expected & kNumberMask)) {
      die(fmt::format("class {}: number {} came where {} was due", static_cast<int>(event.traffic),
                      event.value & kNumberMask, expected & kNumberMask));
    }
    const std::uint64_t number = expected++;
    const std::size_t slot = event.value >> 22 & 63;
    switch (static_cast<Is>(event.value >> 28 & 3)) {
      case Is::kWritten: {
        const std::size_t length = length_of(number, kSlotBytes);
        if (!holds(inbox_.slice(slot * kSlotBytes, length).bytes(), number)) {
          die(fmt::format("write {} of {} bytes was notified, and other bytes are there", number, length));
        }
        return message(event.traffic, Is::kTaken, 1, slot);
      }
      case Is::kTaken:
        free_.push_back(slot);
        return;
      case Is::kMessage:
        if (!holds(event.data, number)) die(fmt::format("message {} has other bytes", number));
        return;
      case Is::kDone:
        done_there_ = true;
        posting_ = false;
        return;
    }
  }

  void say_done() {
    if (std::exchange(done_here_, true)) return;
    message(TrafficClass::kBulk, Is::kDone, 1);
  }
  [[nodiscard]] bool is_over() const { return closed_ || (done_here_ && done_there_ && transfers_.empty()); }

  /// What is withdrawn while it is written to: refused in words, at the cost of a path at the most.
  void try_what_is_forbidden(const std::stop_token& stop) {
    const Memory source = must(engine_.allocate(kForbiddenBytes));
    for (bool there = false; !stop.stop_requested(); there = !there) {
      if (there) {
        (void)engine_.unpublish("forbidden");
      } else {
        publish("forbidden", forbidden_, Access::kRemoteWrite);
      }
      const auto until = Clock::now() + std::chrono::milliseconds(300);
      const Result<RemoteMemory> found = peer_.lookup("forbidden", std::chrono::seconds(1));
      while (found && Clock::now() < until && !stop.stop_requested()) {
        const Code code = peer_.write(source, *found).wait().code();
        if (code == Code::kProtectionError) ++refused_;
        if (code != Code::kOk) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::this_thread::sleep_until(until);
    }
  }

  Engine& engine_;
  std::mt19937_64 random_;
  Memory inbox_, outbox_, constant_, landing_, words_, forbidden_;
  Peer peer_;
  RemoteMemory their_inbox_, their_constant_, their_words_;
  std::deque<std::size_t> free_, landings_;
  std::deque<UnderWay> transfers_;
  std::array<std::uint64_t, kTrafficClasses> posted_{}, arrived_{};
  std::array<std::uint64_t, 2> counted_{};
  std::uint64_t ok_ = 0;
  std::atomic<std::uint64_t> refused_{0};
  bool posting_ = true, done_here_ = false, done_there_ = false, closed_ = false;
  std::size_t resident_ = 0;
};

int run(Words words) {
  EngineConfig config;
  const auto take_flag = [&](std::string_view flag) -> std::optional<std::string> {
    const auto at = std::find(words.begin(), words.end(), flag);
    if (at == words.end()) return std::nullopt;
    if (at + 1 == words.end()) die(std::string(flag) + " needs a value");
    const std::string value = at[1];
    words.erase(at, at + 2);
    return value;
  };
  config.transport = take_flag("--transport").value_or("auto");
  config.verbs.packet_io = take_flag("--packet-io").value_or("udp");
  config.verbs.soft_address = take_flag("--soft-address").value_or("");
  config.paths = std::stoul(take_flag("--paths").value_or("1"));
  if (config.paths != 1) config.chunk_bytes = 16 * 1024;
  config.lanes = std::stoul(take_flag("--lanes").value_or("1"));
  config.placement = take_flag("--placement").value_or("auto");
  config.peer_timeout = std::chrono::milliseconds(std::stol(take_flag("--peer-timeout").value_or("30000")));
  const std::string stop_file = take_flag("--stop-file").value_or("");
  const bool serves = words.size() == 2 && words[0] == "serve", drives = words.size() == 3 && words[0] == "drive";
  if (!serves && !drives) die("serve HOST:PORT, or drive HOST:PORT SECONDS");
  config.name = words[0];
  if (serves) config.listen = words[1];
  Engine engine = must(Engine::create(config));
  End end(engine, serves ? 1 : 2);
  if (serves) {
    fmt::print("listening on {}\n", engine.listen_address());
    const PlacementReport placement = engine.placement();
    fmt::print("{}; pages of the pool by node: {}\n", placement.to_string(), fmt::join(placement.pool_pages, " "));
    std::fflush(stdout);
    Peer peer = must(engine.accept(kPatience));
    end.run(peer, std::nullopt);
    for (Event event; event.kind != Event::Kind::kClosed;) {  // the other end goes first
      event = peer.next_event(kPatience);
      if (event.kind == Event::Kind::kNone && peer.state() == PeerState::kClosed) break;  // run() took the last event
      if (event.kind == Event::Kind::kNone) die("the other end does not close the session");
      if (event.kind == Event::Kind::kClosed && !event.status.ok()) die("the end: " + event.status.to_string());
    }
  } else {
    Peer peer = must(engine.connect(words[1]));
    if (const Status ready = peer.wait_ready(kPatience); !ready.ok()) die(ready.to_string());
    fmt::print("connected\n");
    std::fflush(stdout);
    end.run(peer, Clock::now() + std::chrono::seconds(std::stol(words[2])), stop_file);
    peer.close(kPatience);
    while (peer.next_event(kPatience).kind != Event::Kind::kClosed) {
    }
  }
  fmt::print("{}\n", end.report());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(Words(argv + 1, argv + argc)); }
