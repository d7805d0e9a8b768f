# FAIRLEAD_VERSION: what include/fairlead/version.h says.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../include/fairlead/version.h lines REGEX "^#define FAIRLEAD_VERSION_[A-Z]+ [0-9]+$")
list(TRANSFORM lines REPLACE "^.* " "")
list(JOIN lines "." FAIRLEAD_VERSION)
