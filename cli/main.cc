// The `fairlead` program: finds the subcommand.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"

namespace {

using fairlead::cli::Words;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(Words words);
  bool logs = false;  // what it prints is a log, whose reader may leave before it
};

constexpr Command kCommands[] = {
    {"serve", "Accept tensors into registered memory, check them, hand them out again", fairlead::cli::serve_command,
     true},
    {"push", "Send a safetensors file to a server", fairlead::cli::push_command},
    {"pull", "Fetch a model from a server into a safetensors file", fairlead::cli::pull_command},
    {"bench", "Measure bandwidth or latency over any transport, commands, a program's steps",
     fairlead::cli::bench_command},
    {"devices", "Show the ways across that this host has, and why each is or is not used",
     fairlead::cli::devices_command},
    {"doctor", "Check what of this machine helps or hinders data on its way, and say what to change",
     fairlead::cli::doctor_command},
    {"explain", "Try every way to a server, and say which is taken, why not the others, and what would change that",
     fairlead::cli::explain_command},
    {"gain", "Compare two transports between the same hosts on equal terms: a ratio, its interval, a verdict",
     fairlead::cli::gain_command},
    {"key", "Make a key by which a peer shows who it is", fairlead::cli::key_command},
    {"run", "Start an unmodified verbs program on softroce, the software RoCE v2 device", fairlead::cli::run_command},
    {"status", "Show what a server does: clients, paths, rates, models, tenants", fairlead::cli::status_command},
    {"topo", "Show what a machine is made of, and over which NICs and cores its data should go",
     fairlead::cli::topo_command},
    {"version", "Show what this program was built from", fairlead::cli::version_command},
};

void print_help(std::FILE* out) {
  fmt::print(out,
             "Fairlead moves tensors between processes and hosts over RDMA, or TCP where there is none.\n\n"
             "Usage: fairlead COMMAND [FLAGS]\n\nCommands:\n");
  for (const Command& command : kCommands) fmt::print(out, "  {:<8} {}\n", command.name, command.summary);
  fmt::print(
      out,
      "\n'fairlead COMMAND --help' shows flags, defaults and examples, and behind each flag the variable of the\n"
      "environment that sets it, too: FAIRLEAD_SOME_NAME of --some-name; of several names the first counts. A flag\n"
      "without one (status --once, bench trace --bandwidth) would mean something else in another command.\n"
      "FAIRLEAD_LOG=debug|info|warning|error|off sets the log level.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage, 128 and the signal if interrupted; of 'run' the program's.\n");
}

// The library falls back to a default; who runs a program wants to know.
bool log_level_is_legal() {
  const char* const level = std::getenv("FAIRLEAD_LOG");
  if (level == nullptr) return true;
  std::string unused;
  const auto set = fairlead::cli::set_choice(&unused, {"debug", "info", "warning", "error", "off"});
  const fairlead::Status status = set(level);
  if (!status.ok()) fmt::print(stderr, "fairlead: environment variable FAIRLEAD_LOG: {}\n", status.message());
  return status.ok();
}

// Who pipes into head has read enough: no word, and the exit code of a program that SIGPIPE ends.
constexpr int kReaderLeft = 128 + SIGPIPE;

// Asked of standard output itself: which of many writes failed, and why, is no longer known.
bool reader_left() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

// Why a write to standard output failed, as far as `error`, an errno, says so: of one before the last it is 0.
const char* why_not_written(int error) {
  if (error == ENOSPC) return "its disk is full";
  return error != 0 ? std::strerror(error) : "some of it was not taken";
}

// Lines wait in a buffer, so only the end tells whether they could be written.
int check_output(int code, bool logs = false) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = flushed ? 0 : errno;
  if ((flushed && std::ferror(stdout) == 0) || code != fairlead::cli::kSuccess) return code;
  if (reader_left()) return logs ? code : kReaderLeft;
  fmt::print(stderr, "fairlead: error: standard output could not be written: {}\n", why_not_written(error));
  return fairlead::cli::kFailure;
}

// What a program opens takes the lowest number that is free: a file or a connection that took one of these would get
// lines that are printed.
void open_missing_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

int run(int argc, char** argv) {
  if (argc < 2) {
    print_help(stderr);
    return fairlead::cli::kUsage;
  }
  const std::string_view name = argv[1];
  if (name == "help" || name == "--help" || name == "-h") {
    print_help(stdout);
    return check_output(fairlead::cli::kSuccess);
  }
  const Words words(argv + 2, static_cast<std::size_t>(argc - 2));
  if (name == "--version") return check_output(fairlead::cli::version_command(words));
  for (const Command& command : kCommands) {
    if (command.name == name) return check_output(command.run(words), command.logs);
  }
  fmt::print(stderr,
             "fairlead: no command '{}'. Legal: serve, push, pull, bench, devices, doctor, explain, gain, key, run, "
             "status, topo, "
             "version.\n",
             name);
  return fairlead::cli::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a reader of our output that left is a write error, not the end of a transfer
  std::signal(SIGXFSZ, SIG_IGN);  // and so is a file that may not become so large
  fairlead::cli::install_console_log();
  try {
    return log_level_is_legal() ? run(argc, argv) : fairlead::cli::kUsage;
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe && reader_left()) return kReaderLeft;
    std::fprintf(stderr, "fairlead: error: %s\n", error.what());
    return fairlead::cli::kFailure;
  } catch (const std::exception& error) {  // memory ran out, or output could not be written
    std::fprintf(stderr, "fairlead: error: %s\n", error.what());
    return fairlead::cli::kFailure;
  }
}
