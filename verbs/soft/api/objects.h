// All objects that the verbs name. Beside each type stands impl(), which leads to it from its structure of verbs.h.
#pragma once

#include "verbs/soft/device/device.h"
#include "verbs/soft/qp/ah.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/queues/cq.h"
#include "verbs/soft/queues/srq.h"
