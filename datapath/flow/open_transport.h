// A device that is open, the lane's endpoint at it, and what peers are told of it. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "datapath/flow/choice.h"
#include "datapath/flow/share.h"
#include "datapath/region/probe.h"
#include "transport/device.h"

namespace fairlead::datapath {

struct OpenTransport {
  std::shared_ptr<Device> device;
  std::unique_ptr<Endpoint> endpoint;  // behind the device, which outlives it
  Offer offer;
  std::unique_ptr<Probe> probe;  // at the device
  std::size_t paths = 0;
  double planned_weight = Share::kWeight;  // how much it should carry: the least of its kind has 1
};

}  // namespace fairlead::datapath
