// What the files of the rdma_* calls share.
#pragma once

#include <cerrno>
#include <string_view>

#include "verbs/cm/id.h"
#include "verbs/cm/rdma_api.h"

namespace fairlead::cm::api {

/// -1 with errno, the reason logged.
int refuse(int error, std::string_view why);
/// What verbs answer, as librdmacm answers it: 0, or -1 with errno.
[[nodiscard]] inline int from_verbs(int result) noexcept {
  if (result <= 0) return result;
  errno = result;
  return -1;
}
/// The end of a call that an event completes: of a synchronous identifier it waits for the event, keeps it in id->event
/// and answers what it says.
int complete(Id& id);
/// Moves the queue pair of the identifier, if it has one. 0, or -1 with errno.
int qp_to_error(Id& id);
int qp_to_init(Id& id);
int qp_to_ready(Id& id);
/// Ends with nobody's requests for this listener any more.
void unlisten(Id& id);
/// Ends with the connection told and forgotten.
void release_connection(Id& id);

}  // namespace fairlead::cm::api
