// What the two ends of a command session say to each other (docs/commands.md): messages of the engine, each a header
// and what its type says. All numbers are little-endian and stand as they do in these structs.
//
// Pure values. Sizes in bytes. Everything stands at multiples of 8.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace fairlead::datapath::command {

static_assert(std::endian::native == std::endian::little, "structs cross as they are");

inline constexpr std::uint64_t kMessageValue = 0x31444d434c46;  // "FLCMD1": the value of every message of ours
inline constexpr std::uint16_t kOldestVersion = 1, kNewestVersion = 8;
/// From here on a command may fail that was said to be executed, until it is said to be complete.
inline constexpr std::uint16_t kLateVersion = 2;
/// From here on there are graphs, and ranges of addresses.
inline constexpr std::uint16_t kGraphVersion = 3;
/// From here on channels are told of, as they have priorities; and launches of graphs change.
inline constexpr std::uint16_t kChannelVersion = 4;
/// From here on a session may be gone on with by another peer.
inline constexpr std::uint16_t kResumeVersion = 5;
/// From here on a session may have several devices.
inline constexpr std::uint16_t kDevicesVersion = 6;
/// From here on a client may write payload into memory of the service's.
inline constexpr std::uint16_t kWindowVersion = 7;
/// From here on what is placed there may be more than a piece of payload, and copies out may go by it, too.
inline constexpr std::uint16_t kLargePlacedVersion = 8;

inline constexpr std::size_t kMaxInline = 1024;          // of a copy whose bytes are in the record, or in the reply
inline constexpr std::size_t kMaxPayload = 1 << 20;      // of one record's copy
inline constexpr std::size_t kMaxPlaced = 1 << 20;       // the same where its bytes are in a window
inline constexpr std::size_t kPayloadPiece = 128 << 10;  // the same as either end wishes it: nobody waits for long
inline constexpr std::size_t kMaxParameters = 4096;      // of a launch, and of a user's record
inline constexpr std::size_t kMaxName = 1024;            // of a function
inline constexpr std::size_t kMaxLayout = 256;           // parameters that are declared
inline constexpr std::size_t kMaxRecord = 8192;          // any record
inline constexpr std::size_t kMaxBatch = 65536 + kMaxRecord;  // records of one message
inline constexpr std::uint32_t kCommandsPerReply = 64;
inline constexpr std::size_t kReplyBytes = 3584;                      // data in a reply: more, and it leaves
inline constexpr std::size_t kMaxText = 1024;                         // of an error
inline constexpr std::uint64_t kMostWindow = std::uint64_t{1} << 30;  // of a session
inline constexpr std::size_t kMaxDevices = 16;                        // of a service
inline constexpr std::size_t kMaxDeviceName = 256;

enum class MessageType : std::uint8_t {
  kHello = 1,     // client: Hello
  kWelcome = 2,   // server: Welcome
  kRefused = 3,   // server: the session ends; Refused and words
  kCommands = 4,  // client: `count` records of `channel`, the first has `sequence`
  kReply = 5,     // server: ReplyBody, FailureBody with words, data
  kPayload = 6,   // client, bulk: the bytes of copy-in, or the records of graph, `sequence` of `channel`
  kResult = 7,    // server, bulk: the bytes of copy-out `sequence` of `channel`
  kWanted = 8,    // server: WantedBody, of the image of module `sequence` of `channel`
  kImage = 9,     // client, bulk: ImageBody and as many bytes of it
  kChannel = 10,  // client, before the first commands of `channel`: ChannelBody
  // Of a session that its client may go on with over another peer (resume/proof.h).
  kHeard = 11,      // client: what copy-outs up to `sequence` of `channel` gave is here
  kResume = 12,     // client, first of all: ResumeBody
  kChallenge = 13,  // server: ChallengeBody
  kProof = 14,      // client: ProofBody, `count` HeardBodies
  kResumed = 15,    // server: ProofBody, `count` KeptBodies
  // Of payload that the client writes into memory of the service's (client/client_window.h).
  kOpenWindow = 16,  // client: wishes for such
  kWindow = 17,      // server: WindowBody and the capability of it
  kPlaced = 18,      // client, bulk, notified behind a write: PlacedBody, of copy-in `sequence` of `channel`
};

struct MessageHeader {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;  // 0
  std::uint16_t channel = 0;
  std::uint32_t count = 0;
  std::uint64_t sequence = 0;
};
static_assert(sizeof(MessageHeader) == 16);

struct Hello {
  std::uint16_t oldest = kOldestVersion, newest = kNewestVersion;
  std::uint32_t payload_bytes = 0;  // the client's wish for Welcome's
};
static_assert(sizeof(Hello) == 8);

/// Behind Hello, if the client knows version 3.
struct HelloMore {
  std::uint64_t range_bytes = 0;  // of addresses that are equal at both ends; 0: none
  std::uint64_t range_wish = 0;   // where they are to begin; 0: wherever
};
static_assert(sizeof(HelloMore) == 16);

struct Welcome {
  std::uint16_t version = 0;
  std::uint16_t channels = 0;
  std::uint32_t credits = 0;
  std::uint64_t payload_credit = 0;
  std::uint64_t memory_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t block_threads = 0;
  std::uint32_t shared_bytes = 0;
  std::uint32_t grid[3] = {};
  std::uint32_t modules = 0;
};
static_assert(sizeof(Welcome) == 56);

/// Behind Welcome, from version 3 on.
struct WelcomeMore {
  std::uint32_t graph_records = 0;    // of all the session's graphs; 0: the device takes none
  std::uint32_t range_alignment = 0;  // of what is placed in the range
  std::uint64_t graph_bytes = 0;      // the same
  std::uint64_t range_base = 0, range_bytes = 0;
};
static_assert(sizeof(WelcomeMore) == 32);

/// Behind WelcomeMore, from version 4 on.
struct WelcomeLast {
  std::int32_t least_priority = 0, greatest_priority = 0;  // of channels: the greatest has the smallest number
};
static_assert(sizeof(WelcomeLast) == 8);

using Nonce = std::array<std::byte, 32>;
using SessionId = std::array<std::byte, 16>;
using SessionSecret = std::array<std::byte, 32>;

/// Behind HelloMore, if the client knows version 5.
struct HelloLast {
  std::uint32_t keep = 0;  // 1: the session is to be kept while its client is away
  std::uint32_t reserved = 0;
};
static_assert(sizeof(HelloLast) == 8);

/// Behind HelloLast, if the client knows version 6.
struct HelloDevices {
  std::uint64_t wish = 0;  // bit n: device n of the service; kAnyDevice, or kAllDevices
};
static_assert(sizeof(HelloDevices) == 8);
inline constexpr std::uint64_t kAnyDevice = 0;                   // the first that the client may use
inline constexpr std::uint64_t kAllDevices = ~std::uint64_t{0};  // that it may use
/// From the range of one of the session's devices to the next one's, so that what is wished for is known for each.
[[nodiscard]] constexpr std::uint64_t range_step(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kMultiple = std::uint64_t{32} << 20;
  return (bytes + kMultiple - 1) / kMultiple * kMultiple;
}

/// Behind WelcomeLast, if the session is kept so; from version 6 on in any case.
struct WelcomeKept {
  SessionId id{};
  SessionSecret secret{};
  std::uint64_t keep_ms = 0;      // for so long; 0: it is not
  std::uint64_t heard_bytes = 0;  // kHeard is due when so much has come: each result counts kResultCost and its bytes
};
static_assert(sizeof(WelcomeKept) == 64);
inline constexpr std::uint64_t kResultCost = 64;

/// Behind WelcomeKept, from version 6 on: how many of WelcomeDevice follow. What stands before is of the first.
struct WelcomeDevices {
  std::uint64_t count = 0;
};
struct WelcomeDevice {       // the name follows
  std::uint32_t number = 0;  // at the service
  std::uint32_t name_bytes = 0;
  std::uint64_t memory_bytes = 0;
  std::uint32_t block_threads = 0, shared_bytes = 0;
  std::uint32_t grid[3] = {};
  std::uint32_t modules = 0;
  std::uint32_t graph_records = 0, range_alignment = 0;
  std::uint64_t graph_bytes = 0;
  std::uint64_t range_base = 0, range_bytes = 0;
  std::int32_t least_priority = 0, greatest_priority = 0;
};
static_assert(sizeof(WelcomeDevice) == 80);

struct ResumeBody {
  SessionId id{};
  Nonce nonce{};  // the client's
};
static_assert(sizeof(ResumeBody) == 48);

struct ChallengeBody {
  Nonce nonce{};  // the server's
};
static_assert(sizeof(ChallengeBody) == 32);

struct ProofBody {
  std::array<std::byte, 32> digest{};
};
static_assert(sizeof(ProofBody) == 32);

/// What the client has of a channel.
struct HeardBody {
  std::uint64_t channel = 0;
  std::uint64_t heard = 0;   // what copy-outs up to that one gave
  std::uint64_t failed = 0;  // the sequence and scope of the last failure that it was told of; 0: none
  std::uint64_t scope = 0;
};
static_assert(sizeof(HeardBody) == 32);

/// What the server has of a channel.
struct KeptBody {
  std::uint64_t channel = 0;
  std::uint64_t accepted = 0;  // commands
  std::uint64_t payload = 0;   // up to that command's
};
static_assert(sizeof(KeptBody) == 24);

/// What a channel is that is not as others: without this its priority is 0, and its device the session's first.
struct ChannelBody {
  std::int32_t priority = 0;
  std::uint32_t device = 0;  // of the session's; 0 before version 6
};
static_assert(sizeof(ChannelBody) == 8);

struct WindowBody {
  std::uint64_t bytes = 0;  // 0: there is none
  std::uint64_t capability_bytes = 0;
};
static_assert(sizeof(WindowBody) == 16);

struct PlacedBody {  // in the window
  std::uint64_t offset = 0, bytes = 0;
};
static_assert(sizeof(PlacedBody) == 16);
[[nodiscard]] constexpr bool lies_within(const PlacedBody& placed, std::uint64_t window) noexcept {
  return placed.offset <= window && placed.bytes <= window - placed.offset;
}

struct Refused {
  std::uint16_t code = 0;  // Code
  std::uint16_t text_bytes = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Refused) == 8);

/// Behind a header whose `sequence` is the last executed command and whose `count` the number of data items.
struct ReplyBody {
  std::uint64_t accepted = 0;
  std::uint64_t complete = 0;
  std::uint64_t failed = 0;  // 1: FailureBody and its words come next
};
static_assert(sizeof(ReplyBody) == 24);

struct FailureBody {
  std::uint64_t sequence = 0;
  std::int32_t result = 0;
  std::uint16_t scope = 0;
  std::uint16_t text_bytes = 0;
};
static_assert(sizeof(FailureBody) == 16);

struct DataItem {
  std::uint64_t sequence = 0;  // of the copy-out
  std::uint64_t bytes = 0;
};
static_assert(sizeof(DataItem) == 16);

struct WantedBody {
  std::uint64_t offset = 0, bytes = 0;
};
static_assert(sizeof(WantedBody) == 16);

struct ImageBody {
  std::uint64_t offset = 0;
};
static_assert(sizeof(ImageBody) == 8);

// ---- records

enum class Opcode : std::uint16_t {
  kAllocate = 1,
  kRelease = 2,
  kFill = 3,
  kCopyIn = 4,
  kCopyOut = 5,
  kCopyWithin = 6,
  kLoad = 7,
  kLaunch = 8,
  kMark = 9,
  kFence = 10,
  kRecover = 11,
  kModule = 12,
  kLoadFrom = 13,
  kGraph = 14,
  kLaunchGraph = 15,
  kReleaseGraph = 16,
  kAllocateAt = 17,
  kUpdateGraph = 18,
  kCopyAcross = 19,
};
inline constexpr std::uint16_t kFirstUserOpcode = 0x8000;

inline constexpr std::uint16_t kMustKnow = 1;  // flag: who does not know the opcode refuses it
inline constexpr std::uint16_t kInline = 2;    // flag of a copy-in and of a graph: its bytes follow its body
inline constexpr std::uint16_t kPlaced = 4;    // flag of a copy-out: its client reads the bytes from the window

struct RecordHeader {
  std::uint16_t opcode = 0;
  std::uint16_t flags = 0;
  std::uint32_t length = 0;  // of header and body: a multiple of 8
};
static_assert(sizeof(RecordHeader) == 8);

struct AllocateBody {
  std::uint64_t handle = 0, bytes = 0;
};
struct ReleaseBody {
  std::uint64_t handle = 0;
};
struct FillBody {
  std::uint64_t handle = 0, offset = 0, bytes = 0, value = 0;
};
struct CopyBody {  // in and out
  std::uint64_t handle = 0, offset = 0, bytes = 0;
};
struct CopyToWindowBody {  // out
  CopyBody copy;
  std::uint64_t at = 0;  // in the window
};
static_assert(sizeof(CopyToWindowBody) == 32);
struct CopyWithinBody {
  std::uint64_t to = 0, to_offset = 0, from = 0, from_offset = 0, bytes = 0;
};
struct CopyAcrossBody {  // from another device of the session's
  std::uint64_t to = 0, to_offset = 0, from = 0, from_offset = 0, bytes = 0, from_device = 0;
};
struct LoadBody {  // the name follows
  std::uint64_t handle = 0, name_bytes = 0;
};
struct LaunchBody {  // the parameters follow
  std::uint64_t function = 0;
  std::uint32_t grid[3] = {}, block[3] = {};
  std::uint32_t shared_bytes = 0, parameter_bytes = 0;
};
static_assert(sizeof(LaunchBody) == 40);
struct FenceBody {
  std::uint64_t channel = 0, sequence = 0;
};
struct RecoverBody {
  std::uint64_t sequence = 0;  // of the failure
};
struct ModuleBody {
  std::uint64_t handle = 0, bytes = 0;
  std::array<std::byte, 32> sha256{};  // of the image
};
static_assert(sizeof(ModuleBody) == 48);
struct LoadFromBody {  // ParameterItems and the name follow
  std::uint64_t function = 0, module = 0;
  std::uint32_t parameters = 0, name_bytes = 0;
};
static_assert(sizeof(LoadFromBody) == 24);
struct ParameterItem {
  std::uint32_t bytes = 0;
  std::uint16_t alignment = 0;
  std::uint16_t kind = 0;  // kPointerItem, or a value
};
inline constexpr std::uint16_t kPointerItem = 1;
static_assert(sizeof(ParameterItem) == 8);
struct GraphBody {  // `bytes` of records, without padding between them
  std::uint64_t handle = 0, bytes = 0, records = 0;
};
static_assert(sizeof(GraphBody) == 24);
struct GraphHandleBody {  // launch, and release
  std::uint64_t handle = 0;
};
struct UpdateGraphBody {  // the parameters follow
  std::uint64_t graph = 0;
  std::uint32_t number = 0, parameter_bytes = 0;
  std::uint32_t grid[3] = {}, block[3] = {};
  std::uint32_t shared_bytes = 0, reserved = 0;
};
static_assert(sizeof(UpdateGraphBody) == 48);
struct AllocateAtBody {
  std::uint64_t handle = 0, address = 0, bytes = 0;
};
static_assert(sizeof(AllocateAtBody) == 24);
struct UserBody {  // the bytes follow
  std::uint64_t bytes = 0;
};

[[nodiscard]] constexpr std::size_t padded(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

}  // namespace fairlead::datapath::command
