// What a device says of itself, by profile, and its asynchronous events.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <thread>

#include "fairlead/log.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

class DeviceOf : public testing::TestWithParam<Profile> {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kWarning); }
  [[nodiscard]] bool full() const { return GetParam() == Profile::kFull; }

  ManualClock clock;
  ibv_device entry{};
  Endpoint end{new Device(entry, GetParam(), clock, LoopbackPort::make_pair().first),
               {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}};
};

TEST_P(DeviceOf, TellsWhatItHas) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(soft::api::query_device_ex(end.context, nullptr, &attr, sizeof(attr)), 0);
  const ibv_device_attr& basic = attr.orig_attr;
  EXPECT_EQ(basic.atomic_cap != IBV_ATOMIC_NONE, full());
  EXPECT_EQ(basic.max_mw > 0, full());
  EXPECT_EQ((basic.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0, full());
  EXPECT_GT(basic.max_srq, 0);
  EXPECT_GT(basic.max_srq_wr, 0);
  EXPECT_EQ(attr.device_cap_flags_ex, basic.device_cap_flags);
  EXPECT_EQ(attr.phys_port_cnt_ex, 1U);
  EXPECT_EQ(attr.hca_core_clock, full() ? 1'000'000U : 0U);
  EXPECT_EQ(attr.completion_timestamp_mask, full() ? ~std::uint64_t{0} : 0U);
  EXPECT_EQ((attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0, full());
  EXPECT_EQ(attr.max_dm_size > 0, full());
  ibv_port_attr port{};
  ASSERT_EQ(soft::api::query_port(end.context, 1, &port), 0);
  EXPECT_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
}

TEST_P(DeviceOf, FillsNoMoreOfItsAttributesThanTheCallerKnows) {
  ibv_device_attr_ex attr{};
  attr.comp_mask = 0xa5;
  ASSERT_EQ(soft::api::query_device_ex(end.context, nullptr, &attr, sizeof(ibv_device_attr)), 0);
  EXPECT_GT(attr.orig_attr.max_qp, 0);
  EXPECT_EQ(attr.comp_mask, 0xa5U);
  const ibv_query_device_ex_input input{1};
  EXPECT_EQ(soft::api::query_device_ex(end.context, &input, &attr, sizeof(attr)), EINVAL);
}

/// A structure as programs of a later day know it.
template <typename Attributes>
struct Newer {
  Attributes attributes;
  std::array<std::uint64_t, 2> more;
};

TEST_P(DeviceOf, AnswersWithZerosWhatOnlyANewerCallerKnows) {
  Newer<ibv_device_attr_ex> device;
  std::memset(&device, 0xff, sizeof(device));
  ASSERT_EQ(soft::api::query_device_ex(end.context, nullptr, &device.attributes, sizeof(device)), 0);
  EXPECT_GT(device.attributes.orig_attr.max_qp, 0);
  EXPECT_EQ(device.more, (std::array<std::uint64_t, 2>{}));
  Newer<ibv_port_attr> port;
  std::memset(&port, 0xff, sizeof(port));
  ASSERT_EQ(verbs_get_ctx(end.context)->query_port(end.context, 1, &port.attributes, sizeof(port)), 0);
  EXPECT_EQ(port.attributes.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.more, (std::array<std::uint64_t, 2>{}));
}

TEST_P(DeviceOf, HidesWhatItsProfileLacks) {
  // verbs.h answers EOPNOTSUPP for what a context has no function for.
  const verbs_context& context = *verbs_get_ctx(end.context);
  EXPECT_EQ(context.create_qp_ex != nullptr, full());
  EXPECT_EQ(context.create_cq_ex != nullptr, full());
  EXPECT_EQ(context.query_rt_values != nullptr, full());
  EXPECT_EQ(context.alloc_parent_domain != nullptr, full());
  EXPECT_EQ(context.alloc_dm != nullptr, full());
  EXPECT_NE(context.create_srq_ex, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_UC;
  ibv_qp* unreliable = soft::api::create_qp(end.pd, &init);
  EXPECT_EQ(unreliable != nullptr, full());
  if (unreliable != nullptr) {
    EXPECT_EQ(soft::api::destroy_qp(unreliable), 0);
  }
}

TEST_P(DeviceOf, RefusesXrc) {
  ibv_xrcd_init_attr xrcd{};
  errno = 0;
  EXPECT_EQ(ibv_open_xrcd(end.context, &xrcd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_P(DeviceOf, ItsCommandDescriptorIsKnownAgain) {
  const UniqueFd copy(::dup(end.context->cmd_fd));
  EXPECT_TRUE(is_soft_cmd_fd(copy.get()));
  EXPECT_FALSE(is_soft_cmd_fd(end.context->async_fd));
  EXPECT_FALSE(is_soft_cmd_fd(-1));
}

INSTANTIATE_TEST_SUITE_P(Profiles, DeviceOf, testing::Values(Profile::kFull, Profile::kPvrdma),
                         [](const auto& instance) { return instance.param == Profile::kFull ? "full" : "pvrdma"; });

TEST(AsyncEvents, ANonBlockingDescriptorDoesNotWait) {
  Simulation world;
  ibv_context* context = world.a->context;
  ASSERT_EQ(::fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(soft::api::get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(AsyncEvents, DestroyingWaitsForTheAcknowledgement) {
  Simulation world;
  Endpoint& a = *world.a;
  ibv_srq_init_attr init{};
  init.attr = {4, 1, 0};
  ibv_srq* srq = soft::api::create_srq(a.pd, &init);
  ASSERT_NE(srq, nullptr);
  impl(a.context).async_events().push({.element = {.srq = srq}, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
  ibv_async_event event{};
  ASSERT_EQ(soft::api::get_async_event(a.context, &event), 0);
  std::atomic<bool> acknowledged{false};
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    acknowledged = true;
    soft::api::ack_async_event(&event);
  });
  EXPECT_EQ(soft::api::destroy_srq(srq), 0);
  EXPECT_TRUE(acknowledged);
  late.join();
}

TEST(AsyncEvents, OfADestroyedObjectAreTakenBack) {
  Simulation world;
  Endpoint& a = *world.a;
  impl(a.context).async_events().push({.element = {.qp = a.qp}, .event_type = IBV_EVENT_COMM_EST});
  impl(a.context).async_events().push({.element = {.port_num = 1}, .event_type = IBV_EVENT_PORT_ERR});
  EXPECT_EQ(soft::api::destroy_qp(a.qp), 0);
  a.qp = nullptr;
  ibv_async_event event{};
  ASSERT_EQ(soft::api::get_async_event(a.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);  // the port's is still there
  EXPECT_EQ(event.element.port_num, 1);
  soft::api::ack_async_event(&event);
  pollfd descriptor{a.context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&descriptor, 1, 0), 0) << "readable, though there is nothing";
}

}  // namespace
}  // namespace fairlead::soft::test
