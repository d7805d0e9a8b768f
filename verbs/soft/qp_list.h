// A list of queue pairs through links of their own: no allocation, removal in constant time.
//
// Owns nothing. An item is in at most one list per link. Threads: under the domain's lock.
#pragma once

namespace fairlead::soft {

class Qp;

struct QpLink {
  explicit QpLink(Qp* qp) noexcept : owner(qp) {}
  QpLink(const QpLink&) = delete;
  QpLink& operator=(const QpLink&) = delete;
  ~QpLink() { unlink(); }

  [[nodiscard]] bool linked() const noexcept { return next != nullptr; }
  void unlink() noexcept {
    if (!linked()) return;
    previous->next = next;
    next->previous = previous;
    next = previous = nullptr;
  }

  Qp* const owner;
  QpLink* next = nullptr;
  QpLink* previous = nullptr;
};

class QpList {
 public:
  QpList() noexcept : head_(nullptr) { head_.next = head_.previous = &head_; }

  [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }
  /// Does nothing if the link is in a list already.
  void push_back(QpLink& link) noexcept {
    if (link.linked()) return;
    link.previous = head_.previous;
    link.next = &head_;
    head_.previous->next = &link;
    head_.previous = &link;
  }
  [[nodiscard]] Qp* front() const noexcept { return empty() ? nullptr : head_.next->owner; }
  [[nodiscard]] Qp* pop_front() noexcept {
    if (empty()) return nullptr;
    QpLink* first = head_.next;
    first->unlink();
    return first->owner;
  }

 private:
  QpLink head_;
};

}  // namespace fairlead::soft
