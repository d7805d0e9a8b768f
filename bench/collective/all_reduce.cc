#include "bench/collective/all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "bench/collective/reduce.h"

namespace fairlead::bench {
namespace {

constexpr std::size_t kTreeBytes = std::size_t{256} << 10;    // that a tree carries at most,
constexpr std::size_t kTreeIsFaster = std::size_t{32} << 10;  // and up to which it is taken

// What notifications say: the kind of step, its number, the operation, the piece of the part.
enum Kind : std::uint64_t { kRingPiece = 1, kTreeUp, kTreeDown, kBegun };

std::size_t tree_levels(std::size_t ranks) { return std::bit_width(ranks - 1); }

}  // namespace

Part ring_part(std::size_t count, std::size_t ranks, std::size_t rank) noexcept {
  const std::size_t whole = count / ranks, left = count % ranks;
  const std::size_t begin = whole * rank + std::min(rank, left);
  return {begin, begin + whole + (rank < left ? 1 : 0)};
}

Result<AllReduce> AllReduce::prepare(Group* group, std::string_view name, const AllReduceOptions& options) {
  if (options.bytes == 0 || options.piece_bytes == 0 || options.piece_bytes % sizeof(float) != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("an all-reduce of {} bytes in pieces of {}: neither may be 0, and pieces are a multiple of {}",
                    options.bytes, options.piece_bytes, sizeof(float)));
  }
  Engine& engine = group->engine();
  AllReduce made(group);
  made.piece_bytes_ = options.piece_bytes;
  made.tree_bytes_ = std::min(options.bytes, kTreeBytes);
  Result<Memory> data = engine.allocate(options.bytes);
  if (!data) return data.error();
  Result<Memory> scratch = engine.allocate(options.bytes + tree_levels(group->size()) * made.tree_bytes_);
  if (!scratch) return scratch.error();
  made.data_ = *std::move(data);
  made.scratch_ = *std::move(scratch);
  const std::string data_name = fmt::format("{}/data", name), scratch_name = fmt::format("{}/scratch", name);
  for (const auto& [region, memory] : {std::pair(&data_name, &made.data_), std::pair(&scratch_name, &made.scratch_)}) {
    Result<Published> published = Published::create(engine, *region, *memory, Access::kRemoteWrite);
    if (!published) return published.error();
    made.published_.push_back(*std::move(published));
  }
  if (const Status all = group->barrier(); !all.ok()) return all;
  for (std::size_t rank = 0; rank < group->size(); ++rank) {
    if (rank == group->rank()) continue;
    Result<RemoteMemory> its_data = group->peer(rank).lookup(data_name);
    if (!its_data) return of_rank(rank, its_data.error());
    Result<RemoteMemory> its_scratch = group->peer(rank).lookup(scratch_name);
    if (!its_scratch) return of_rank(rank, its_scratch.error());
    if (its_data->size() != made.data_.size()) {
      return Status(Code::kInvalidArgument, fmt::format("rank {} has {} bytes of {} where this rank, {}, has {}", rank,
                                                        its_data->size(), name, group->rank(), made.data_.size()));
    }
    made.neighbours_[rank] = {*std::move(its_data), *std::move(its_scratch)};
  }
  if (const Status all = group->barrier(); !all.ok()) return all;
  return made;
}

Status AllReduce::check(DType dtype, std::size_t count, std::size_t limit) const {
  if (!can_add(dtype)) {
    return {Code::kInvalidArgument, fmt::format("gradients are F32, F16 or BF16, not {}", to_string(dtype))};
  }
  if (count > limit / element_size(dtype)) {
    return {Code::kOutOfRange, fmt::format("{} elements of {} are more than the {} bytes that there are for them",
                                           count, to_string(dtype), limit)};
  }
  return {};
}

void AllReduce::begin(DType dtype, std::size_t count) noexcept {
  std::uint64_t hash = ++operations_;
  for (const std::uint64_t part :
       {std::uint64_t{count}, std::uint64_t{piece_bytes_}, std::uint64_t{static_cast<std::uint8_t>(dtype)}}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  operation_ = hash & 0xffff;
}

std::uint64_t AllReduce::step_value(std::uint64_t kind, std::size_t step, std::size_t piece) const noexcept {
  return kind << 56 | std::uint64_t{step} << 48 | operation_ << 32 | piece;
}

Status AllReduce::all_reduce(DType dtype, std::size_t count, Algorithm algorithm) {
  if (const Status fits = check(dtype, count, algorithm == Algorithm::kTree ? tree_bytes_ : bytes()); !fits.ok())
    return fits;
  const bool tree =
      algorithm == Algorithm::kTree || (algorithm == Algorithm::kAuto && count * element_size(dtype) <= kTreeIsFaster);
  if (group_->size() == 1) return {};
  begin(dtype, count);
  if (tree) return run_tree(dtype, count);
  // Its first writes go to the neighbour's scratch. A rank that has ended an all-reduce or an all-gather knows that its
  // right neighbour is done with that: what it got last had been summed there. After a reduce-scatter it does not.
  const bool wait = scratch_in_use_;
  scratch_in_use_ = false;
  return run_ring(dtype, count, 0, 2 * (group_->size() - 1), wait);
}

Status AllReduce::reduce_scatter(DType dtype, std::size_t count) {
  if (const Status fits = check(dtype, count, bytes()); !fits.ok()) return fits;
  if (group_->size() == 1) return {};
  begin(dtype, count);
  scratch_in_use_ = true;
  return run_ring(dtype, count, 0, group_->size() - 1, true);
}

Status AllReduce::all_gather(DType dtype, std::size_t count) {
  if (const Status fits = check(dtype, count, bytes()); !fits.ok()) return fits;
  if (group_->size() == 1) return {};
  begin(dtype, count);
  scratch_in_use_ = false;
  return run_ring(dtype, count, group_->size() - 1, group_->size() - 1, true);
}

// At step s a rank sends the part of rank - 1 - s to its right, and receives that of rank - 2 - s from its left. The
// first N-1 steps are sums: they land in scratch, and what is received there is added and sent on. From then on they
// are final and land in place.
struct AllReduce::Ring {
  std::size_t ranks, rank, piece_elements, count;

  [[nodiscard]] Part sent_at(std::size_t step) const {
    return ring_part(count, ranks, (rank + 2 * ranks - 1 - step % ranks) % ranks);
  }
  [[nodiscard]] Part received_at(std::size_t step) const {
    return ring_part(count, ranks, (rank + 2 * ranks - 2 - step % ranks) % ranks);
  }
  [[nodiscard]] std::size_t pieces(Part part) const {
    return (part.end - part.begin + piece_elements - 1) / piece_elements;
  }
  [[nodiscard]] Part piece(Part part, std::size_t index) const {
    const std::size_t begin = part.begin + index * piece_elements;
    return {begin, std::min(part.end, begin + piece_elements)};
  }
  [[nodiscard]] bool sums(std::size_t step) const { return step + 1 < ranks; }
};

Status AllReduce::run_ring(DType dtype, std::size_t count, std::size_t first_step, std::size_t steps,
                           bool wait_for_right) {
  const std::size_t ranks = group_->size(), element = element_size(dtype);
  const Ring ring{ranks, group_->rank(), piece_bytes_ / element, count};
  const std::size_t left = (ring.rank + ranks - 1) % ranks, right = (ring.rank + 1) % ranks;
  std::vector<Transfer> sent;
  const auto send = [&](std::size_t step, std::size_t index) {
    const Part piece = ring.piece(ring.sent_at(step), index);
    const std::size_t offset = piece.begin * element, length = (piece.end - piece.begin) * element;
    const RemoteMemory& to = ring.sums(step) ? neighbours_[right].scratch : neighbours_[right].data;
    sent.push_back(group_->peer(right).write(data_.slice(offset, length), to.slice(offset, length),
                                             {.notify = step_value(kRingPiece, step, index)}));
  };

  if (wait_for_right) {  // a left neighbour that is ahead must not write what this rank still reads
    group_->peer(left).send({}, step_value(kBegun, first_step, 0));
    if (const Status begun = group_->expect(right, step_value(kBegun, first_step, 0)); !begun.ok()) return begun;
  }
  for (std::size_t i = 0, n = ring.pieces(ring.sent_at(first_step)); i < n; ++i) send(first_step, i);
  const std::size_t end = first_step + steps;
  for (std::size_t step = first_step; step < end; ++step) {
    const Part part = ring.received_at(step);
    for (std::size_t i = 0, n = ring.pieces(part); i < n; ++i) {
      if (const Status came = group_->expect(left, step_value(kRingPiece, step, i)); !came.ok()) return came;
      if (ring.sums(step)) {
        const Part piece = ring.piece(part, i);
        const std::size_t offset = piece.begin * element;
        add(dtype, data_.data() + offset, scratch_.data() + offset, piece.end - piece.begin);
      }
      if (step + 1 < end) send(step + 1, i);
    }
  }
  const Status all = wait_all(sent);
  return all.ok() ? all : of_rank(right, all);
}

Status AllReduce::run_tree(DType dtype, std::size_t count) {
  const std::size_t ranks = group_->size(), rank = group_->rank(), length = count * element_size(dtype);
  if (length == 0) return {};
  std::vector<std::pair<std::size_t, Transfer>> sent;
  const auto send = [&](std::size_t to, const RemoteMemory& memory, std::uint64_t value) {
    sent.emplace_back(to, group_->peer(to).write(data_.slice(0, length), memory, {.notify = value}));
  };
  // Up: children are rank + 1, + 2, + 4 ... as far as the lowest bit of the rank; the parent is without that bit.
  std::size_t level = 0;
  for (; (std::size_t{1} << level) < ranks && (rank >> level & 1) == 0; ++level) {
    const std::size_t child = rank + (std::size_t{1} << level);
    if (child >= ranks) continue;
    if (const Status came = group_->expect(child, step_value(kTreeUp, level, 0)); !came.ok()) return came;
    add(dtype, data_.data(), scratch_.data() + data_.size() + level * tree_bytes_, count);
  }
  if (rank != 0) {
    const std::size_t parent = rank - (std::size_t{1} << level);
    send(parent, neighbours_[parent].scratch.slice(data_.size() + level * tree_bytes_, length),
         step_value(kTreeUp, level, 0));
    if (const Status came = group_->expect(parent, step_value(kTreeDown, level, 0)); !came.ok()) return came;
  }
  while (level-- > 0) {
    const std::size_t child = rank + (std::size_t{1} << level);
    if (child < ranks) send(child, neighbours_[child].data.slice(0, length), step_value(kTreeDown, level, 0));
  }
  for (auto& [to, transfer] : sent) {
    if (const Status done = transfer.wait(); !done.ok()) return of_rank(to, done);
  }
  return {};
}

}  // namespace fairlead::bench
