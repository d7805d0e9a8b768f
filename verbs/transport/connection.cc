#include "verbs/transport/connection.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>

#include "verbs/transport/completion_code.h"
#include "verbs/transport/qp_setup.h"
#include "verbs/transport/wr_id.h"

namespace fairlead::verbs {
namespace {

std::uint32_t random_psn() noexcept {
  std::uint32_t value = 0;
  // At most 256 bytes are never interrupted; a kernel without getrandom leaves PSN 0, which is legal.
  if (::getrandom(&value, sizeof value, 0) != sizeof value) value = 0;
  return value & kMaxPsn;
}

}  // namespace

Connection::Connection(ConnectionShared& shared, Parts parts, std::uint64_t wr_id, datapath::Path& path)
    : shared_(shared),
      path_(path),
      wr_id_(wr_id),
      parts_(std::move(parts)),
      send_(shared.limits, parts_.arena, shared.chain),
      receive_(shared.limits, parts_.arena, wr_id) {
  ours_.gid = parts_.gid.address;
  ours_.qpn = parts_.qp->qp_num;
  ours_.psn = random_psn();
  ours_.mtu = parts_.mtu;
  ours_.message_credits = shared.limits.receive_depth;
  ours_.control_credits = kControlDepth;
  ours_.message_bytes = shared.limits.message_bytes;
  ours_.max_rd_atomic = shared.max_rd_atomic;
  ours_.max_dest_rd_atomic = shared.max_dest_rd_atomic;
  ours_.one_sided = shared.limits.one_sided;
  shared.events.watch(parts_.qp.get());
}

Status Connection::prepare() {
  const int error = receive_.post_all(parts_.qp.get());
  if (error == 0) return {};
  return {Code::kInternal, fmt::format("{}: cannot post {} receives: {}", shared_.device,
                                       shared_.limits.receive_slots(), std::strerror(error))};
}

Status Connection::check_peer(const PathDescription& theirs) const {
  const Address& gid = parts_.gid.address;
  if (theirs.gid.is_ipv4() != gid.is_ipv4()) {
    return {Code::kUnavailable,
            fmt::format("{}: our GID {} is {}, the peer's {} is {}: set gid_index on one side", shared_.device,
                        gid.to_string(), family_name(gid), theirs.gid.to_string(), family_name(theirs.gid))};
  }
  if (theirs.gid.is_loopback() != gid.is_loopback() && !parts_.same_host) {
    return {Code::kUnavailable, fmt::format("{}: no packet goes between our GID {} and the peer's {}", shared_.device,
                                            gid.to_string(), theirs.gid.to_string())};
  }
  return {};
}

Status Connection::connect(std::string_view peer) {
  if (state_ != State::kOpened) {
    return {Code::kInvalidArgument, fmt::format("{}: this path was connected or closed before", shared_.device)};
  }
  if (!parts_.qp) {
    return {Code::kUnavailable, fmt::format("{}: the device failed before this path was connected", shared_.device)};
  }
  auto theirs = parse_path_description(peer);
  if (!theirs) return theirs.error();
  Status status = check_peer(*theirs);
  if (!status.ok()) return status;
  theirs_ = *theirs;
  mtu_ = std::min(ours_.mtu, theirs_.mtu);
  status = move_to_rts(shared_.api, parts_.qp.get(), shared_.device, shared_.config,
                       {ours_, theirs_, parts_.gid.index, mtu_, parts_.priority});
  if (!status.ok()) return status;

  credits_ = Credits(ours_.message_credits, ours_.control_credits, theirs_.message_credits, theirs_.control_credits);
  send_.start({.qp = parts_.qp.get(),
               .wr_id = wr_id_,
               .max_inline = parts_.max_inline,
               .max_reads = read_depth(ours_, theirs_),
               .one_sided = ours_.one_sided && theirs_.one_sided,
               .credits = &credits_});
  if (parts_.role == datapath::PathRole::kPassive) {
    state_ = State::kConnecting;
    return {};
  }
  become_ready();
  ready_to_report_ = true;
  want_attention();
  sent(send_.pump(true));
  return {};
}

std::size_t Connection::post(std::span<const datapath::WorkRequest> requests) noexcept {
  if (state_ != State::kReady) return 0;
  const SendQueue::Posted posted = send_.post(requests);
  shared_.traffic.requests.add(posted.taken);
  sent(posted.error);
  if (send_.reportable()) want_attention();  // refused, with nothing on the wire before it
  return posted.taken;
}

/// What came of posting to the queue pair.
void Connection::sent(int error) noexcept {
  if (error == 0) return;
  fail(Code::kInternal, fmt::format("posting to the send queue failed: {}", std::strerror(error)), false);
  kill(Code::kInternal);
}

void Connection::close() noexcept {
  if (state_ == State::kClosed) return;
  if (state_ != State::kDown) enter_error();
  leave(State::kClosed);
  ready_to_report_ = down_to_report_ = false;
  want_attention();
}

void Connection::become_ready() noexcept {
  state_ = State::kReady;
  shared_.traffic.paths.add();
}

void Connection::leave(State next) noexcept {
  if (state_ == State::kReady) shared_.traffic.paths_ended.add();
  state_ = next;
}

void Connection::enter_error() noexcept {
  send_.stop();
  if (parts_.qp && !move_to_error(shared_.api, parts_.qp.get())) kill(Code::kAborted);
  left_at_ = shared_.clock.now();
  if (parts_.qp) shared_.leaving.push_back(this);  // once; capacity is reserved when a path is opened
  want_attention();
}

void Connection::give_up() noexcept {
  log(LogLevel::kInfo,
      fmt::format("{}: the device did not give back what was posted; its queue pair goes as it is", describe()));
  kill(Code::kAborted);
}

void Connection::drop_qp() noexcept {
  if (!parts_.qp) return;
  shared_.events.forget(parts_.qp.get());
  parts_.qp.reset();
}

void Connection::kill(Code code) noexcept {
  drop_qp();
  send_.abandon(code);
  receive_.abandon();
  want_attention();
}

void Connection::release() noexcept {
  leave(State::kClosed);
  shared_.traffic.ended.add(send_.unreported());
  released_ = true;
  drop_qp();
}

bool Connection::drained() const noexcept {
  return (state_ == State::kDown || state_ == State::kClosed) && send_.idle() && receive_.ended();
}

std::string Connection::describe() const {
  if (state_ == State::kOpened) {
    return fmt::format("{} {} qpn {:#x}, not connected", shared_.device, ours_.gid.to_string(), ours_.qpn);
  }
  return fmt::format("{} {} qpn {:#x} -> {} qpn {:#x}, mtu {}", shared_.device, ours_.gid.to_string(), ours_.qpn,
                     theirs_.gid.to_string(), theirs_.qpn, mtu_);
}

void Connection::want_attention() noexcept {
  shared_.urgent |= !alive() || send_.waiting();
  if (in_attention_) return;
  in_attention_ = true;
  shared_.attention.push_back(this);  // capacity is reserved when a path is opened
}

void Connection::fail(Code code, std::string_view reason, bool vague) noexcept {
  if (alive()) {
    leave(State::kDown);
    ready_to_report_ = false;
    down_to_report_ = true;
    enter_error();
  } else if (!down_to_report_ || !vague_ || vague) {
    return;
  }
  vague_ = vague;
  down_code_ = code;
  down_reason_ = fmt::format("{}: {}", describe(), reason);
}

void Connection::send_completed(const ibv_wc& completion) noexcept {
  if (!parts_.qp) return;  // killed: everything was given up already
  send_.completed(index_of(completion.wr_id), completion.status);
  if (completion.status != IBV_WC_SUCCESS) {
    const bool flush = completion.status == IBV_WC_WR_FLUSH_ERR;
    std::string reason(explain(completion.status));
    if (completion.status == IBV_WC_RETRY_EXC_ERR) reason += link_trouble();
    fail(flush ? Code::kUnavailable : code_of(completion.status), reason, flush);
  }
  report();
  if (!released_ && (send_.waiting() || down_to_report_)) want_attention();
}

std::string Connection::link_trouble() const {
  constexpr std::uint8_t kPolling = 2;  // IBTA 14.2.5.6: there is nobody at the other end
  ibv_port_attr attr{};
  const auto port = static_cast<std::uint8_t>(shared_.config.port);
  if (shared_.api.query_port(parts_.qp->context, port, &attr) != 0) return {};
  if (attr.state != IBV_PORT_ACTIVE) {
    return fmt::format("; port {} of {} is down: bring its network interface up", port, shared_.device);
  }
  if (attr.phys_state != kPolling) return {};
  return fmt::format("; port {} of {} has no link: nobody is at the other end of its wire", port, shared_.device);
}

void Connection::receive_completed(const ibv_wc& completion) noexcept {
  if (!parts_.qp) return;
  want_attention();
  if (completion.status == IBV_WC_SUCCESS) {
    const std::uint32_t index = index_of(completion.wr_id);
    const bool taken = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM
                           ? take_notification(index, ntohl(completion.imm_data), completion.byte_len)
                           : take_message(index, completion.byte_len);
    if (!taken) {
      deaf_ = true;
      fail(Code::kDataLoss, "the peer sent something that is no message, or more credits than it has buffers", false);
    }
    return;
  }
  receive_.flushed();
  const bool flush = completion.status == IBV_WC_WR_FLUSH_ERR;
  fail(flush ? Code::kUnavailable : Code::kInternal, explain(completion.status), flush);
}

bool Connection::take_message(std::uint32_t index, std::uint32_t bytes) noexcept {
  const auto arrival = receive_.arrived(index, bytes);
  if (deaf_) return true;
  if (!arrival || !credits_.add(arrival->header.credits)) return false;
  const MessageType type = arrival->header.type;
  first_arrival();
  if (released_) return true;
  if (type == MessageType::kMessage) {
    shared_.traffic.bytes_received.add(arrival->payload.size());
    path_.events().on_message(path_, arrival->payload);
  }
  if (!released_) receive_.give_back(index, type);
  return true;
}

// It costs the peer the credit of a message, and gives the buffer back as one.
bool Connection::take_notification(std::uint32_t index, std::uint32_t value, std::uint32_t bytes) noexcept {
  if (!receive_.notified(index)) return false;
  if (deaf_) return true;
  first_arrival();
  if (released_) return true;
  shared_.traffic.bytes_received.add(bytes);
  path_.events().on_notification(path_, value);
  if (!released_) receive_.give_back(index, MessageType::kMessage);
  return true;
}

void Connection::first_arrival() noexcept {
  if (state_ != State::kConnecting) return;
  become_ready();
  path_.events().on_ready(path_);
}

void Connection::report() noexcept {
  while (!released_) {
    const auto done = send_.next_done();
    if (!done) return;
    shared_.traffic.ended.add(done->count);
    shared_.traffic.bytes_sent.add(done->sent);
    shared_.traffic.bytes_received.add(done->received);
    path_.events().on_completion(path_, {done->first, done->code, done->count});
  }
}

void Connection::advance() noexcept {
  in_attention_ = false;
  if (ready_to_report_) {
    ready_to_report_ = false;
    path_.events().on_ready(path_);
    if (released_) return;
  }
  if (alive()) {
    CreditReturn freed;
    const int error = receive_.repost(parts_.qp.get(), freed);
    if (error != 0) {
      fail(Code::kInternal, fmt::format("posting receives failed: {}", std::strerror(error)), false);
    } else {
      credits_.freed(freed);
      sent(send_.pump(false));
    }
  }
  report();
  if (released_ || !down_to_report_) return;
  down_to_report_ = false;
  path_.events().on_down(path_, down_code_, down_reason_);
}

void Connection::on_async_event(ibv_event_type type, bool device_failed) noexcept {
  if (device_failed) {
    fail(Code::kUnavailable, "the device failed (fatal asynchronous event)", false);
    kill(Code::kAborted);  // a dead device flushes nothing
    return;
  }
  switch (type) {
    case IBV_EVENT_QP_ACCESS_ERR:
      fail(Code::kProtectionError, "an operation of the peer violated the protection of our memory", false);
      return;
    case IBV_EVENT_QP_REQ_ERR:
      fail(Code::kDataLoss, "the peer sent an invalid request", false);
      return;
    case IBV_EVENT_QP_FATAL:
      fail(Code::kUnavailable, "the device reported a fatal queue pair error", false);
      return;
    default:
      return;
  }
}

}  // namespace fairlead::verbs
