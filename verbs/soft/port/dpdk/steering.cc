#include "verbs/soft/port/dpdk/steering.h"

#include <rte_byteorder.h>
#include <rte_flow.h>

#include <array>

#include "verbs/soft/port/dpdk/entry.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::dpdk {
namespace {

void add_rule(std::uint16_t port, std::uint16_t queue, rte_flow_item_type ip) noexcept {
  rte_flow_item_udp wanted{};
  rte_flow_item_udp mask{};
  wanted.hdr.src_port = rte_cpu_to_be_16(queue);
  mask.hdr.src_port = rte_cpu_to_be_16(soft::kMostDpdkQueues - 1);
  wanted.hdr.dst_port = rte_cpu_to_be_16(soft::kRoceUdpPort);
  mask.hdr.dst_port = rte_cpu_to_be_16(0xffff);
  std::array<rte_flow_item, 4> pattern{};
  pattern[0].type = RTE_FLOW_ITEM_TYPE_ETH;
  pattern[1].type = ip;
  pattern[2] = {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &wanted, .last = nullptr, .mask = &mask};
  pattern[3].type = RTE_FLOW_ITEM_TYPE_END;
  const rte_flow_action_queue target{.index = queue};
  std::array<rte_flow_action, 2> actions{};
  actions[0] = {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &target};
  actions[1].type = RTE_FLOW_ACTION_TYPE_END;
  rte_flow_attr incoming{};
  incoming.ingress = 1;
  rte_flow_error ignored{};
  if (rte_flow_validate(port, &incoming, pattern.data(), actions.data(), &ignored) == 0) {
    rte_flow_create(port, &incoming, pattern.data(), actions.data(), &ignored);
  }
}

}  // namespace

void steer_by_source_port(std::uint16_t port, std::uint16_t queues) noexcept {
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    add_rule(port, queue, RTE_FLOW_ITEM_TYPE_IPV4);
    add_rule(port, queue, RTE_FLOW_ITEM_TYPE_IPV6);
  }
}

}  // namespace fairlead::dpdk
