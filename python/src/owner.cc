#include "python/src/owner.h"

#include <atomic>

namespace fairlead::python {

namespace {

struct Kept {
  PyObject* object;
  Kept* next = nullptr;
};

std::atomic<Kept*> released{nullptr};

int drop_all(void* /*unused*/) {
  for (Kept* each = released.exchange(nullptr, std::memory_order_acquire); each != nullptr;) {
    Kept* const next = each->next;
    Py_DECREF(each->object);
    delete each;
    each = next;
  }
  return 0;
}

}  // namespace

void drop_released() noexcept { drop_all(nullptr); }

std::function<void()> release_of(py::object owner) {
  auto* const kept = new Kept{owner.release().ptr()};
  return [kept] {
    Kept* head = released.load(std::memory_order_relaxed);
    do {
      kept->next = head;
    } while (!released.compare_exchange_weak(head, kept, std::memory_order_release, std::memory_order_relaxed));
    // Who finds the list empty asks for it to be looked at. If Python has no room to be asked, the next one does, or
    // the next registration looks.
    if (head == nullptr && Py_IsInitialized() != 0) (void)Py_AddPendingCall(drop_all, nullptr);
  };
}

}  // namespace fairlead::python
