// What runs commands, as the C API hands it on.
#pragma once

#include "fairlead/command_service.h"
#include "fairlead/fairlead_command.h"

struct fairlead_executors {
  fairlead::command::ExecutorFactory factory;
};
