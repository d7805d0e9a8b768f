#include "fairlead/version.h"

#define FAIRLEAD_TEXT_OF(number) #number
#define FAIRLEAD_TEXT(number) FAIRLEAD_TEXT_OF(number)

namespace fairlead::inline v0 {

std::string_view version() noexcept {
  return FAIRLEAD_TEXT(FAIRLEAD_VERSION_MAJOR) "." FAIRLEAD_TEXT(FAIRLEAD_VERSION_MINOR) "." FAIRLEAD_TEXT(
      FAIRLEAD_VERSION_PATCH);
}

}  // namespace fairlead::inline v0
