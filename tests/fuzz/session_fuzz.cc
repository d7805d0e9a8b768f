// A live session with a peer that lies: two ends meet truly; then the input says what is slipped into what one of them
// hears (control frames, messages of the path, notifications), what it posts meanwhile, when the control connection
// breaks, and how time goes on. The session may end, with words; nothing else may.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "datapath/protocol/frames.h"
#include "datapath/protocol/path_messages.h"
#include "fairlead/log.h"
#include "tests/fuzz/input.h"
#include "two_ends.h"

namespace {

using namespace fairlead;
using datapath::PathMessage;
using fuzz::Input;
namespace control = datapath::control;

control::Frame frame_of(Input& input) {
  const auto number = [&] { return input.number(); };
  const auto small = [&] { return static_cast<std::uint32_t>(input.number()); };
  const auto yes = [&] { return input.byte() % 2 != 0; };
  const auto flow = [&] { return static_cast<std::uint32_t>(input.byte() % 3); };
  switch (input.byte() % 20) {
    case 0:
      return control::PathOffer{number(), small(), small(), input.text(), control::Key{0, number()}, flow()};
    case 1:
      return control::PathAnswer{number(), input.text(), control::Key{0, number()}, flow()};
    case 2:
      return control::PathReady{number(), false, flow()};
    case 3:
      return control::PathDown{number(), small(), input.text(), small() % 2 == 1, flow()};
    case 4:
      return control::Fence{number(), number(), flow()};
    case 5:
      return control::FenceAck{number(), number(), flow()};
    case 6:
      return control::Lookup{number(), input.text(), yes(), {}, input.text()};
    case 7: {
      control::Regions regions;
      regions.request = number();
      regions.more = yes();
      regions.regions.resize(input.byte() % 4);
      for (control::Region& region : regions.regions) {
        region.name = input.text();
        region.id = number();
        region.size = number();
        region.atomics = input.byte() % 3;
        region.keys.resize(input.byte() % 4);
        for (control::Key& key : region.keys) key.key = number();
      }
      return regions;
    }
    case 8:
      return control::Ping{number(), yes()};
    case 9:
      return control::Goodbye{small(), {}};
    case 10: {
      control::Hello hello;
      hello.session_id = number();
      return hello;
    }
    case 11:
      return control::Refused{small(), {}};
    case 12:
      return control::Withdrawn{number()};
    case 13:
      return control::Challenge{input.text()};
    case 14:
      return control::Proof{input.text()};
    case 15:
      return control::PathWanted{flow()};
    case 16:
      return control::Resume{number(), number(), number(), input.text()};
    case 17:
      return control::Resumed{number(), input.text()};
    case 18:
      return control::Heard{number()};
    default:
      return control::parse(input.text()).value_or(control::Frame());
  }
}

std::string message_of(Input& input) {
  PathMessage message;
  message.type = static_cast<datapath::MessageType>(input.byte() % 12);
  message.code = static_cast<Code>(input.byte() % 20);
  message.length = static_cast<std::uint32_t>(input.number());
  message.sequence = input.number();
  message.value = input.number();
  message.offset = input.number();
  message.total = input.number();
  datapath::PathHeader header;
  encode(message, header);
  return std::string(reinterpret_cast<const char*>(header), sizeof(header)) + input.text();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace simulation;
  set_log_level(LogLevel::kOff);
  Input input(data, size);
  const std::uint8_t kind = input.byte();
  const int victim = kind & 1;
  Habits habits;
  habits.can.one_sided = (kind & 2) == 0;
  habits.can.write_notifies = (kind & 4) != 0;
  habits.refusal_ends_path = (kind & 8) != 0;
  habits.can.max_message = 200;
  habits.can.max_segments = 2;
  habits.can.max_outstanding = 8;
  EngineConfig config;
  config.chunk_bytes = 500;
  config.max_message_bytes = 2000;
  config.max_pending_events = 8;
  TwoEnds ends(1 + kind / 16, std::vector<Habits>(1 + kind / 64, habits), config);
  if (!ends.meet()) std::abort();
  int actions = 0;
  while (!input.empty() && ++actions < 200 && !ends.session[victim]->finished()) {
    switch (input.byte() % 8) {
      case 0:
      case 1:
        ends.slip_frame(victim, frame_of(input));
        break;
      case 2:
      case 3: {
        const std::string bytes = message_of(input);
        ends.slip_message(victim, std::as_bytes(std::span(bytes)));
        break;
      }
      case 4:
        ends.slip_notification(victim, static_cast<std::uint32_t>(input.number()));
        break;
      case 5:
        ends.write(victim, input.byte(), input.number() % 5000, input.byte() % 2 != 0);
        break;
      case 6:
        input.byte() % 2 != 0 ? ends.read(victim, input.byte(), input.number() % 5000)
                              : ends.send(victim, input.number() % 3000);
        break;
      default:
        const std::uint8_t rounds = input.byte();
        if (rounds >= 248) {
          ends.line.cut();
          for (int end : {0, 1}) {
            if ((rounds & 1 << end) != 0) ends.line.reset(end);
          }
        } else {
          ends.run([left = rounds]() mutable { return left-- == 0; });
        }
    }
  }
  if (!ends.end()) std::abort();
  return 0;
}
