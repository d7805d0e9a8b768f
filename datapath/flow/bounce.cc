#include "datapath/flow/bounce.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fairlead::datapath {

using gpu::Copier;

namespace {

constexpr std::chrono::milliseconds kLookAtAll{1};
constexpr const char* kNoCopy = "the GPU failed a copy of this end's memory; the log names the call";
constexpr const char* kNoStaging =
    "this end's GPU memory cannot be reached over the path, and there is no staging memory";

}  // namespace

Bounce::~Bounce() {
  stop();
  clear();
}

void Bounce::take(TransferImpl& transfer, Extent part, Cursor cursor) {
  jobs_.push_back({.transfer = &transfer, .part = part, .next = cursor});
  moved_();
}

void Bounce::Piece::copied(bool good) noexcept {
  if (!good) code = Code::kDataLoss;
  const bool out = job->transfer->list->kind == OpKind::kWrite;
  state = good && out ? State::kCopied : State::kEnded;
  bounce->moved_();
}

void Bounce::piece_ended(TransferImpl& piece, Code code) noexcept {
  Piece& ended = *static_cast<Piece*>(piece.piece);
  assert(ended.state == Piece::State::kOnPath);
  ended.code = code;
  ended.state = Piece::State::kCarried;
  moved_();
}

bool Bounce::copies() const noexcept {
  return std::ranges::any_of(pieces_, [](const auto& piece) { return piece->state == Piece::State::kCopying; });
}

// ---- pieces --------------------------------------------------------------------------------------------------------

void Bounce::advance(Outbox& outbox, Clock::time_point now) {
  if (jobs_.empty()) return;
  for (const std::unique_ptr<Piece>& piece : pieces_) go_on(outbox, *piece, now);
  std::erase_if(pieces_, [](const auto& piece) { return piece->job == nullptr; });
  begin_pieces(outbox);
  const bool look_at_all = now - looked_at_ >= kLookAtAll;
  if (look_at_all) looked_at_ = now;
  end_jobs(outbox, look_at_all);
}

void Bounce::begin_pieces(Outbox& outbox) {
  for (Job& job : jobs_) {
    while (job.goes_on() && job.begun < job.part.bytes) {
      DeviceStaging* const staging = staging_();
      if (staging == nullptr) {
        job.code = Code::kUnimplemented;
        job.reason = kNoStaging;
        break;
      }
      std::byte* const slot = staging->take(DeviceStaging::Side::kOurs, *this);
      if (slot == nullptr) return;
      begin_piece(outbox, job, *staging, slot);
    }
  }
}

void Bounce::begin_piece(Outbox& outbox, Job& job, DeviceStaging& staging, std::byte* slot) {
  const OpList& list = *job.transfer->list;
  Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
  piece.bounce = this;
  piece.staging = &staging;
  piece.job = &job;
  piece.op = &list.ops[job.next.op];
  piece.offset = job.next.offset;
  piece.bytes = std::min<std::uint64_t>(staging.slot_bytes(), job.part.bytes - job.begun);
  piece.slot = slot;
  job.begun += piece.bytes;
  job.next.offset += piece.bytes;
  ++job.pieces;
  if (list.kind == OpKind::kWrite) return copy(piece, Copier::Way::kToHost);
  post(outbox, piece);
}

void Bounce::go_on(Outbox& outbox, Piece& piece, Clock::time_point now) {
  if (piece.state == Piece::State::kOnPath && !piece.job->goes_on() && !std::exchange(piece.cancelled, true)) {
    outbox.end_early(*piece.carried, now);
  }
  if (piece.state == Piece::State::kCopied) {
    if (!piece.job->goes_on()) return end(piece);
    post(outbox, piece);
  } else if (piece.state == Piece::State::kCarried) {
    const bool read = piece.job->transfer->list->kind == OpKind::kRead;
    if (!read || piece.code != Code::kOk || !piece.job->goes_on()) return end(piece);
    copy(piece, Copier::Way::kToDevice);
  }
  if (piece.state == Piece::State::kEnded) end(piece);
}

/// The same bytes of the remote region, to or from the slot.
void Bounce::post(Outbox& outbox, Piece& piece) {
  TransferImpl& t = *acquire_transfer();
  const TransferImpl& of = *piece.job->transfer;
  t.own.kind = of.list->kind;
  t.own.ops.push_back(
      {piece.slot, piece.bytes, &piece.staging->range(), piece.op->remote, piece.op->offset + piece.offset});
  t.own.bytes = t.bytes = piece.bytes;
  t.list = &t.own;
  t.traffic = of.traffic;
  t.is_piece = true;
  t.piece = &piece;
  piece.carried = &t;
  piece.state = Piece::State::kOnPath;
  outbox.add(t);
}

void Bounce::copy(Piece& piece, Copier::Way way) {
  const auto& memory = std::get<CudaMemory>(piece.op->range->memory().kind);
  const auto use = way == Copier::Way::kToHost ? Copier::Use::kOut : Copier::Use::kIn;
  piece.state = Piece::State::kCopying;
  if (piece.staging->copier().start(use, way, memory.context, piece.op->data + piece.offset, piece.slot, piece.bytes,
                                    piece)) {
    return;
  }
  piece.code = Code::kDataLoss;
  piece.state = Piece::State::kEnded;
  moved_();
}

void Bounce::end(Piece& piece) {
  Job& job = *std::exchange(piece.job, nullptr);
  --job.pieces;
  if (job.code == Code::kOk && piece.code != Code::kOk) {
    job.code = piece.code;
    job.reason = piece.carried != nullptr && piece.state == Piece::State::kCarried ? piece.carried->reason : kNoCopy;
  }
  piece.staging->give_back(DeviceStaging::Side::kOurs, piece.slot);
  if (piece.carried != nullptr) drop_reference(*piece.carried);
}

/// Those that have not begun can only have been cancelled or be late, which there is time to find out.
void Bounce::end_jobs(Outbox& outbox, bool look_at_all) {
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const bool goes_on = at->goes_on();
    if (!look_at_all && goes_on && at->begun == 0) return;
    if (at->pieces != 0 || (goes_on && at->begun < at->part.bytes)) {
      ++at;
      continue;
    }
    const Job ended = std::move(*at);
    at = jobs_.erase(at);
    TransferImpl& t = *ended.transfer;
    if (ended.code != Code::kOk && t.failure == Code::kOk) {
      t.failure = ended.code;
      t.reason = ended.reason;
    }
    const bool whole = ended.code == Code::kOk && ended.begun == ended.part.bytes;
    outbox.completed(
        {.use = PostedRequest::Use::kApart, .transfer = &t, .at = ended.part.at, .bytes = ended.part.bytes},
        whole ? Code::kOk : t.failure);
  }
}

// ---- the end -------------------------------------------------------------------------------------------------------

void Bounce::stop() noexcept {
  for (const std::unique_ptr<Piece>& piece : pieces_) {
    if (piece->state == Piece::State::kCopying) piece->staging->copier().finish();
  }
}

void Bounce::clear() noexcept {
  jobs_.clear();
  for (const std::unique_ptr<Piece>& piece : pieces_) {
    piece->staging->give_back(DeviceStaging::Side::kOurs, piece->slot);
    if (piece->carried != nullptr) drop_reference(*piece->carried);
  }
  pieces_.clear();
  in_waiting.unlink();
}

}  // namespace fairlead::datapath
