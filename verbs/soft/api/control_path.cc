#include "verbs/soft/api/control_path.h"

#include "verbs/soft/api/api.h"

namespace fairlead::soft {

void add_control_path(verbs::VerbsApi& table) noexcept {
  table.close_device = &api::close_device;
  table.query_device = &api::query_device;
  table.query_port = &api::query_port;
  table.query_gid = &api::query_gid;
  table.query_gid_ex = &api::query_gid_ex;
  table.alloc_pd = &api::alloc_pd;
  table.dealloc_pd = &api::dealloc_pd;
  table.reg_mr = &api::reg_mr;
  table.dereg_mr = &api::dereg_mr;
  table.create_comp_channel = &api::create_comp_channel;
  table.destroy_comp_channel = &api::destroy_comp_channel;
  table.create_cq = &api::create_cq;
  table.destroy_cq = &api::destroy_cq;
  table.modify_cq = nullptr;  // no moderation: an event is one eventfd write
  table.get_cq_event = &api::get_cq_event;
  table.ack_cq_events = &api::ack_cq_events;
  table.create_qp = &api::create_qp;
  table.modify_qp = &api::modify_qp;
  table.query_qp = &api::query_qp;
  table.destroy_qp = &api::destroy_qp;
  table.get_async_event = &api::get_async_event;
  table.ack_async_event = &api::ack_async_event;
}

}  // namespace fairlead::soft
