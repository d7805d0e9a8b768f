// librdmacm's functions: served by softroce where the kernel has no RDMA, else handed on.
//
// A kernel's connection manager and ours cannot share an event channel, so one of them serves the whole process.
// Sockets over RDMA (rsocket and its family) are built on parts of the system library behind these functions, which
// know nothing of softroce: where it serves, there are none. The rest of the family then has no descriptor to work on.
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "fairlead/log.h"
#include "verbs/cm/device_cm.h"
#include "verbs/cm/rdma_api.h"

namespace cm = fairlead::cm::api;

namespace {

constexpr const char* kChoice = "FAIRLEAD_RDMA_CM";

bool kernel_has_rdma() {
  std::error_code ignored;
  return std::filesystem::exists("/dev/infiniband/rdma_cm", ignored) &&
         !std::filesystem::is_empty("/sys/class/infiniband", ignored) && !ignored;
}

bool choose() {
  const char* set = std::getenv(kChoice);
  const std::string_view choice = set != nullptr ? set : "";
  if (choice == "softroce") return true;
  if (choice == "system") return false;
  if (!choice.empty()) {
    fairlead::log(fairlead::LogLevel::kError,
                  std::string(kChoice) + "='" + std::string(choice) + "' is unknown; legal: softroce, system");
  }
  return !kernel_has_rdma();
}

bool ours() {
  static const bool answer = choose();
  return answer;
}

void* system_symbol(const char* name) {
  static void* const library = ::dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL);
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

template <auto* symbol>
struct System;
template <typename Answer, typename... Args, Answer (*symbol)(Args...)>
struct System<symbol> {
  static Answer call(const char* name, Args... args) {
    static const auto real = reinterpret_cast<Answer (*)(Args...)>(system_symbol(name));
    if (real != nullptr) return real(args...);
    errno = ENOSYS;
    if constexpr (std::is_same_v<Answer, int>) {
      return -1;
    } else if constexpr (!std::is_void_v<Answer>) {
      return Answer{};
    }
  }
};

// The peers of a program that ends without a word would wait for their timers.
__attribute__((destructor)) void say_goodbye() { fairlead::cm::disconnect_everything(); }

}  // namespace

#define SERVE(name, ...) \
  return ours() ? cm::name(__VA_ARGS__) : System<&::rdma_##name>::call("rdma_" #name __VA_OPT__(, ) __VA_ARGS__)

extern "C" {

rdma_event_channel* rdma_create_event_channel() { SERVE(create_event_channel); }
void rdma_destroy_event_channel(rdma_event_channel* channel) { SERVE(destroy_event_channel, channel); }
int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) { SERVE(get_cm_event, channel, event); }
int rdma_ack_cm_event(rdma_cm_event* event) { SERVE(ack_cm_event, event); }
const char* rdma_event_str(rdma_cm_event_type event) { return cm::event_str(event); }
int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) { SERVE(migrate_id, id, channel); }

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
  SERVE(create_id, channel, id, context, space);
}
int rdma_destroy_id(rdma_cm_id* id) { SERVE(destroy_id, id); }
int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  SERVE(create_ep, id, info, pd, attr);
}
void rdma_destroy_ep(rdma_cm_id* id) { SERVE(destroy_ep, id); }
int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t length) {
  SERVE(set_option, id, level, name, value, length);
}
ibv_context** rdma_get_devices(int* count) { SERVE(get_devices, count); }
void rdma_free_devices(ibv_context** list) { SERVE(free_devices, list); }

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) { SERVE(bind_addr, id, address); }
int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) {
  SERVE(resolve_addr, id, source, destination, timeout_ms);
}
int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) { SERVE(resolve_route, id, timeout_ms); }
__be16 rdma_get_src_port(rdma_cm_id* id) { SERVE(get_src_port, id); }
__be16 rdma_get_dst_port(rdma_cm_id* id) { SERVE(get_dst_port, id); }
int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** result) {
  SERVE(getaddrinfo, node, service, hints, result);
}
void rdma_freeaddrinfo(rdma_addrinfo* info) { SERVE(freeaddrinfo, info); }

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) { SERVE(create_qp, id, pd, attr); }
int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) { SERVE(create_qp_ex, id, attr); }
void rdma_destroy_qp(rdma_cm_id* id) { SERVE(destroy_qp, id); }
int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) { SERVE(create_srq, id, pd, attr); }
int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) { SERVE(create_srq_ex, id, attr); }
void rdma_destroy_srq(rdma_cm_id* id) { SERVE(destroy_srq, id); }
int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) { SERVE(init_qp_attr, id, attr, mask); }

int rdma_listen(rdma_cm_id* id, int backlog) { SERVE(listen, id, backlog); }
int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) { SERVE(get_request, listener, id); }
int rdma_connect(rdma_cm_id* id, rdma_conn_param* param) { SERVE(connect, id, param); }
int rdma_establish(rdma_cm_id* id) { SERVE(establish, id); }
int rdma_accept(rdma_cm_id* id, rdma_conn_param* param) { SERVE(accept, id, param); }
int rdma_reject(rdma_cm_id* id, const void* private_data, std::uint8_t length) {
  SERVE(reject, id, private_data, length);
}
int rdma_reject_ece(rdma_cm_id* id, const void* private_data, std::uint8_t length) {
  return ours() ? cm::reject(id, private_data, length)
                : System<&::rdma_reject_ece>::call("rdma_reject_ece", id, private_data, length);
}
int rdma_notify(rdma_cm_id* id, ibv_event_type event) { SERVE(notify, id, event); }
int rdma_disconnect(rdma_cm_id* id) { SERVE(disconnect, id); }

int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  SERVE(join_multicast, id, address, context);
}
int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context) {
  SERVE(join_multicast_ex, id, attr, context);
}
int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) { SERVE(leave_multicast, id, address); }
int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) { SERVE(set_local_ece, id, ece); }
int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) { SERVE(get_remote_ece, id, ece); }

int rsocket(int domain, int type, int protocol) {
  if (!ours()) return System<&::rsocket>::call("rsocket", domain, type, protocol);
  fairlead::log(fairlead::LogLevel::kError,
                "rsocket: softroce has no sockets over RDMA; use those of TCP, or queue pairs (rdma_create_qp)");
  errno = EOPNOTSUPP;
  return -1;
}

}  // extern "C"
