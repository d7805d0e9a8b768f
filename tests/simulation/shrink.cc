#include "shrink.h"

#include <algorithm>
#include <utility>

namespace fairlead::simulation {
namespace {

class Shrinker {
 public:
  Shrinker(Plan plan, const std::function<bool(const Plan&)>& fails, std::size_t budget, unsigned timings)
      : best_(std::move(plan)), fails_(fails), budget_(budget), timings_(timings) {}

  Shrunk run() {
    bool smaller = true;
    while (smaller && runs_ < budget_) {
      smaller = false;
      smaller |= leave_out_clients();
      smaller |= leave_out([](Plan& plan) -> auto& { return plan.troubles; });
      for (std::size_t c = 0; c < best_.posts.size(); ++c) {
        for (std::size_t end : {0u, 1u}) {
          smaller |= leave_out([=](Plan& plan) -> auto& { return plan.posts[c][end]; });
        }
      }
      smaller |= leave_out_transports();
      smaller |= simplify();
    }
    return {std::move(best_), runs_};
  }

 private:
  /// Takes it if it fails too, with this timing or another.
  bool take(Plan candidate) {
    const std::uint64_t timing = candidate.timing;
    for (unsigned i = 0; i < timings_ && runs_ < budget_; ++i) {
      candidate.timing = timing + i;
      ++runs_;
      if (!fails_(candidate)) continue;
      best_ = std::move(candidate);
      return true;
    }
    return false;
  }

  /// Of a list, ever smaller runs of elements.
  template <typename Select>
  bool leave_out(Select select) {
    bool smaller = false;
    for (std::size_t length = select(best_).size(); length != 0; length /= 2) {
      for (std::size_t at = 0; at < select(best_).size();) {
        Plan candidate = best_;
        auto& list = select(candidate);
        const auto first = list.begin() + static_cast<std::ptrdiff_t>(at);
        list.erase(first, first + static_cast<std::ptrdiff_t>(std::min(length, list.size() - at)));
        if (take(std::move(candidate))) {
          smaller = true;
        } else {
          at += length;
        }
      }
    }
    return smaller;
  }

  bool leave_out_clients() {
    if (best_.posts.size() < 2) return false;
    bool smaller = false;
    for (std::size_t client = best_.posts.size(); client-- != 0 && best_.posts.size() > 1;) {
      Plan candidate = best_;
      candidate.posts.erase(candidate.posts.begin() + static_cast<std::ptrdiff_t>(client));
      std::erase_if(candidate.troubles, [&](const Trouble& t) { return t.client == client; });
      for (Trouble& t : candidate.troubles) t.client -= t.client > client ? 1 : 0;
      smaller |= take(std::move(candidate));
    }
    return smaller;
  }

  bool leave_out_transports() {
    bool smaller = false;
    for (std::size_t i = best_.transports.size(); i-- != 0 && best_.transports.size() > 1;) {
      Plan candidate = best_;
      candidate.transports.erase(candidate.transports.begin() + static_cast<std::ptrdiff_t>(i));
      smaller |= take(std::move(candidate));
    }
    return smaller;
  }

  /// Puts `simple` where `select` points, or something between.
  template <typename Select, typename T>
  bool set(Select select, T simple) {
    if (select(best_) == simple) return false;
    Plan candidate = best_;
    select(candidate) = simple;
    if (take(std::move(candidate))) return true;
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      bool smaller = false;
      while (select(best_) / 2 > simple) {
        candidate = best_;
        select(candidate) /= 2;
        if (!take(std::move(candidate))) break;
        smaller = true;
      }
      return smaller;
    }
    return false;
  }

  bool simplify() {
    bool smaller = false;
    const Plan plain;
    const Habits habits;
    smaller |= set([](Plan& p) -> auto& { return p.hasty; }, false);
    smaller |= set([](Plan& p) -> auto& { return p.sleepy; }, false);
    smaller |= set([](Plan& p) -> auto& { return p.unpublishes; }, false);
    smaller |= set([](Plan& p) -> auto& { return p.window; }, plain.window);
    smaller |= set([](Plan& p) -> auto& { return p.window_bytes; }, plain.window_bytes);
    smaller |= set([](Plan& p) -> auto& { return p.chunk_bytes; }, plain.chunk_bytes);
    smaller |= set([](Plan& p) -> auto& { return p.places; }, plain.places);
    smaller |= set([](Plan& p) -> auto& { return p.measured; }, plain.measured);
    smaller |= set([](Plan& p) -> auto& { return p.lanes; }, plain.lanes);
    for (std::size_t i = 0; i < best_.transports.size(); ++i) {
      const auto of = [i](Plan& p) -> Habits& { return p.transports[i]; };
      smaller |= set([of](Plan& p) -> auto& { return of(p).loss; }, 0.0);
      smaller |= set([of](Plan& p) -> auto& { return of(p).bytes_per_us; }, 0.0);
      smaller |= set([of](Plan& p) -> auto& { return of(p).reorders; }, false);
      smaller |= set([of](Plan& p) -> auto& { return of(p).swallows; }, habits.swallows);
      smaller |= set([of](Plan& p) -> auto& { return of(p).writes_arrive; }, true);
      smaller |= set([of](Plan& p) -> auto& { return of(p).can.write_notifies; }, false);
      smaller |= set([of](Plan& p) -> auto& { return of(p).can.one_sided; }, true);
      smaller |= set([of](Plan& p) -> auto& { return of(p).can.write_then_message_ordered; }, true);
    }
    for (std::size_t c = 0; c < best_.posts.size(); ++c) {
      for (std::size_t end : {0u, 1u}) {
        for (std::size_t i = 0; i < best_.posts[c][end].size(); ++i) {
          const auto of = [=](Plan& p) -> Post& { return p.posts[c][end][i]; };
          smaller |= set([of](Plan& p) -> auto& { return of(p).cancel_after; }, kNever);
          smaller |= set([of](Plan& p) -> auto& { return of(p).deadline; }, kNever);
          smaller |= set([of](Plan& p) -> auto& { return of(p).notifies; }, false);
          smaller |= set([of](Plan& p) -> auto& { return of(p).gap; }, microseconds(0));
          smaller |= set([of](Plan& p) -> auto& { return of(p).pieces; }, std::uint64_t{1});
          smaller |= set([of](Plan& p) -> auto& { return of(p).bytes; }, std::uint64_t{1});
        }
      }
    }
    for (std::size_t i = 0; i < best_.troubles.size(); ++i) {
      const auto of = [i](Plan& p) -> Trouble& { return p.troubles[i]; };
      smaller |= set([of](Plan& p) -> auto& { return of(p).take_back; }, std::array<unsigned, 2>{});
      smaller |= set([of](Plan& p) -> auto& { return of(p).posts; }, std::size_t{0});
      smaller |= set([of](Plan& p) -> auto& { return of(p).delay; }, microseconds(0));
    }
    return smaller;
  }

  Plan best_;
  const std::function<bool(const Plan&)>& fails_;
  const std::size_t budget_;
  const unsigned timings_;
  std::size_t runs_ = 0;
};

}  // namespace

Shrunk shrink(Plan plan, const std::function<bool(const Plan&)>& fails, std::size_t budget, unsigned timings) {
  return Shrinker(std::move(plan), fails, budget, timings).run();
}

}  // namespace fairlead::simulation
