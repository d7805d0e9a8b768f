#include "datapath/command/process/process_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/system/large_bytes.h"
#include "base/system/unix_packets.h"
#include "datapath/command/process/inherited.h"

namespace fairlead::datapath::command {

namespace {
constexpr int kGraceMs = 200;               // for it to end by itself, when nobody speaks to it any more
constexpr std::uint64_t kBeside = 8 << 20;  // bytes of what is said beside results

/// Of a socket of that type. False: errno says why there is none.
bool connect_ends(int type, UniqueFd& one, UniqueFd& other) noexcept {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return false;
  one.reset(ends[0]);
  other.reset(ends[1]);
  return true;
}

/// Whether a session that may use these can say so of its devices: they are numbers of what others have, too.
bool can_be(const SessionRunner::Devices& said, std::uint32_t may_use) noexcept {
  const std::uint32_t busy = said.due | said.held | said.pending;
  return said.all != 0 && (said.all & ~may_use) == 0 && (busy & ~said.all) == 0;
}

/// Whether a process that keeps to its terms leaves its client so much to take. It counts no message's cost, which is
/// less than the bytes of a result, and to a client that is back it says all that is kept again: that is twice as much.
bool can_be_untaken(std::uint64_t bytes, const ServerSession::Terms& terms) noexcept {
  return bytes / 2 <= terms.held_results + kBeside / 2;
}

/// Whether one that keeps to it copies so much in that run: the last copy may draw into debt.
bool can_be_copied(std::uint64_t bytes, const Run& run, const ServerSession::Terms& terms) noexcept {
  if (run.copies_limited == 0 || run.copy_level <= 0) return bytes == 0;
  const auto level = static_cast<std::uint64_t>(run.copy_level);
  return bytes <= level || bytes - level <= std::max<std::uint64_t>(kMaxPayload, terms.module_bytes);
}

/// Whether a session can have come from there to here in one run: all that came was within its credits, and a client
/// that is back may hear replies again.
bool can_follow(const Ran& now, const Ran& before, const ServerSession::Terms& terms) noexcept {
  const std::uint64_t under_way = std::uint64_t{terms.channels} * terms.credits;
  const std::uint64_t most = under_way + terms.held_results;
  const auto rises = [most](std::uint64_t is, std::uint64_t was) { return is >= was && is - was <= most; };
  const SessionRunner::Counts &is = now.counts, &was = before.counts;
  return now.welcome >= before.welcome && now.waiting <= under_way && rises(is.commands, was.commands) &&
         rises(is.failures, was.failures) && rises(is.skipped_unknown, was.skipped_unknown) &&
         rises(is.replies, was.replies) && std::ranges::equal(is.failures_by_scope, was.failures_by_scope, rises);
}

/// For a descriptor of a session's process, which is not to be had.
Status no_descriptor() {
  return {Code::kResourceExhausted,
          fmt::format("there is no descriptor to be had for a session's process: {}", std::strerror(errno))};
}
}  // namespace

ProcessSession::ProcessSession(Outlet& outlet, const ServerSession::Terms& terms, std::vector<std::string> program,
                               std::shared_ptr<TenantAccount> account, std::shared_ptr<ImageStore> images)
    : outlet_(outlet),
      terms_(terms),
      program_(std::move(program)),
      account_(std::move(account)),
      images_(std::move(images), terms.module_bytes) {
  ran_.devices.all = terms.devices & (~terms.devices + 1);
}

ProcessSession::~ProcessSession() { (void)end_process(); }

// ---- the process ---------------------------------------------------------------------------------------------------

Status ProcessSession::start() {
  const std::optional<std::size_t> slot = account_->take_slot();
  if (!slot) {
    return {Code::kResourceExhausted,
            fmt::format("the tenant has {} sessions in processes, the limit; try again when one "
                        "has ended",
                        DeviceMeter::kSlots - 1)};
  }
  const Status started = start(*slot);
  if (!started.ok()) account_->end_slot(*slot);
  return started;
}

Status ProcessSession::cannot_start(int error) const {
  return {Code::kUnavailable, fmt::format("cannot start {}: {}", program_[0], std::strerror(error))};
}

Status ProcessSession::start(std::size_t slot) {
  Result<SharedPage<SessionMeter>> page = SharedPage<SessionMeter>::create();
  if (!page) return page.error();
  UniqueFd ours, theirs, gives, takes;
  if (!connect_ends(SOCK_STREAM, ours, theirs) || !connect_ends(SOCK_SEQPACKET, gives, takes)) {
    return {Code::kResourceExhausted, fmt::format("there is no socket to be had: {}", std::strerror(errno))};
  }
  std::vector<char*> words;
  for (const std::string& word : program_) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // It has those that it is given, and no other of ours, also of libraries that do not mark theirs: what a descriptor
  // maps may be another session's. What is given away has numbers that no other is to be given.
  const std::pair<int, int> gifts[] = {{kInheritedSocket, theirs.get()},
                                       {kInheritedTenant, account_->page.get()},
                                       {kInheritedSession, page->fd.get()},
                                       {kInheritedMemory, takes.get()}};
  std::vector<std::pair<int, UniqueFd>> copies;
  for (const auto& [number, fd] : gifts) {
    copies.emplace_back(number, ::fcntl(fd, F_DUPFD_CLOEXEC, kInheritedEnd));
    if (!copies.back().second) return no_descriptor();
  }
  posix_spawn_file_actions_t actions;
  int error = ::posix_spawn_file_actions_init(&actions);
  if (error != 0) return cannot_start(error);
  for (const auto& [number, fd] : copies) {
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, fd.get(), number);
  }
  // What kernels print is their tenant's, and none of the server's log.
  if (error == 0) error = ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (error == 0) error = ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (error == 0) error = ::posix_spawn_file_actions_addclosefrom_np(&actions, kInheritedEnd);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t servers;  // what ends the server in order does not end this, from its first moment on
  sigemptyset(&servers);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&servers, number);
  ::posix_spawnattr_setsigmask(&attributes, &servers);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  if (error == 0) error = ::posix_spawn(&pid_, words[0], &actions, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return cannot_start(error);
  }
  process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!process_) {
    const Status why = no_descriptor();
    ::kill(pid_, SIGKILL);  // not waited for yet, so the number is its own
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    return why;
  }
  meter_ = *std::move(page);
  shared_.store(meter_.value.get(), std::memory_order_release);
  socket_ = std::move(ours);
  memory_ = std::move(gives);
  pipe_.emplace(socket_.get());
  slot_ = slot;
  pipe_->put_value(FrameType::kBegin, Begin{terms_, slot});
  return {};
}

// What does not run ends by itself, in order.
void ProcessSession::abandon() noexcept {
  abandoned_.store(true);
  if (runs_.load()) kill();
}

void ProcessSession::set_news(bool is_there) noexcept {
  SessionMeter* const shared = shared_.load(std::memory_order_acquire);
  if (shared != nullptr) shared->has_news.store(is_there, std::memory_order_relaxed);
}

void ProcessSession::kill() noexcept { (void)::syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0); }

std::string ProcessSession::end_process() noexcept {
  if (pid_ < 0) return "it had not begun";
  socket_.reset();  // it ends by itself then, if it can
  pipe_.reset();
  // Signals that come cut neither its grace short nor what waits for its end, so that it leaves no zombie.
  const auto until = Clock::now() + std::chrono::milliseconds(kGraceMs);
  int left_ms = kGraceMs;
  pollfd fd{process_.get(), POLLIN, 0};
  while (::poll(&fd, 1, left_ms) < 0 && errno == EINTR) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    left_ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }
  if (fd.revents == 0) kill();
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(process_.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  pid_ = -1;
  account_->end_slot(slot_);
  if (info.si_code == CLD_EXITED) return fmt::format("exit code {}", info.si_status);
  return fmt::format("signal {}, {}", info.si_status, ::strsignal(info.si_status));
}

// ---- the session ---------------------------------------------------------------------------------------------------

void ProcessSession::fail(Code code, std::string why) {
  if (is_over()) return;
  ran_.over = 1;
  ran_.devices = {.all = ran_.devices.all};
  ran_.more = 0;
  ran_.waiting = 0;
  last_words_ = refused_message(Status(code, std::move(why)));
  outlet_.send(TrafficClass::kCommands, last_words_);
}

void ProcessSession::take(std::vector<std::byte> message, TrafficClass traffic) {
  if (is_over()) return;
  if (message.size() > kMostFrame) {
    return fail(Code::kInvalidArgument, fmt::format("a message of {} bytes; the largest that a session says has {}",
                                                    message.size(), kMostFrame));
  }
  if (pid_ < 0) {
    if (const Status started = start(); !started.ok()) return fail(started.code(), started.message());
  }
  pipe_->put(FrameType::kMessage, message, static_cast<std::uint32_t>(traffic));
  give_large(std::move(message));
  news_ = true;
}

void ProcessSession::resume(std::vector<std::byte> said) {
  if (is_over()) return outlet_.send(TrafficClass::kCommands, last_words_);
  if (pid_ < 0) return;
  pipe_->put(FrameType::kResume, said);
  news_ = true;
}

// The process tells the client, as it alone knows whether it could map it.
bool ProcessSession::take_window(const Window& window) {
  const std::optional<SharedFile> file = window.memory.shared_file();
  const std::byte note{0};
  if (is_over() || pid_ < 0 || !file || !send_packet(memory_.get(), {&note, 1}, file->fd)) return false;
  std::vector<std::byte> frame;
  put(frame, WindowFrame{file->offset, window.memory.size()});
  const Bytes capability = std::as_bytes(std::span(window.capability));
  frame.insert(frame.end(), capability.begin(), capability.end());
  pipe_->put(FrameType::kWindow, frame);
  return news_ = true;
}

void ProcessSession::overrun() {
  if (is_over() || pid_ < 0) return;
  pipe_->put(FrameType::kOverrun, {});
  news_ = true;
}

bool ProcessSession::look() noexcept {
  pollfd fd{process_.get(), POLLIN, 0};
  if (is_over() || pid_ < 0 || ::poll(&fd, 1, 0) <= 0) return false;
  return news_ = true;
}

bool ProcessSession::run(Clock::time_point until, std::uint32_t device) {
  const Devices& devices = ran_.devices;
  const bool has_work = news_ || ((devices.due | devices.held | devices.pending) >> device & 1) != 0;
  if (is_over() || pid_ < 0 || !has_work) return false;
  news_ = false;
  Run run;
  run.device = device;
  run.begins = ran_.welcome != 0 ? 0 : 1;
  run.untaken = outlet_.untaken();
  const auto level = outlet_.copy_level();
  run.copies_limited = level ? 1 : 0;
  run.copy_level = level.value_or(0);
  if (until != Clock::time_point::max()) {
    const std::chrono::nanoseconds left = until - Clock::now();
    run.for_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1));
  }
  pipe_->put_value(FrameType::kRun, run);
  runs_.store(true);
  if (abandoned_.load()) {  // before anybody could know what to kill
    runs_.store(false);
    return false;
  }
  const bool ran = pipe_->flush() && relay(run);
  runs_.store(false);
  if (ran) return ran_.more != 0;
  const std::uint64_t sequence = meter_.value->sequence.load();
  const std::uint32_t channel = meter_.value->channel.load();
  const std::string how = end_process();
  fail(Code::kAborted,
       fmt::format("the process that ran the session's commands ended ({}) at command {} of channel {}, "
                   "and all that the session had is gone",
                   how, sequence, channel));
  return false;
}

void ProcessSession::pass_on(const FramePipe::Frame& frame) {
  outlet_.send(static_cast<TrafficClass>(frame.header.traffic), frame.bytes);
  Bytes body = frame.bytes;
  const auto header = command::take<MessageHeader>(body);
  if (header && is_message(*header, MessageType::kRefused)) last_words_.assign(frame.bytes.begin(), frame.bytes.end());
}

bool ProcessSession::relay(const Run& run) {
  std::uint64_t untaken = run.untaken;
  while (const std::optional<FramePipe::Frame> frame = pipe_->read()) {
    if (frame->header.type == FrameType::kSend) {
      untaken += frame->bytes.size() + Outlet::kMessageCost;
      if (!can_be_untaken(untaken, terms_)) return false;
      pass_on(*frame);
      continue;
    }
    if (frame->header.type == FrameType::kFindImage || frame->header.type == FrameType::kAddImage) {
      if (!images_.answer(*pipe_, *frame)) return false;
      continue;
    }
    const std::optional<Ran> ran = frame->header.type == FrameType::kRan ? value_of<Ran>(*frame) : std::nullopt;
    if (!ran || !can_be(ran->devices, terms_.devices) || !can_be_copied(ran->copied, run, terms_)) return false;
    if (!can_follow(*ran, ran_, terms_)) return false;
    ran_ = *ran;
    if (ran_.copied != 0) outlet_.charge_copies(ran_.copied);
    return true;
  }
  return false;
}

}  // namespace fairlead::datapath::command
