#include "verbs/soft/port/dpdk/eal.h"

#include <fcntl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace fairlead::dpdk {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "fairlead-";
constexpr const char* kMoreArguments = "FAIRLEAD_DPDK_ARGS";

// What says nothing of the reason of a failure.
constexpr std::array<std::string_view, 7> kIdleWords = {"EAL: Detected ",
                                                        "EAL: Selected IOVA mode",
                                                        "EAL: Physical addresses are unavailable",
                                                        "EAL: Multi-process ",
                                                        "EAL: Driver cannot attach the device",
                                                        "EAL: Failed to attach device on",
                                                        "EAL: VFIO support"};

struct Log {
  std::mutex mutex;
  std::string text;
  bool ours = false;
  bool echo = false;
};
Log& the_log() {
  static Log& log = *new Log;  // DPDK's threads outlive statics
  return log;
}

ssize_t write_log(void*, const char* bytes, std::size_t size) {
  constexpr std::size_t kMost = 4096;
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.text.append(bytes, size);
  if (log.text.size() > kMost) log.text.erase(0, log.text.size() - kMost);
  // DPDK's last words before it ends the process are of that level.
  if (log.echo || rte_log_cur_msg_loglevel() <= static_cast<int>(RTE_LOG_CRIT)) std::fwrite(bytes, 1, size, stderr);
  return static_cast<ssize_t>(size);
}

void capture_log() {
  FILE* stream = ::fopencookie(nullptr, "w", {.read = nullptr, .write = &write_log, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  the_log().ours = rte_openlog_stream(stream) == 0;
}

// The one lcore may run wherever the process may.
std::string lcores() {
  cpu_set_t allowed;
  std::string text;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) text += (text.empty() ? "" : ",") + std::to_string(cpu);
    }
  }
  return "0@(" + (text.empty() ? "0" : text) + ")";
}

// Where huge pages are mounted; empty for nowhere.
fs::path huge_page_folder() {
  std::ifstream mounts("/proc/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, folder, type;
    words >> device >> folder >> type;
    if (type == "hugetlbfs" && ::access(folder.c_str(), W_OK) == 0) return folder;
  }
  return {};
}

bool huge_pages_serve(unsigned megabytes) {
  unsigned long free_pages = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> free_pages;
  return free_pages * 2 >= megabytes && !huge_page_folder().empty();
}

// Whether nobody uses a runtime folder any more. DPDK holds a lock in it while it runs; the owner's number says nothing
// where processes of another PID namespace share the folders, as containers do.
bool is_left_behind(const fs::path& folder, pid_t owner) {
  if (::kill(owner, 0) == 0 || errno != ESRCH) return false;
  const UniqueFd config(::open((folder / "config").c_str(), O_RDWR | O_CLOEXEC));
  if (!config) {  // or not there yet
    std::error_code error;
    const auto changed = fs::last_write_time(folder, error);
    return !error && fs::file_time_type::clock::now() - changed > std::chrono::minutes(1);
  }
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(config.get(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

// Folders of processes that are gone, which may have been killed.
void sweep(const fs::path& runtime) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runtime.parent_path(), ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const pid_t owner = std::atoi(name.c_str() + kPrefix.size());
    if (owner > 0 && is_left_behind(entry.path(), owner)) fs::remove_all(entry.path(), ignored);
  }
}

pid_t starter = 0;

// Processes of other PID namespaces may have this number, too.
std::string file_prefix() {
  struct stat of_namespace{};
  (void)::stat("/proc/self/ns/pid", &of_namespace);  // 0 where there is none
  return std::string(kPrefix) + std::to_string(::getpid()) + "-" + std::to_string(of_namespace.st_ino);
}

// What DPDK leaves behind: its runtime folder, and the files of huge pages, which would keep them. (Those of a process
// that was killed go when DPDK starts next, in whatever process.)
void clean_up() {
  if (::getpid() != starter) return;
  std::error_code ignored;
  fs::remove_all(rte_eal_get_runtime_dir(), ignored);
  const fs::path pages = huge_page_folder();
  if (pages.empty()) return;
  std::vector<fs::path> ours;
  for (const auto& entry : fs::directory_iterator(pages, ignored)) {
    if (entry.path().filename().string().starts_with(file_prefix() + "map_")) ours.push_back(entry.path());
  }
  for (const fs::path& file : ours) fs::remove(file, ignored);
}

std::vector<std::string> arguments(const EalRequest& request) {
  std::vector<std::string> words{
      "fairlead",      "--no-telemetry", "--lcores", lcores(), "-m", std::to_string(request.megabytes),
      "--file-prefix", file_prefix()};
  // One file for all of it: a vhost-user peer takes no more than a few.
  words.emplace_back(huge_pages_serve(request.megabytes) ? "--single-file-segments" : "--no-huge");
  if (request.pci_address.empty()) {
    words.emplace_back("--no-pci");
  } else {
    words.insert(words.end(), {"-a", request.pci_address});
  }
  if (const char* more = std::getenv(kMoreArguments)) {
    std::istringstream stream(more);
    for (std::string word; stream >> word;) words.push_back(word);
    the_log().echo = true;
  }
  return words;
}

// DPDK wants /var/run of whoever is called root, who may be so in a user namespace only.
void choose_runtime_folder() {
  constexpr const char* kVariable = "RUNTIME_DIRECTORY";  // systemd's name, which DPDK looks at
  if (::getuid() != 0 || std::getenv(kVariable) != nullptr || ::access("/var/run", W_OK) == 0) return;
  const char* users = std::getenv("XDG_RUNTIME_DIR");
  ::setenv(kVariable, users != nullptr && ::access(users, W_OK) == 0 ? users : "/tmp", 0);
}

enum class State { kNone, kOursWithoutPci, kOursWithPci, kApplications };

}  // namespace

std::string recent_log() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  std::istringstream lines(log.text);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const auto begins = [&line](std::string_view words) { return line.starts_with(words); };
    if (!line.empty() && std::ranges::none_of(kIdleWords, begins)) text += (text.empty() ? "" : " | ") + line;
  }
  return text;
}

void forget_log() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.text.clear();
}

bool start_eal(const EalRequest& request, std::string& why) {
  static std::mutex& mutex = *new std::mutex;
  static State state = State::kNone;
  const std::lock_guard lock(mutex);
  if (state == State::kNone && rte_lcore_count() > 0) state = State::kApplications;
  if (state != State::kNone && starter != 0 && starter != ::getpid()) {
    why =
        "DPDK was started by the process that this one was forked from, and works there only; open the port before "
        "any in the parent, or execute a program";
    return false;
  }
  if (state == State::kOursWithoutPci && !request.pci_address.empty()) {
    why = "DPDK was started in this process for a virtual device, without PCI; open the PCI device first";
    return false;
  }
  if (state != State::kNone) return true;

  std::vector<std::string> words = arguments(request);
  choose_runtime_folder();
  capture_log();
  bool started = false;
  int error = 0;
  // On a thread of its own, which becomes DPDK's lcore 0 and ends: the caller's name, CPUs and lcore stay what they
  // are.
  std::thread([&] {
    sigset_t all;  // signals are the application's, not for the threads that this one makes
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    started = rte_eal_init(static_cast<int>(words.size()), argv.data()) >= 0;
    error = rte_errno;
  }).join();
  if (!started && error == EALREADY) {
    state = State::kApplications;
    return true;
  }
  if (!started) {
    why = "DPDK does not start (" + std::string(rte_strerror(error)) + "): " + recent_log();
    if (error == ENOMEM) {
      why += "; it reserves memory=" + std::to_string(request.megabytes) +
             " (megabytes), which must fit ulimit -v and -l: lower the one or raise the others";
    }
    return false;
  }
  state = request.pci_address.empty() ? State::kOursWithoutPci : State::kOursWithPci;
  starter = ::getpid();
  sweep(rte_eal_get_runtime_dir());
  std::atexit(&clean_up);
  return true;
}

}  // namespace fairlead::dpdk
