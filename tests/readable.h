// Whether a descriptor has something for who would wait for it.
#pragma once

#include <poll.h>

namespace fairlead {

inline bool readable(int fd) {
  pollfd look{fd, POLLIN, 0};
  return ::poll(&look, 1, 0) == 1;
}

}  // namespace fairlead
