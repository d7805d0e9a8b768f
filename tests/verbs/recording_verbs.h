// A VerbsApi in memory that writes down what is posted and lets a test decide how and when it completes.
//
// It keeps the rules of verbs and records each breach as a violation: a send or receive queue overfilled, a completion
// queue overrun, more inline data than granted, a request above max_msg_sz, more READs outstanding than allowed, a SEND
// that finds no receive buffer (RNR), local memory outside its registration. Tests end with no violations.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "verbs/discovery/gid_choice.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs::testing {

class RecordingVerbs;

struct RecordedSend {
  ibv_send_wr wr{};
  std::vector<ibv_sge> segments;
  std::vector<std::byte> inline_data;
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] bool signalled() const { return (wr.send_flags & IBV_SEND_SIGNALED) != 0; }
  [[nodiscard]] bool is_inline() const { return (wr.send_flags & IBV_SEND_INLINE) != 0; }
};

struct RecordedReceive {
  std::uint64_t wr_id = 0;
  ibv_sge segment{};
};

struct RecordedCq : ibv_cq {
  std::deque<ibv_wc> entries;
  bool armed = false;
};

struct RecordedQp : ibv_qp {
  ibv_qp_cap cap{};
  ibv_qp_attr attr{};                  // what modify_qp set, all transitions together
  std::vector<std::size_t> doorbells;  // length of each list given to post_send
  std::vector<RecordedSend> posted;    // everything ever posted
  std::deque<RecordedSend> sends;      // not yet executed
  std::size_t unretired = 0;           // slots of the send queue in use (until a completion was polled)
  std::deque<std::size_t> retires;     // per completion to come: how many slots it frees
  std::size_t silent = 0;              // executed without a completion since the last one
  std::deque<RecordedReceive> receives;
  std::size_t receive_doorbells = 0;
};

class RecordingVerbs {
 public:
  /// What the device claims to be. The defaults are those of the paravirtual baseline: no inline data.
  struct Features {
    std::string name = "fake0";
    std::uint32_t max_inline = 0;
    int max_qp_wr = 1024;
    int max_sge = 4;
    int max_cqe = 65536;
    int max_rd_atomic = 4;
    std::uint32_t max_msg_sz = 1U << 20;
    ibv_mtu active_mtu = IBV_MTU_1024;
    ibv_port_state state = IBV_PORT_ACTIVE;
    std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
    std::vector<GidFacts> gids;  // empty: one loopback GID at index 1
    int reg_mr_errno = 0;        // not 0: registration fails so
    bool read_only = false;      // memory is mapped read-only: local write fails with EFAULT
    bool flushes = true;         // false: what a queue pair held when it entered ERR never comes back
    bool one_key = false;        // all regions have the same remote key, as QEMU's pvrdma has it
    int post_send_errno = 0;     // not 0: posting fails so
  };

  explicit RecordingVerbs(Features features);
  RecordingVerbs() : RecordingVerbs(Features{}) {}
  ~RecordingVerbs();

  static const VerbsApi& api();
  [[nodiscard]] ibv_device* device();
  [[nodiscard]] Features& features() { return features_; }

  /// Queue pairs that exist, in order of creation.
  [[nodiscard]] std::vector<RecordedQp*> qps();
  [[nodiscard]] RecordedQp& qp(std::size_t index = 0) { return *qps().at(index); }

  /// Ends the next `count` sends without a far end.
  void succeed(RecordedQp& qp, std::size_t count = 1);
  /// Ends the next send with `status`; the queue pair goes to ERR and flushes.
  void fail(RecordedQp& qp, ibv_wc_status status);
  /// A message of these bytes arrives.
  void deliver(RecordedQp& qp, const std::vector<std::byte>& bytes);
  /// Executes the next send against the queue pair it is connected to, as the wire would. False: nothing to do.
  bool step(RecordedQp& qp);
  /// A peer's write was placed, of which no completion tells.
  void place() { ++activity_.placed; }
  /// Raises an asynchronous event.
  void raise(ibv_event_type type, ibv_qp* qp = nullptr);

  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
  [[nodiscard]] std::size_t live_regions() const { return regions_.size(); }
  /// The flags that the region of this key was registered with.
  [[nodiscard]] int access_of(std::uint64_t key) const { return access_.at(static_cast<std::uint32_t>(key)); }
  [[nodiscard]] std::vector<RecordedCq*> cqs();

 private:
  friend struct Table;
  struct Device : ibv_device {
    RecordingVerbs* owner = nullptr;
  };
  struct Context : ibv_context {
    std::unique_ptr<ibv_comp_channel> channel;
  };

  static RecordingVerbs& of(const ibv_context* context);
  void violation(std::string text) { violations_.push_back(std::move(text)); }
  void complete(RecordedQp& qp, ibv_cq* cq, ibv_wc entry);
  void send_completion(RecordedQp& qp, const RecordedSend& send, ibv_wc_status status);
  void flush(RecordedQp& qp);
  /// A write of `send` was placed: its notification takes a receive.
  void notify(RecordedQp& qp, const RecordedSend& send);
  [[nodiscard]] bool covered(std::uint64_t address, std::uint64_t length, std::uint32_t key, int access) const;
  static RecordedQp* find_qp(std::uint32_t number);

  Features features_;
  Device device_{};
  std::vector<std::string> violations_;
  std::map<std::uint32_t, std::unique_ptr<ibv_mr>> regions_;  // by key (lkey == rkey)
  std::map<std::uint32_t, int> access_;
  std::map<std::uint32_t, std::unique_ptr<RecordedQp>> qps_;  // by number
  std::vector<std::unique_ptr<RecordedCq>> cqs_;
  std::deque<ibv_async_event> async_;
  DeviceActivity activity_;
  std::vector<ibv_cq*> channel_events_;
};

}  // namespace fairlead::verbs::testing
