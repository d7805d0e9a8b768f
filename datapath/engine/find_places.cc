#include "datapath/engine/find_places.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace fairlead::datapath {
namespace {

using Addresses = Result<std::vector<std::string>>;

/// What need not be asked for.
std::optional<std::string> numeric(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  const bool is = host.find_first_not_of("0123456789.") == std::string::npos || host.find(':') != std::string::npos;
  return is ? std::optional(host) : std::nullopt;
}

/// What was found so far.
struct Search {
  explicit Search(std::vector<HostPort> places) : named(std::move(places)), found(named.size()) {}

  const std::vector<HostPort> named;
  std::function<void(Result<std::vector<Place>>)> done;
  std::mutex mutex;  // guards what follows
  std::vector<std::optional<Addresses>> found;
  std::size_t left = 0;

  void put(std::size_t which, Addresses addresses) {
    {
      const std::lock_guard lock(mutex);
      found[which] = std::move(addresses);
      if (--left != 0) return;
    }
    done(all());
  }
  [[nodiscard]] Result<std::vector<Place>> all() const {
    std::vector<Place> places;
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (!*found[i]) continue;
      for (const std::string& address : **found[i]) places.push_back({address, named[i].port, i});
    }
    if (places.empty()) return found.front()->error();
    return places;
  }
};

}  // namespace

void find_places(const std::vector<HostPort>& named, Resolver& resolver,
                 std::function<void(Result<std::vector<Place>>)> done) {
  const auto search = std::make_shared<Search>(named);
  search->done = std::move(done);
  search->left = named.size();
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (const std::optional<std::string> address = numeric(named[i].host)) {
      search->put(i, std::vector<std::string>{*address});
    } else {
      resolver.resolve(named[i].host, [search, i](Addresses found) { search->put(i, std::move(found)); });
    }
  }
}

}  // namespace fairlead::datapath
