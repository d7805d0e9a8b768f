// What the shared library shows. Everything else in it is hidden.
#pragma once

/// On what is declared here and defined in the library.
#define FAIRLEAD_EXPORT [[gnu::visibility("default")]]
