// Moves the blocks of a key-value store: eight threads, one prepared list, and keys that travel with the data.
//
//   move_blocks [--listen HOST:PORT]    serves 4,096 blocks of 64 KiB to one mover; says which came, and ends with it
//   move_blocks HOST:PORT               writes every block there, reads it back into other memory and compares
//
// A list of all blocks is prepared once for each direction; a thread posts a few blocks of it at a time, by number, and
// has at most kDepth such posts under way. What a post wrote is told to the server with it: key and slot of each block.
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fairlead/engine.h"

namespace {

constexpr std::size_t kBlockBytes = 64 << 10, kBlocks = 4096, kBytes = kBlocks * kBlockBytes;
constexpr std::size_t kThreads = 8, kBlocksPerPost = 16, kDepth = 4;
constexpr char kHelp[] =
    "usage: move_blocks [--transport T] [--listen HOST:PORT]   serve 4,096 blocks of 64 KiB to one mover\n"
    "       move_blocks [--transport T] HOST:PORT              write all of them there, read them back, compare\n"
    "--transport  auto, shm, tcp, verbs or verbs:DEVICE (default: auto)\n"
    "--listen     where to serve (default: 127.0.0.1:0, any free port)\n";

using Slots = std::array<std::uint32_t, kBlocksPerPost>;

// What a notification says of one block. Both ends are taken to have one byte order.
struct Arrived {
  std::uint64_t key, slot;
};

int fail(const fairlead::Status& status) {
  std::fprintf(stderr, "move_blocks: %s\n", status.to_string().c_str());
  return 1;
}

// A store has hashes of tokens here; these are made up, and so is what belongs to them.
std::uint64_t key_of(std::uint64_t block) { return (block + 1) * 0x9e3779b97f4a7c15; }
std::uint64_t word_of(std::uint64_t key, std::uint64_t word) { return (key ^ word) * 0xff51afd7ed558ccd; }

void fill(std::span<std::byte> block, std::uint64_t key) {
  for (std::size_t at = 0; at < block.size(); at += 8) {
    const std::uint64_t word = word_of(key, at);
    std::memcpy(&block[at], &word, 8);
  }
}

bool holds(std::span<const std::byte> block, std::uint64_t key) {
  for (std::size_t at = 0; at < block.size(); at += 8) {
    const std::uint64_t word = word_of(key, at);
    if (std::memcmp(&block[at], &word, 8) != 0) return false;
  }
  return true;
}

std::span<std::byte> block_of(std::span<std::byte> bytes, std::size_t block) {
  return bytes.subspan(block * kBlockBytes, kBlockBytes);
}

int serve(const fairlead::EngineConfig& config) {
  std::vector<std::byte> store(kBytes);  // before the engine, and so there for longer
  auto engine = fairlead::Engine::create(config);
  if (!engine) return fail(engine.error());
  auto memory = engine->register_memory(store);
  if (!memory) return fail(memory.error());
  if (auto status = engine->publish("blocks", *memory, fairlead::Access::kRemoteReadWrite); !status.ok()) {
    return fail(status);
  }
  std::printf("listening on %s\n", engine->listen_address().c_str());
  std::fflush(stdout);

  std::unordered_map<std::uint64_t, std::uint64_t> slot_of;  // by key
  std::size_t notifications = 0;
  for (;;) {
    auto [peer, event] = engine->next_event(std::chrono::hours(1));
    if (event.kind == fairlead::Event::Kind::kNotification) {
      ++notifications;
      for (std::size_t at = 0; at + sizeof(Arrived) <= event.data.size(); at += sizeof(Arrived)) {
        Arrived arrived{};
        std::memcpy(&arrived, &event.data[at], sizeof arrived);
        if (arrived.slot >= kBlocks || !holds(block_of(store, arrived.slot), arrived.key)) {
          return fail({fairlead::Code::kDataLoss, "slot " + std::to_string(arrived.slot) + " does not hold its key's"});
        }
        slot_of[arrived.key] = arrived.slot;
      }
    } else if (event.kind == fairlead::Event::Kind::kClosed) {
      std::printf("%zu blocks came, with %zu notifications\n", slot_of.size(), notifications);
      return event.status.ok() ? 0 : fail(event.status);
    }
  }
}

// One thread's part: every kThreads-th group of blocks, all written, then all read.
fairlead::Status move(fairlead::Peer peer, const fairlead::Prepared& write, const fairlead::Prepared& read,
                      std::size_t thread) {
  for (const bool writing : {true, false}) {
    std::deque<fairlead::Transfer> under_way;
    const auto wait_for_oldest = [&] {
      const fairlead::Status end = under_way.front().wait();
      under_way.pop_front();
      return end;
    };
    for (std::size_t first = thread * kBlocksPerPost; first < kBlocks; first += kThreads * kBlocksPerPost) {
      if (under_way.size() == kDepth) {
        if (auto end = wait_for_oldest(); !end.ok()) return end;
      }
      Slots slots{};
      std::array<Arrived, kBlocksPerPost> arrived{};
      for (std::size_t i = 0; i < kBlocksPerPost; ++i) {
        slots[i] = static_cast<std::uint32_t>(first + i);
        arrived[i] = {.key = key_of(first + i), .slot = first + i};
      }
      under_way.push_back(writing ? peer.post(write, slots, {.notify_bytes = std::as_bytes(std::span(arrived))})
                                  : peer.post(read, slots));
    }
    while (!under_way.empty()) {
      if (auto end = wait_for_oldest(); !end.ok()) return end;
    }
  }
  return {};
}

int move_all(const fairlead::EngineConfig& config, const std::string& address) {
  std::vector<std::byte> ours(kBytes), back(kBytes);
  for (std::size_t block = 0; block < kBlocks; ++block) fill(block_of(ours, block), key_of(block));
  auto engine = fairlead::Engine::create(config);
  if (!engine) return fail(engine.error());
  auto source = engine->register_memory(ours);
  if (!source) return fail(source.error());
  auto target = engine->register_memory(back);
  if (!target) return fail(target.error());
  auto peer = engine->connect(address);
  if (!peer) return fail(peer.error());
  auto blocks = peer->lookup("blocks");
  if (!blocks) return fail(blocks.error());
  if (blocks->size() != kBytes) {
    return fail({fairlead::Code::kInvalidArgument, address + " serves " + std::to_string(blocks->size()) +
                                                       " bytes of blocks, not " + std::to_string(kBytes)});
  }

  std::vector<fairlead::Descriptor> out, in;
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::size_t at = block * kBlockBytes;
    out.push_back({source->slice(at, kBlockBytes), blocks->slice(at, kBlockBytes)});
    in.push_back({target->slice(at, kBlockBytes), blocks->slice(at, kBlockBytes)});
  }
  auto write = peer->prepare_write(out);
  if (!write) return fail(write.error());
  auto read = peer->prepare_read(in);
  if (!read) return fail(read.error());

  std::array<fairlead::Status, kThreads> ends;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { ends[i] = move(*peer, *write, *read, i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const fairlead::Status& end : ends) {
    if (!end.ok()) return fail(end);
  }
  for (std::size_t block = 0; block < kBlocks; ++block) {
    if (!holds(block_of(back, block), key_of(block))) {
      return fail({fairlead::Code::kDataLoss, "block " + std::to_string(block) + " came back with other bytes"});
    }
  }
  std::printf("%zu blocks written, read back and compared over %s\n", kBlocks, peer->transport().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  fairlead::EngineConfig config;
  std::string listen = "127.0.0.1:0", address;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--help") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (words[i] == "--transport" && has_value) {
      config.transport = words[++i];
    } else if (words[i] == "--listen" && has_value) {
      listen = words[++i];
    } else if (!words[i].starts_with("-") && address.empty()) {
      address = words[i];
    } else {
      std::fprintf(stderr, "move_blocks: '%s' is not understood\n%s", words[i].c_str(), kHelp);
      return 2;
    }
  }
  if (!address.empty()) return move_all(config, address);
  config.listen = listen;
  return serve(config);
}
