#include "verbs/soft/port/memif/handshake.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fairlead::soft::memif {
namespace {

using Answer = Result<std::optional<Outgoing>>;

constexpr std::size_t kPage = 4096;
constexpr std::uint16_t kWays = 2;

Status wrong(std::string what) { return {Code::kInvalidArgument, std::move(what)}; }
Answer acknowledged() { return std::optional(Outgoing{Ack{}}); }
Answer nothing() { return std::optional<Outgoing>(); }

Answer left(const Disconnect& said) {
  return Status(Code::kUnavailable, said.reason.empty() ? "it left" : "it left, saying: " + said.reason);
}

// An eventfd, as far as one can see: something that is neither a file, nor a pipe or a socket. Writing to it must not
// wait, and its other owner may have it so.
bool make_wake(const UniqueFd& descriptor) {
  struct stat facts{};
  return ::fstat(descriptor.get(), &facts) == 0 && (facts.st_mode & S_IFMT) == 0 &&
         ::fcntl(descriptor.get(), F_SETFL, O_NONBLOCK) == 0;
}

class Master final : public Handshake {
 public:
  explicit Master(const Settings& settings) : Handshake(settings) {}

  std::optional<Outgoing> begin() override {
    Hello hello;
    hello.name = settings_.name;
    hello.last_region = Regions::kMost - 1;
    hello.last_to_slave = hello.last_to_master = kWays - 1;
    return Outgoing{hello};
  }

  Answer take(const Message& message, UniqueFd descriptor) override {
    if (const auto* init = std::get_if<Init>(&message); init != nullptr && !knows_it_) return on(*init);
    if (const auto* region = std::get_if<AddRegion>(&message); region != nullptr && talking()) {
      return on(*region, descriptor);
    }
    if (const auto* ring = std::get_if<AddRing>(&message); ring != nullptr && talking()) {
      return on(*ring, std::move(descriptor));
    }
    if (std::holds_alternative<Connect>(message) && talking()) return connect();
    if (const auto* said = std::get_if<Disconnect>(&message)) return left(*said);
    return wrong("its message is not what comes next");
  }

 private:
  [[nodiscard]] bool talking() const noexcept { return knows_it_ && !agreed_; }

  Answer on(const Init& init) {
    if (init.version != kVersion) {
      return wrong(fmt::format("it speaks version {}.{} of memif, and we 2.0", init.version >> 8, init.version & 0xff));
    }
    if (init.interface != settings_.interface) {
      return wrong(fmt::format("it asks for interface {}, and this is {}: both ends take the same id=", init.interface,
                               settings_.interface));
    }
    if (init.mode != 0) return wrong("it does not speak Ethernet");
    if (!settings_.secret.empty() && init.secret != settings_.secret) {
      return wrong("it does not know the secret: both ends take the same secret=");
    }
    knows_it_ = true;
    return acknowledged();
  }

  Answer on(const AddRegion& region, const UniqueFd& descriptor) {
    if (region.index != wire_->regions.size()) return wrong("its regions do not count from 0");
    if (Status status = wire_->regions.adopt(descriptor, region.bytes); !status.ok()) return status;
    return acknowledged();
  }

  Answer on(const AddRing& ring, UniqueFd descriptor) {
    if (ring.index >= kWays) return wrong("it has more than two rings each way: give queues=2 there, or leave it out");
    const bool inward = ring.direction == Direction::kToMaster;
    Rings& rings = rings_[ring.index];
    std::optional<RingPlace>& place = inward ? rings.inward : rings.outward;
    if (place) return wrong("it has two rings of one number");
    if (ring.log2_slots > kMostLog2Slots) return wrong("its ring has more than 16384 slots");
    if (ring.private_bytes != 0) return wrong("its ring has private headers");
    std::byte* const at = wire_->regions.find(ring.region, ring.offset, RingView::bytes(ring.log2_slots));
    if (at == nullptr || ring.offset % RingView::kAlignment != 0) return wrong("its ring is not in its region");
    if (!make_wake(descriptor)) return wrong("its ring came without an eventfd");
    place = {
        .view = RingView(at), .log2_slots = ring.log2_slots, .direction = ring.direction, .regions = &wire_->regions};
    (inward ? rings.wakes_us : rings.wakes_peer) = std::move(descriptor);
    return acknowledged();
  }

  Answer connect() {
    if (!rings_[0].complete()) return wrong("it connects without rings");
    if (rings_[1].begun() && !rings_[1].complete()) return wrong("it has two rings one way, and one the other");
    if (Status status = start(rings_[0], *wire_); !status.ok()) return status;
    if (rings_[1].complete()) {
      if (Status status = start(rings_[1], wire_->urgent.emplace()); !status.ok()) return status;
    }
    agreed_ = true;
    return std::optional(Outgoing{Connected{settings_.name}});
  }

  struct Rings {
    [[nodiscard]] bool begun() const noexcept { return inward || outward; }
    [[nodiscard]] bool complete() const noexcept { return inward && outward; }
    std::optional<RingPlace> inward, outward;
    UniqueFd wakes_us, wakes_peer;
  };

  static Status start(Rings& rings, Way& way) {
    for (const RingPlace& each : {*rings.inward, *rings.outward}) {
      if (each.view.cookie().load(std::memory_order_relaxed) != kCookie) return wrong("its ring is none");
      each.view.head().store(0, std::memory_order_relaxed);
      each.view.tail().store(0, std::memory_order_relaxed);
    }
    way.start(*rings.outward, *rings.inward);
    way.wakes_us = std::move(rings.wakes_us);
    way.wakes_peer = std::move(rings.wakes_peer);
    return {};
  }

  bool knows_it_ = false;
  std::array<Rings, kWays> rings_;
};

class Slave final : public Handshake {
 public:
  explicit Slave(const Settings& settings) : Handshake(settings) {}

  Answer take(const Message& message, UniqueFd /*descriptor*/) override {
    if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && !knows_it_) {
      if (Status status = on(*hello); !status.ok()) return status;
      return next();
    }
    if (std::holds_alternative<Ack>(message) && knows_it_ && !to_say_.empty()) return next();
    if (std::holds_alternative<Connected>(message) && knows_it_ && to_say_.empty() && !agreed_) {
      start();
      return nothing();
    }
    if (const auto* said = std::get_if<Disconnect>(&message)) return left(*said);
    return wrong("its message is not what comes next");
  }

 private:
  Answer next() {
    const Outgoing said = to_say_.front();
    to_say_.pop_front();
    return std::optional(said);
  }

  Status on(const Hello& hello) {
    if (hello.least_version > kVersion || hello.most_version < kVersion) {
      return wrong(fmt::format("it speaks versions {}.{} to {}.{} of memif, and we 2.0", hello.least_version >> 8,
                               hello.least_version & 0xff, hello.most_version >> 8, hello.most_version & 0xff));
    }
    const unsigned log2_slots = std::min<unsigned>({settings_.log2_slots, hello.most_log2_slots, kMostLog2Slots});
    const bool two = hello.last_to_slave == kWays - 1 && hello.last_to_master == kWays - 1;
    if (two) wire_->urgent.emplace();
    if (Status status = make_memory(log2_slots); !status.ok()) return status;
    Init init;
    init.interface = settings_.interface;
    init.secret = settings_.secret;
    init.name = settings_.name;
    to_say_.push_back({init});
    to_say_.push_back({AddRegion{0, bytes_}, memory_.get()});
    for (std::size_t i = 0; i < places_.size(); ++i) {
      Way& way = *places_[i].way;
      way.wakes_peer = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      way.wakes_us = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      if (!way.wakes_peer || !way.wakes_us) {
        return {Code::kResourceExhausted, "no descriptors are left for a memif; raise `ulimit -n`"};
      }
      const auto tell = [&](Direction direction, std::size_t ring, const UniqueFd& wakes) {
        const auto offset = static_cast<std::uint32_t>(ring * RingView::bytes(log2_slots));
        to_say_.push_back(
            {AddRing{direction, static_cast<std::uint16_t>(i), 0, offset, static_cast<std::uint8_t>(log2_slots), 0},
             wakes.get()});
      };
      tell(Direction::kToMaster, 2 * i, way.wakes_peer);
      tell(Direction::kToSlave, 2 * i + 1, way.wakes_us);
    }
    to_say_.push_back({Connect{settings_.name}});
    knows_it_ = true;
    return Status();
  }

  // All rings, then the buffers of each.
  Status make_memory(unsigned log2_slots) {
    const std::size_t rings = wire_->urgent ? 2 * kWays : 2;
    const std::size_t ring = RingView::bytes(log2_slots);
    const std::size_t first = (rings * ring + kPage - 1) / kPage * kPage;
    const std::size_t buffers = std::size_t{settings_.buffer_bytes} << log2_slots;
    bytes_ = (first + rings * buffers + kPage - 1) / kPage * kPage;
    auto made = make_shared_memory("fairlead-memif", bytes_);
    if (!made) return made.error();
    auto memory = SharedMapping::map(made->get(), bytes_);
    if (!memory) return memory.error();
    ::madvise(memory->get(), bytes_, MADV_HUGEPAGE);
    std::byte* const at = memory->get();
    const auto place = [&](Direction direction, std::size_t number) {
      const RingView view(at + number * ring);
      view.cookie().store(kCookie, std::memory_order_relaxed);
      view.flags().store(RingView::kMaskInterrupt, std::memory_order_relaxed);
      return RingPlace{.view = view,
                       .log2_slots = log2_slots,
                       .direction = direction,
                       .regions = &wire_->regions,
                       .buffers = at + first + number * buffers,
                       .buffers_offset = static_cast<std::uint32_t>(first + number * buffers),
                       .buffer_bytes = settings_.buffer_bytes};
    };
    for (std::size_t number = 0; number < rings; number += 2) {
      Way* const way = number == 0 ? wire_.get() : &*wire_->urgent;
      places_.push_back({way, place(Direction::kToMaster, number), place(Direction::kToSlave, number + 1)});
    }
    memory_ = std::move(*made);
    wire_->regions.add(std::move(*memory));
    return Status();
  }

  // The master has set all indices to 0 by now, and looks at them from here on.
  void start() {
    for (const Places& each : places_) each.way->start(each.outward, each.inward);
    memory_.reset();
    agreed_ = true;
  }

  struct Places {
    Way* way;  // the wire's
    RingPlace outward, inward;
  };

  bool knows_it_ = false;
  std::deque<Outgoing> to_say_;
  UniqueFd memory_;
  std::size_t bytes_ = 0;
  std::vector<Places> places_;  // of each way
};

}  // namespace

std::unique_ptr<Handshake> Handshake::of(Role role, const Settings& settings) {
  if (role == Role::kMaster) return std::make_unique<Master>(settings);
  return std::make_unique<Slave>(settings);
}

}  // namespace fairlead::soft::memif
