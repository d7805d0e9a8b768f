// All-reduce over the ranks of a group: every rank gets the sum of all ranks' gradients.
//
// Ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): the sum is cut into a part for each rank;
// in N-1 steps each rank adds what its left neighbour has summed of a part so far and hands it to the right one
// (reduce-scatter), in N-1 more the parts that are complete go round (all-gather). Each rank sends 2 (N-1)/N of the
// bytes. Parts cross in pieces, so that a rank adds one while the next is on its way. Tree: sums go up a binomial tree
// to rank 0 and down again, in 2 log2 N steps: for what is small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/collective/group.h"
#include "bench/memory/published.h"
#include "fairlead/memory.h"
#include "fairlead/tensor.h"

namespace fairlead::bench {

enum class Algorithm : std::uint8_t { kAuto, kRing, kTree };

struct AllReduceOptions {
  std::size_t bytes = std::size_t{64} << 20;         // of the buffer
  std::size_t piece_bytes = std::size_t{512} << 10;  // what a part is cut into; a multiple of 4
};

/// Threads: one at a time. Every rank makes the same calls in the same order, with the same types and counts; where one
/// does not, calls fail with kInvalidArgument. After any failure the buffer holds anything, and the group is to be
/// left. Errors of all calls: also those of Group::next, and of the transfers.
class AllReduce {
 public:
  /// Takes buffers and tells the others. `name`: the same at every rank, and of no other AllReduce of the engine's
  /// while this lives. Errors: kInvalidArgument, kResourceExhausted.
  static Result<AllReduce> prepare(Group* group, std::string_view name, const AllReduceOptions& options);

  /// What goes in and comes out: elements from its first byte on.
  [[nodiscard]] std::byte* data() const noexcept { return data_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return data_.size(); }
  /// What a tree carries at most.
  [[nodiscard]] std::size_t tree_bytes() const noexcept { return tree_bytes_; }

  /// Errors: kInvalidArgument (a type that has no sum here), kOutOfRange (more than fits).
  Status all_reduce(DType dtype, std::size_t count, Algorithm algorithm = Algorithm::kAuto);
  /// Only this rank's part (ring_part) is summed; the other bytes hold anything.
  Status reduce_scatter(DType dtype, std::size_t count);
  /// Each rank gives its part and gets all.
  Status all_gather(DType dtype, std::size_t count);

 private:
  struct Neighbour {
    RemoteMemory data, scratch;
  };
  struct Ring;

  explicit AllReduce(Group* group) : group_(group), neighbours_(group->size()) {}
  Status check(DType dtype, std::size_t count, std::size_t limit) const;
  /// What notifications of the operation that begins now carry beside their step: who does another one is found out.
  void begin(DType dtype, std::size_t count) noexcept;
  [[nodiscard]] std::uint64_t step_value(std::uint64_t kind, std::size_t step, std::size_t piece) const noexcept;
  Status run_ring(DType dtype, std::size_t count, std::size_t first_step, std::size_t steps, bool wait_for_right);
  Status run_tree(DType dtype, std::size_t count);

  Group* group_;
  Memory data_, scratch_;  // scratch: what the left neighbour has summed, laid out as data; then a slot for each child
  std::vector<Published> published_;  // both
  std::vector<Neighbour> neighbours_;
  std::size_t piece_bytes_ = 0, tree_bytes_ = 0;
  std::uint64_t operations_ = 0, operation_ = 0;  // how many there were; the one under way, as 16 bits of a hash
  bool scratch_in_use_ = false;                   // by a neighbour that has not said that its reduce_scatter is over
};

/// The elements [begin, end) of `count` that are rank `rank`'s part.
struct Part {
  std::size_t begin = 0, end = 0;
};
[[nodiscard]] Part ring_part(std::size_t count, std::size_t ranks, std::size_t rank) noexcept;

}  // namespace fairlead::bench
