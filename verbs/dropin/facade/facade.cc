// libibverbs.so.1 in front of libfairlead-ibverbs.so: the same functions under the versions that programs ask for.
//
// A program that loads libibverbs by name and looks symbols up by version (NCCL) passes a preloaded library by. Found
// first by the library path, this one answers it: every function is a jump through a slot, which is filled when the
// library is loaded with libfairlead-ibverbs.so's function, or else the system's (its drivers' private ones).
#include <cerrno>
#include <cstdlib>

// Of libfairlead-ibverbs.so: its own function of this name, or the system's of this version; null where neither is.
extern "C" void* fairlead_dropin_symbol(const char* name, const char* version, bool system_only) noexcept;

// Drivers read it; libibverbs sets its own from the same variable of the environment.
extern "C" {
__attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy = false;
}

#if defined(__x86_64__)
#define FAIRLEAD_JUMP(slot) "endbr64\njmp *" slot "(%rip)\n"
#elif defined(__aarch64__)
#define FAIRLEAD_JUMP(slot) "bti c\nadrp x16, " slot "\nldr x16, [x16, :lo12:" slot "]\nbr x16\n"
#else
#error "the versioned libibverbs.so.1 needs a jump for this processor"
#endif

// One name has up to two versions, so labels carry the kind.
#define FAIRLEAD_DEFINE(label, slot, versioned_name)                                                      \
  asm(".pushsection .bss\n.balign 8\n.globl " slot "\n.hidden " slot "\n" slot                            \
      ": .zero 8\n"                                                                                       \
      ".popsection\n.pushsection .text\n.balign 16\n.globl " label "\n.type " label ", %function\n" label \
      ":\n" FAIRLEAD_JUMP(slot) ".size " label ", . - " label "\n.symver " label ", " versioned_name      \
                                "\n.popsection\n");
#define CURRENT(name, version) FAIRLEAD_DEFINE("current_" #name, "current_slot_" #name, #name "@@" #version)
#define COMPAT(name, version) FAIRLEAD_DEFINE("compat_" #name, "compat_slot_" #name, #name "@" #version)
#define PRIVATE(name, version) FAIRLEAD_DEFINE("private_" #name, "private_slot_" #name, #name "@@" #version)
#include "verbs/dropin/facade/symbols.h"
#undef CURRENT
#undef COMPAT
#undef PRIVATE

extern "C" {
#define CURRENT(name, version) extern __attribute__((visibility("hidden"))) void* current_slot_##name;
#define COMPAT(name, version) extern __attribute__((visibility("hidden"))) void* compat_slot_##name;
#define PRIVATE(name, version) extern __attribute__((visibility("hidden"))) void* private_slot_##name;
#include "verbs/dropin/facade/symbols.h"
#undef CURRENT
#undef COMPAT
#undef PRIVATE
}

namespace {

struct Slot {
  void** function;
  const char* name;
  const char* version;
  bool system_only;
};

const Slot kSlots[] = {
#define CURRENT(name, version) {&current_slot_##name, #name, #version, false},
#define COMPAT(name, version) {&compat_slot_##name, #name, #version, true},
#define PRIVATE(name, version) {&private_slot_##name, #name, #version, false},
#include "verbs/dropin/facade/symbols.h"
};

// Stands in for the system's library where there is none. Null is the safe answer to all of them: what would give a
// driver or an old program its first object gives none.
void* absent() noexcept {
  errno = ENOSYS;
  return nullptr;
}

__attribute__((constructor)) void fill_slots() noexcept {
  verbs_allow_disassociate_destroy = std::getenv("RDMAV_ALLOW_DISASSOC_DESTROY") != nullptr;
  for (const Slot& slot : kSlots) {
    *slot.function = fairlead_dropin_symbol(slot.name, slot.version, slot.system_only);
    if (*slot.function == nullptr) *slot.function = reinterpret_cast<void*>(&absent);
  }
}

}  // namespace
