// A thread on which domains are told what they are to know, where that may take as long as to pin memory: not the
// driver's. It begins with the first, and ends with stop(). Threads: any.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "datapath/region/domain_book.h"

namespace fairlead::datapath {

class DomainOpener {
 public:
  /// Opens the book, some time later: where there is no thread to be had, not before one more book comes. After stop():
  /// never.
  void open(std::shared_ptr<DomainBook> book);
  /// Waits for the one that is under way; no more begin.
  void stop();

 private:
  void work();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<DomainBook>> waiting_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace fairlead::datapath
