#include "datapath/engine/resolver.h"

#include <fmt/format.h>
#include <netdb.h>

#include <system_error>

#include "base/system/no_thread.h"
#include "base/system/quiet_thread.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kMaxAddresses = 8;

Result<std::vector<std::string>> numeric_addresses(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) return Status(Code::kNotFound, fmt::format("no such host '{}': {}", host, ::gai_strerror(error)));
  std::vector<std::string> addresses;
  for (const addrinfo* a = list; a != nullptr && addresses.size() < kMaxAddresses; a = a->ai_next) {
    char numeric[NI_MAXHOST] = "";
    ::getnameinfo(a->ai_addr, a->ai_addrlen, numeric, sizeof numeric, nullptr, 0, NI_NUMERICHOST);
    addresses.emplace_back(numeric);
  }
  ::freeaddrinfo(list);
  return addresses;
}

}  // namespace

void Resolver::resolve(std::string host, Done done) {
  Status no_thread;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (waiting_.size() < kMaxWaiting) {
      waiting_.push_back({std::move(host), std::move(done)});
      no_thread = begin_thread();
      if (no_thread.ok()) return changed_.notify_one();
      done = std::move(waiting_.back().done);
      waiting_.pop_back();
    }
  }
  done(!no_thread.ok() ? no_thread
                       : Status(Code::kResourceExhausted,
                                fmt::format("{} names wait to be resolved, the limit; the resolver is slow (see "
                                            "/etc/resolv.conf)",
                                            kMaxWaiting)));
}

/// If there are too few. ok: somebody will answer.
Status Resolver::begin_thread() {
  if (threads_.size() == kMaxThreads || waiting_.size() <= idle_) return {};
  try {
    threads_.push_back(quiet_thread("fairlead-names", [this] { work(); }));
  } catch (const std::system_error& error) {
    if (threads_.empty()) return fairlead::no_thread("resolving names", error);
  }
  return {};
}

void Resolver::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    --idle_;
    if (stopped_) return;
    const Question question = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    question.done(numeric_addresses(question.host));
    lock.lock();
  }
}

void Resolver::stop() {
  std::vector<std::thread> threads;
  std::deque<Question> unasked;  // goes outside the lock: it holds sessions
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
    unasked.swap(waiting_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace fairlead::datapath
