#include "bench/net/local_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "bench/net/target.h"
#include "fairlead/engine.h"

namespace fairlead::bench {
namespace {

// One line to the parent: '=' and the address, '?' and which setting is bad, or '!' and what else went wrong.
void tell(const UniqueFd& pipe, char kind, const std::string& text) {
  const std::string line = kind + text + "\n";
  if (::write(pipe.get(), line.data(), line.size()) < 0) ::_exit(1);
}

[[noreturn]] void run_child(EngineConfig config, const LocalTarget::Serve& serve, UniqueFd pipe, pid_t parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
  // Both may be for the whole group (Ctrl-C, timeout, schedulers); this one ends with the initiator.
  for (const int ending : {SIGINT, SIGTERM}) ::signal(ending, SIG_IGN);
  config.listen = "127.0.0.1:0";
  int code = 1;
  {
    Result<Engine> engine = Engine::create(std::move(config));
    if (engine) {
      tell(pipe, '=', engine->listen_address());
      pipe.reset();
      code = serve(*std::move(engine)) ? 0 : 1;
    } else {
      const bool refused = engine.error().code() == Code::kInvalidArgument;
      tell(pipe, refused ? '?' : '!', refused ? engine.error().message() : engine.error().to_string());
    }
  }
  std::exit(code);
}

std::string read_line(int fd) {
  std::string text;
  char c = 0;
  while (true) {
    const ssize_t got = ::read(fd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || c == '\n') return text;
    text.push_back(c);
  }
}

}  // namespace

LocalTarget::Serve LocalTarget::measurements(Place memory) {
  return [memory](Engine engine) { return Target(&engine, memory).serve(true).ok(); };
}

Result<LocalTarget> LocalTarget::start(EngineConfig config, const Serve& serve) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(Code::kResourceExhausted, fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  }
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Status(Code::kResourceExhausted, fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child == 0) {
    reading.reset();
    run_child(std::move(config), serve, std::move(writing), parent);
  }
  writing.reset();
  LocalTarget target(child, {});
  const std::string line = read_line(reading.get());
  if (line.starts_with('=')) {
    target.address_ = line.substr(1);
    return target;
  }
  if (line.starts_with('?')) return Status(Code::kInvalidArgument, line.substr(1));
  return Status(Code::kUnavailable, line.empty() ? "the local target ended before it was ready"
                                                 : "the local target failed: " + line.substr(1));
}

LocalTarget::LocalTarget(LocalTarget&& other) noexcept
    : child_(std::exchange(other.child_, -1)), address_(std::move(other.address_)) {}

LocalTarget::~LocalTarget() {
  if (child_ < 0) return;
  // It ends by itself once it has noticed that its initiator is gone.
  for (int tries = 0; tries < 200; ++tries) {
    if (::waitpid(child_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

}  // namespace fairlead::bench
