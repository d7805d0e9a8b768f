// An address handle: a resolved path to a peer, for datagrams.
//
// Requests copy the path when they are posted, so a handle may be destroyed as soon as its last post has returned.
// Threads: constant between create and destroy.
#pragma once

#include <infiniband/verbs.h>

#include "verbs/soft/qp/path.h"

namespace fairlead::soft {

struct Ah : ibv_ah {
  explicit Ah(ibv_pd* owner) : ibv_ah{owner->context, owner, 0} {}
  Path path;
};

[[nodiscard]] inline Ah& impl(ibv_ah* ah) noexcept { return static_cast<Ah&>(*ah); }

}  // namespace fairlead::soft
