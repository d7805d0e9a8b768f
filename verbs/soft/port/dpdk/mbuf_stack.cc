#include "verbs/soft/port/dpdk/mbuf_stack.h"

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include <cerrno>
#include <cstring>

namespace fairlead::dpdk {
namespace {

struct Stack {
  unsigned count;
  unsigned capacity;
  void* objects[];
};

Stack& stack_of(const rte_mempool* pool) { return *static_cast<Stack*>(pool->pool_data); }

int allocate(rte_mempool* pool) {
  auto* stack = static_cast<Stack*>(rte_zmalloc(nullptr, sizeof(Stack) + pool->size * sizeof(void*), 0));
  if (stack == nullptr) return -ENOMEM;
  stack->capacity = pool->size;
  pool->pool_data = stack;
  return 0;
}

void release(rte_mempool* pool) { rte_free(pool->pool_data); }

int push(rte_mempool* pool, void* const* objects, unsigned count) {
  Stack& stack = stack_of(pool);
  if (stack.capacity - stack.count < count) return -ENOBUFS;
  std::memcpy(&stack.objects[stack.count], objects, count * sizeof(void*));
  stack.count += count;
  return 0;
}

int pop(rte_mempool* pool, void** objects, unsigned count) {
  Stack& stack = stack_of(pool);
  if (stack.count < count) return -ENOBUFS;
  stack.count -= count;
  std::memcpy(objects, &stack.objects[stack.count], count * sizeof(void*));
  return 0;
}

unsigned count_of(const rte_mempool* pool) { return stack_of(pool).count; }

constexpr const char* kName = "fairlead_stack";

// Once; DPDK copies what it needs.
int register_stack() {
  rte_mempool_ops ops{};
  std::strncpy(ops.name, kName, sizeof(ops.name) - 1);
  ops.alloc = &allocate;
  ops.free = &release;
  ops.enqueue = &push;
  ops.dequeue = &pop;
  ops.get_count = &count_of;
  return rte_mempool_register_ops(&ops);
}

}  // namespace

rte_mempool* create_mbuf_stack(const std::string& name, unsigned count, std::uint16_t room,
                               std::uint16_t private_bytes) {
  static const int registered = register_stack();
  if (registered < 0) {
    rte_errno = -registered;
    return nullptr;
  }
  return rte_pktmbuf_pool_create_by_ops(name.c_str(), count, 0, private_bytes,
                                        static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + room), SOCKET_ID_ANY, kName);
}

}  // namespace fairlead::dpdk
