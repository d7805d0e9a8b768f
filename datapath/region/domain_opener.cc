#include "datapath/region/domain_opener.h"

#include <system_error>
#include <utility>

#include "base/system/no_thread.h"
#include "base/system/quiet_thread.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

void DomainOpener::open(std::shared_ptr<DomainBook> book) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    waiting_.push_back(std::move(book));
    try {
      if (!thread_.joinable()) thread_ = quiet_thread("fairlead-domain", [this] { work(); });
    } catch (const std::system_error& error) {  // the next book tries again; until then data goes by message
      log(LogLevel::kWarning, "a domain stays closed for now: " + no_thread("it", error).message());
    }
  }
  changed_.notify_one();
}

void DomainOpener::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    const std::shared_ptr<DomainBook> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next->open();
    lock.lock();
  }
}

void DomainOpener::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    waiting_.clear();
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

}  // namespace fairlead::datapath
