// What a responder does with a request that came in order.
#pragma once

namespace fairlead::soft::responder {

/// Go on, ask again later, go on as if it had not come, or give up on the queue pair for one of three reasons.
enum class Verdict { kAccept, kNotReady, kMissing, kInvalid, kAccess, kOperation };

}  // namespace fairlead::soft::responder
