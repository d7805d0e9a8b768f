#include "verbs/soft/port/dpdk/attachments.h"

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "verbs/soft/port/dpdk/mbuf_stack.h"

namespace fairlead::dpdk {
namespace {

constexpr std::size_t kMostPieces = 4;      // more, and a copy is the better way
constexpr unsigned kFrames = 1024 + 256;    // of one piece: a driver's ring, and bursts on their way to it
constexpr std::uint16_t kTrailerRoom = 64;  // padding and ICRC are 7 bytes at most
constexpr const char* kRemedy = "; leave out transmit=zero-copy, and payload is copied";

}  // namespace

// In the private area of each mbuf that refers to memory.
struct Attachments::Piece {
  rte_mbuf_ext_shared_info shared;
  Attachments* owner;
  std::uint64_t loan;
};

std::size_t Attachments::most_pieces(const rte_eth_dev_info& facts) noexcept {
  const std::size_t segments = facts.tx_desc_lim.nb_seg_max != 0 ? facts.tx_desc_lim.nb_seg_max : kMostPieces + 2;
  return std::min(kMostPieces, segments - std::min<std::size_t>(segments, 2));
}

bool Attachments::possible(const DriverPlan& plan, const rte_eth_dev_info& facts, std::string& why) {
  if (!plan.reaches_memory) {
    why = plan.name + ": its peer reads packets out of DPDK's own memory only";
  } else if ((facts.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) == 0 || most_pieces(facts) == 0) {
    why = plan.name + " sends a packet from one piece of memory only (its driver has no scattered transmit)";
  } else if (!plan.copies && plan.queues > 1) {
    why =
        plan.name + " takes transmit=zero-copy with one queue only, and this is queues=" + std::to_string(plan.queues);
  } else if (plan.driver.empty() && rte_eal_iova_mode() != RTE_IOVA_VA) {
    why = plan.name + " addresses physical memory; bind it to vfio-pci with an IOMMU";
  } else {
    return true;
  }
  why += kRemedy;
  return false;
}

std::unique_ptr<Attachments> Attachments::create(const DriverPlan& plan, std::uint16_t port, std::uint16_t queue,
                                                 const rte_eth_dev_info& facts, std::string& why) {
  auto made = std::unique_ptr<Attachments>(new Attachments(plan, port, queue, facts));
  const std::string name = "fl_" + std::to_string(port) + "_" + std::to_string(queue) + "_attached";
  made->pool_ = create_mbuf_stack(name, kFrames * 2, kTrailerRoom, sizeof(Piece));
  if (made->pool_ != nullptr) return made;
  why = plan.name + ": no memory for transmit=zero-copy (" + rte_strerror(rte_errno) +
        "); give the first port of the process more: memory=MEGABYTES";
  return nullptr;
}

Attachments::~Attachments() { rte_mempool_free(pool_); }

bool Attachments::usable(std::string& why) const {
  if (plan_.copies || rte_eth_tx_done_cleanup(port_, queue_, 0) >= 0) return true;
  why = plan_.name + ": its driver does not tell when it is done with a packet" + kRemedy;
  return false;
}

void Attachments::on_released(void*, void* piece) {
  const Piece& released = *static_cast<Piece*>(piece);
  if (released.loan != 0) released.owner->book_.end(released.loan);
}

bool Attachments::known(const iovec& piece) const noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(piece.iov_base);
  const auto behind = std::upper_bound(mapped_.begin(), mapped_.end(), Pages{start, UINTPTR_MAX});
  return behind != mapped_.begin() && start + piece.iov_len <= std::prev(behind)->second;
}

bool Attachments::attach(rte_mbuf& frame, std::uint32_t head, std::span<const iovec> pieces) noexcept {
  if (pieces.empty() || pieces.size() > most_pieces_) return false;
  if (dma() && !std::all_of(pieces.begin(), pieces.end(), [this](const iovec& piece) { return known(piece); })) {
    return false;
  }
  std::array<rte_mbuf*, kMostPieces + 1> chain;
  if (rte_pktmbuf_alloc_bulk(pool_, chain.data(), static_cast<unsigned>(pieces.size()) + 1) != 0) return false;
  rte_mbuf* last = &frame;
  frame.data_len = static_cast<std::uint16_t>(head);
  frame.pkt_len = head;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto& piece = *static_cast<Piece*>(rte_mbuf_to_priv(chain[i]));
    piece.owner = this;
    // The pieces go with their chain: the last that DPDK frees ends its loan.
    piece.loan = i + 1 == pieces.size() ? book_.make() : 0;
    piece.shared.free_cb = &on_released;
    piece.shared.fcb_opaque = &piece;
    rte_mbuf_ext_refcnt_set(&piece.shared, 1);
    const auto length = static_cast<std::uint16_t>(pieces[i].iov_len);
    rte_pktmbuf_attach_extbuf(chain[i], pieces[i].iov_base, reinterpret_cast<rte_iova_t>(pieces[i].iov_base), length,
                              &piece.shared);
    chain[i]->data_off = 0;
    chain[i]->data_len = length;
    frame.pkt_len += length;
    last->next = chain[i];
    last = chain[i];
  }
  last->next = chain[pieces.size()];
  frame.nb_segs = static_cast<std::uint16_t>(pieces.size() + 2);
  return true;
}

void Attachments::finish(rte_mbuf& frame, std::uint32_t size) noexcept {
  const std::uint32_t tail = size - frame.data_len;
  rte_mbuf* last = rte_pktmbuf_lastseg(&frame);
  std::memcpy(rte_pktmbuf_mtod(last, std::byte*), rte_pktmbuf_mtod(&frame, const std::byte*) + frame.data_len, tail);
  last->data_len = static_cast<std::uint16_t>(tail);
  frame.pkt_len += tail;
}

soft::Loans Attachments::loans() noexcept {
  if (!plan_.copies && book_.loans().open()) rte_eth_tx_done_cleanup(port_, queue_, 0);
  return book_.loans();
}

Attachments::Pages Attachments::pages_of(const void* start, std::size_t bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(start);
  return {first & ~(page - 1), (first + bytes + page - 1) & ~(page - 1)};
}

// Of ranges that overlap only the first is known; memory of the others is copied.
void Attachments::map(const void* start, std::size_t bytes) noexcept {
  if (!dma()) return;
  const auto [first, end] = pages_of(start, bytes);
  void* const address = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr)
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (rte_extmem_register(address, end - first, nullptr, 0, page) != 0) return;
  if (rte_dev_dma_map(device_, address, first, end - first) != 0) {
    rte_extmem_unregister(address, end - first);
    return;
  }
  mapped_.insert(std::upper_bound(mapped_.begin(), mapped_.end(), Pages{first, end}), {first, end});
}

void Attachments::unmap_all() noexcept {
  while (!mapped_.empty()) {
    const auto [first, end] = mapped_.back();
    unmap(reinterpret_cast<const void*>(first), end - first);  // NOLINT(performance-no-int-to-ptr)
  }
}

void Attachments::unmap(const void* start, std::size_t bytes) noexcept {
  const auto found = std::find(mapped_.begin(), mapped_.end(), pages_of(start, bytes));
  if (found == mapped_.end()) return;
  const auto [first, end] = *found;
  void* const address = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr)
  rte_dev_dma_unmap(device_, address, first, end - first);
  rte_extmem_unregister(address, end - first);
  mapped_.erase(found);
}

}  // namespace fairlead::dpdk
