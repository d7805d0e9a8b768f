// Payload that is sent from where it lies: mbufs that refer to memory which is not the pool's (external buffers).
//
// A frame is then a chain: headers, a piece of memory each, and the few bytes behind the payload. DPDK calls back when
// the last reference to a piece is gone, on the thread that drives the port; that ends the frame's loan. Devices that
// copy within a burst need nothing else. Others read memory themselves later: it must be made known to them (DMA), and
// they must tell on demand what they are done with.
// Threads: as FrameDevice.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "verbs/soft/port/dpdk/driver.h"
#include "verbs/soft/port/loans.h"

namespace fairlead::dpdk {

class Attachments {
 public:
  /// Whether the device can; else the reason in `why`.
  static bool possible(const DriverPlan& plan, const rte_eth_dev_info& facts, std::string& why);
  /// For a queue that is not set up yet; null with the reason in `why` where there is no memory.
  static std::unique_ptr<Attachments> create(const DriverPlan& plan, std::uint16_t port, std::uint16_t queue,
                                             const rte_eth_dev_info& facts, std::string& why);
  ~Attachments();
  Attachments(const Attachments&) = delete;
  Attachments& operator=(const Attachments&) = delete;

  /// After the port was started: whether it tells what it is done with.
  [[nodiscard]] bool usable(std::string& why) const;
  /// The frame becomes a chain: its first `head` bytes, the pieces, room for what is behind them.
  bool attach(rte_mbuf& frame, std::uint32_t head, std::span<const iovec> pieces) noexcept;
  /// Of a chain with `size` bytes in its own room: moves those behind the head to its end.
  static void finish(rte_mbuf& frame, std::uint32_t size) noexcept;
  [[nodiscard]] soft::Loans loans() noexcept;
  void map(const void* start, std::size_t bytes) noexcept;
  void unmap(const void* start, std::size_t bytes) noexcept;
  /// Before the port is closed.
  void unmap_all() noexcept;

 private:
  using Pages = std::pair<std::uintptr_t, std::uintptr_t>;  // first byte, and one past the last
  struct Piece;

  Attachments(const DriverPlan& plan, std::uint16_t port, std::uint16_t queue, const rte_eth_dev_info& facts)
      : plan_(plan), port_(port), queue_(queue), device_(facts.device), most_pieces_(most_pieces(facts)) {}
  static std::size_t most_pieces(const rte_eth_dev_info& facts) noexcept;
  static void on_released(void* memory, void* piece);
  static Pages pages_of(const void* start, std::size_t bytes) noexcept;
  [[nodiscard]] bool known(const iovec& piece) const noexcept;
  [[nodiscard]] bool dma() const noexcept { return plan_.driver.empty(); }  // a PCI device

  const DriverPlan& plan_;
  const std::uint16_t port_;
  const std::uint16_t queue_;
  rte_device* const device_;
  const std::size_t most_pieces_;
  rte_mempool* pool_ = nullptr;  // of the mbufs behind the first of a chain
  soft::LoanBook book_;
  std::vector<Pages> mapped_;  // sorted
};

}  // namespace fairlead::dpdk
