// The process that runs one session: what the server says comes in, what the client is to hear goes out.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/system/large_bytes.h"
#include "base/system/shared_memory.h"
#include "base/system/unix_packets.h"
#include "base/unique_fd.h"
#include "datapath/command/metered_executor.h"
#include "datapath/command/process/confinement.h"
#include "datapath/command/process/frames.h"
#include "datapath/command/process/images.h"
#include "datapath/command/process/inherited.h"
#include "datapath/command/process/shared_page.h"
#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::ServedDevice;

/// By the server. Within a run it knows only what it was told at the beginning.
class Mouth final : public Outlet {
 public:
  Mouth(FramePipe& pipe, const SessionMeter& meter) noexcept : pipe_(pipe), meter_(meter) {}

  void begin(const Run& run) noexcept {
    run_ = run;
    copied_ = 0;
  }
  [[nodiscard]] std::uint64_t copied() const noexcept { return copied_; }

  void send(TrafficClass traffic, Bytes message) override {
    pipe_.put(FrameType::kSend, message, static_cast<std::uint32_t>(traffic));
    run_.untaken += message.size();
    (void)pipe_.flush();  // at once: the command after it may take long
  }
  [[nodiscard]] std::uint64_t untaken() override { return run_.untaken; }
  [[nodiscard]] bool may_copy(std::uint64_t bytes) override {
    if (run_.copies_limited == 0) return true;
    if (run_.copy_level <= 0) return false;
    run_.copy_level -= static_cast<std::int64_t>(bytes);
    copied_ += bytes;
    return true;
  }
  [[nodiscard]] bool has_news() const override { return meter_.has_news.load(std::memory_order_relaxed); }

 private:
  FramePipe& pipe_;
  const SessionMeter& meter_;
  Run run_;
  std::uint64_t copied_ = 0;
};

/// Signals that end the server in order are sent to its group or its control group, and are none of this process's: the
/// server says when it is over.
void leave_signals_to_server() noexcept {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);
}

/// Where memory runs out, the kernel ends this process before the server. As far as it may be said.
void go_before_server() noexcept {
  constexpr int kMore = 500, kMost = 1000;  // proc(5), oom_score_adj
  const UniqueFd file(::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  char text[16]{};
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0) return;
  const std::string more = std::to_string(std::min(std::atoi(text) + kMore, kMost));
  (void)!::pwrite(file.get(), more.data(), more.size(), 0);
}

/// The memory that came by this socket, or nothing.
std::optional<SharedMapping> take_mapping(int socket, const WindowFrame& frame) {
  std::byte note{};
  UniqueFd memory;
  if (!receive_packet(socket, {&note, 1}, memory) || !memory) return std::nullopt;
  auto mapping = SharedMapping::map(memory.get(), frame.offset + frame.bytes);
  if (!mapping) return std::nullopt;
  return *std::move(mapping);
}

bool run(FramePipe& pipe, Mouth& mouth, ServerSession& session, const Run& run) {
  using Clock = SessionRunner::Clock;
  mouth.begin(run);
  // That it began takes no turn at a device, and what came beside its hello does.
  const bool more =
      run.begins == 0 &&
      session.run(run.for_ns == 0 ? Clock::time_point::max() : Clock::now() + std::chrono::nanoseconds(run.for_ns),
                  static_cast<std::uint32_t>(run.device));
  Ran ran;
  ran.more = more ? 1 : 0;
  ran.devices = session.devices();
  ran.moves = session.moves();
  ran.welcome = session.is_welcome() ? 1 : 0;
  ran.over = session.is_over() ? 1 : 0;
  ran.waiting = session.waiting();
  ran.copied = mouth.copied();
  ran.counts = session.counts();
  pipe.put_value(FrameType::kRan, ran);
  return pipe.flush();
}

int serve(std::span<const ServedDevice> devices) {
  Result<SharedPage<TenantMeter>> tenant = SharedPage<TenantMeter>::adopt(UniqueFd(kInheritedTenant));
  Result<SharedPage<SessionMeter>> own = SharedPage<SessionMeter>::adopt(UniqueFd(kInheritedSession));
  const UniqueFd socket(kInheritedSocket), memory(kInheritedMemory);
  std::optional<SharedMapping> window;  // the last to go: executors may be at what is in it
  FramePipe pipe(socket.get());
  std::optional<FramePipe::Frame> frame = pipe.read();
  const auto begin = frame && frame->header.type == FrameType::kBegin ? value_of<Begin>(*frame) : std::nullopt;
  if (!tenant || !own || !begin || begin->slot >= DeviceMeter::kSlots) {
    fmt::print(stderr, "this program runs a session for a service, which starts it\n");
    return 2;
  }
  Mouth mouth(pipe, *own->value);
  ServerSession session(
      mouth, begin->terms,
      [&](std::uint32_t device) -> Result<std::unique_ptr<fairlead::command::Executor>> {
        if (device >= devices.size()) {
          return Status(Code::kInternal,
                        fmt::format("the session's program has {} devices, and no device {}", devices.size(), device));
        }
        return MeteredExecutor::make(devices[device].executors, Peer(), tenant->value, {device, begin->slot});
      },
      own->value.get(), std::make_shared<RemoteImages>(pipe, begin->terms.module_bytes));
  while ((frame = pipe.read())) {
    if (frame->header.type == FrameType::kMessage) {
      std::vector<std::byte> message = take_large(frame->bytes.size());
      message.assign(frame->bytes.begin(), frame->bytes.end());
      session.take(std::move(message), static_cast<TrafficClass>(frame->header.traffic));
    } else if (frame->header.type == FrameType::kResume) {
      session.resume({frame->bytes.begin(), frame->bytes.end()});
    } else if (Bytes rest = frame->bytes; frame->header.type == FrameType::kWindow) {
      const auto given = command::take<WindowFrame>(rest);
      if (!given) break;
      mouth.begin({});  // to say what came of it, before the next run
      window = take_mapping(memory.get(), *given);
      session.take_window(
          window ? std::span(window->get(), window->size()).subspan(given->offset) : std::span<std::byte>(),
          {reinterpret_cast<const char*>(rest.data()), rest.size()});
    } else if (frame->header.type == FrameType::kOverrun) {
      session.overrun();
    } else if (const auto asked = frame->header.type == FrameType::kRun ? value_of<Run>(*frame) : std::nullopt) {
      if (!run(pipe, mouth, session, *asked)) break;
    } else {
      break;
    }
  }
  return 0;
}

}  // namespace
}  // namespace fairlead::datapath::command

namespace fairlead::inline v0::command {

int serve_session(const ExecutorFactory& executors) {
  const ServedDevice device{"device", executors};
  return serve_session(std::span(&device, 1));
}

int serve_session(std::span<const ServedDevice> devices) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a kernel that hangs does not outlive the service
  datapath::command::leave_signals_to_server();
  datapath::command::go_before_server();
  datapath::command::keep_to_itself();
  return datapath::command::serve(devices);
}

}  // namespace fairlead::inline v0::command
