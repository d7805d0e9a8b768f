// A list of objects through links that are their members: no allocation, removal in constant time.
//
// Owns nothing. An item is in at most one list per link. Threads: none of its own; the owner's lock.
#pragma once

namespace fairlead {

template <typename T>
struct Link {
  explicit Link(T* object) noexcept : owner(object) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { unlink(); }

  [[nodiscard]] bool linked() const noexcept { return next != nullptr; }
  void unlink() noexcept {
    if (!linked()) return;
    previous->next = next;
    next->previous = previous;
    next = previous = nullptr;
  }

  T* const owner;
  Link* next = nullptr;
  Link* previous = nullptr;
};

template <typename T>
class List {
 public:
  List() noexcept : head_(nullptr) { head_.next = head_.previous = &head_; }

  [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }
  /// Does nothing if the link is in a list already.
  void push_back(Link<T>& link) noexcept {
    if (link.linked()) return;
    link.previous = head_.previous;
    link.next = &head_;
    head_.previous->next = &link;
    head_.previous = &link;
  }
  void push_front(Link<T>& link) noexcept {
    if (link.linked()) return;
    link.previous = &head_;
    link.next = head_.next;
    head_.next->previous = &link;
    head_.next = &link;
  }
  void clear() noexcept {
    while (!empty()) head_.next->unlink();
  }
  [[nodiscard]] T* front() const noexcept { return empty() ? nullptr : head_.next->owner; }
  /// Behind one that is in the list; null: that is the last.
  [[nodiscard]] static T* next(const Link<T>& link) noexcept { return link.next->owner; }
  [[nodiscard]] T* pop_front() noexcept {
    if (empty()) return nullptr;
    Link<T>* first = head_.next;
    first->unlink();
    return first->owner;
  }

 private:
  Link<T> head_;
};

}  // namespace fairlead
