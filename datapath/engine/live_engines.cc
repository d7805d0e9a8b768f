#include "datapath/engine/live_engines.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/private_fd.h"
#include "datapath/engine/engine_impl.h"

namespace fairlead::datapath {

class LiveEngines {
 public:
  static LiveEngines& instance() {
    static LiveEngines& engines = *new LiveEngines;  // outlives every static that may still hold an engine
    return engines;
  }
  void add(LiveEngine& engine) {
    const std::lock_guard lock(mutex_);
    engines_.push_back(&engine);
  }
  void remove(LiveEngine& engine) {
    const std::lock_guard lock(mutex_);
    std::erase(engines_, &engine);
  }

 private:
  LiveEngines() {
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().in_child(); });
  }
  void in_child() {
    for (LiveEngine* engine : engines_) {
      engine->inherited_.store(true, std::memory_order_relaxed);
      engine->kept_ = engine->engine_.weak_from_this().lock();
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<LiveEngine*> engines_;  // under mutex_
};

LiveEngine::LiveEngine(EngineImpl& engine) : engine_(engine), maker_(::getpid()) {
  PrivateFd::watch_forks();
  LiveEngines::instance().add(*this);
}

LiveEngine::~LiveEngine() { LiveEngines::instance().remove(*this); }

Status LiveEngine::usable() const {
  if (!inherited()) return {};
  return {Code::kUnavailable,
          fmt::format("this engine is process {}'s, from which this process was forked; make another "
                      "in this one",
                      maker_)};
}

}  // namespace fairlead::datapath
