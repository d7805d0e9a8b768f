// One list of fields per message, for reading and writing alike.
#include "datapath/protocol/frames.h"

#include <concepts>
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace fairlead::datapath::control {
namespace {

// ---- the description: `field(number, value)` for each

template <typename T, typename Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

void fields(Is<TransportOffer> auto& m, auto&& field) {
  field(1, m.name), field(2, m.kind), field(3, m.software), field(4, m.describe), field(5, m.addresses);
}
void fields(Is<Hello> auto& m, auto&& field) {
  field(1, m.version_min), field(2, m.version_max), field(3, m.engine_name), field(4, m.session_id);
  field(5, m.transports), field(6, m.max_message_bytes), field(7, m.event_window), field(8, m.event_window_bytes);
  field(9, m.principal), field(10, m.nonce), field(11, m.proof), field(12, m.resume);
  field(13, m.engine);
}
void fields(Is<Refused> auto& m, auto&& field) { field(1, m.code), field(2, m.reason), field(3, m.engine); }
void fields(Is<Key> auto& m, auto&& field) { field(1, m.address), field(2, m.key); }
void fields(Is<PathOffer> auto& m, auto&& field) {
  field(1, m.epoch), field(2, m.active_transport), field(3, m.passive_transport), field(4, m.description);
  field(5, m.probe), field(6, m.flow), field(7, m.rail), field(8, m.probe_bytes);
}
void fields(Is<PathAnswer> auto& m, auto&& field) {
  field(1, m.epoch), field(2, m.description), field(3, m.probe), field(4, m.flow), field(5, m.rail);
  field(6, m.probe_bytes);
}
void fields(Is<PathReady> auto& m, auto&& field) {
  field(1, m.epoch), field(2, m.one_sided), field(3, m.flow), field(4, m.rail);
}
void fields(Is<PathDown> auto& m, auto&& field) {
  field(1, m.epoch), field(2, m.code), field(3, m.reason), field(4, m.stalled), field(5, m.flow), field(6, m.rail);
}
void fields(Is<Fence> auto& m, auto&& field) {
  field(1, m.epoch), field(2, m.received), field(3, m.flow), field(4, m.rail);
}
void fields(Is<FenceAck> auto& m, auto&& field) {
  field(1, m.epoch), field(2, m.received), field(3, m.flow), field(4, m.rail);
}
void fields(Is<Tensor> auto& m, auto&& field) {
  field(1, m.dtype), field(2, m.shape), field(3, m.strides), field(4, m.offset);
}
void fields(Is<Region> auto& m, auto&& field) {
  field(1, m.name), field(2, m.id), field(3, m.size), field(4, m.access), field(5, m.tensor), field(6, m.keys);
  field(7, m.atomics);
}
void fields(Is<Lookup> auto& m, auto&& field) {
  field(1, m.request), field(2, m.name), field(3, m.prefix), field(4, m.after), field(5, m.capability);
}
void fields(Is<Regions> auto& m, auto&& field) {
  field(1, m.request), field(2, m.code), field(3, m.reason), field(4, m.regions), field(5, m.more);
}
void fields(Is<Ping> auto& m, auto&& field) { field(1, m.nonce), field(2, m.reply); }
void fields(Is<Goodbye> auto& m, auto&& field) { field(1, m.code), field(2, m.reason); }
void fields(Is<Withdrawn> auto& m, auto&& field) { field(1, m.id); }
void fields(Is<Challenge> auto& m, auto&& field) { field(1, m.nonce); }
void fields(Is<Proof> auto& m, auto&& field) { field(1, m.digest); }
void fields(Is<PathWanted> auto& m, auto&& field) { field(1, m.flow); }
void fields(Is<Resume> auto& m, auto&& field) {
  field(1, m.session_id), field(2, m.attempt), field(3, m.heard), field(4, m.nonce);
}
void fields(Is<Resumed> auto& m, auto&& field) { field(1, m.heard), field(2, m.proof); }
void fields(Is<Heard> auto& m, auto&& field) { field(1, m.count); }

using protozero::pbf_reader;
using protozero::pbf_tag_type;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

// ---- reading. What is no frame throws, here and in protozero; parse() catches.

/// As proto3 has it: of a field that comes twice the last counts, messages merge, and a field whose wire type is not
/// the description's is one that we do not know.
class Reader {
 public:
  template <typename Message>
  void read(pbf_reader from, Message& message) {
    while (from.next()) {
      bool known = false;
      fields(message, [&](pbf_tag_type number, auto& value) {
        if (!known && from.tag() == number) known = take(from, value);
      });
      if (!known) from.skip();
    }
  }

 private:
  bool take(pbf_reader& from, std::unsigned_integral auto& value) {
    if (from.wire_type() != pbf_wire_type::varint) return false;
    const std::uint64_t read = from.get_uint64();
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (std::same_as<Value, bool>) {
      value = read != 0;
    } else {
      value = static_cast<Value>(read);
    }
    return true;
  }
  bool take(pbf_reader& from, std::string& value) {
    if (from.wire_type() != pbf_wire_type::length_delimited) return false;
    value = from.get_bytes();
    return true;
  }
  bool take(pbf_reader& from, std::vector<std::int64_t>& values) {
    if (from.wire_type() == pbf_wire_type::varint) {
      count();
      values.push_back(from.get_int64());
    } else if (from.wire_type() == pbf_wire_type::length_delimited) {
      const auto range = from.get_packed_int64();
      for (auto at = range.begin(); at != range.end(); ++at) {
        count();
        values.push_back(*at);
      }
    } else {
      return false;
    }
    return true;
  }
  bool take(pbf_reader& from, std::vector<std::string>& values) {
    if (from.wire_type() != pbf_wire_type::length_delimited) return false;
    count();
    values.push_back(from.get_bytes());
    return true;
  }
  template <typename Message>
  bool take(pbf_reader& from, std::vector<Message>& messages) {
    if (from.wire_type() != pbf_wire_type::length_delimited) return false;
    count();
    read(from.get_message(), messages.emplace_back());
    return true;
  }
  template <typename Message>
  bool take(pbf_reader& from, std::optional<Message>& message) {
    if (from.wire_type() != pbf_wire_type::length_delimited) return false;
    if (!message) message.emplace();
    read(from.get_message(), *message);
    return true;
  }
  void count() {
    if (++repeated_ > kMaxRepeated) throw std::length_error("a frame of too many parts");
  }

  std::size_t repeated_ = 0;
};

/// `number`: of the body, and its place among the alternatives.
template <std::size_t number = 1>
void read_body(Reader& reader, pbf_reader& from, Frame& frame) {
  if constexpr (number == std::variant_size_v<Frame>) {
    from.skip();
  } else {
    if (from.tag() != number) return read_body<number + 1>(reader, from, frame);
    if (from.wire_type() != pbf_wire_type::length_delimited) return from.skip();
    if (frame.index() != number) frame.emplace<number>();
    reader.read(from.get_message(), std::get<number>(frame));
  }
}

// ---- writing: what has its default value is left out.

class Writer {
 public:
  explicit Writer(std::string& bytes) : bytes_(bytes) {}

  template <typename Message>
  void write(pbf_writer& to, pbf_tag_type number, const Message& message) {
    const std::size_t before = bytes_.size();
    {
      pbf_writer inner(to, number);
      fields(message, [&](pbf_tag_type field, const auto& value) { put(inner, field, value); });
    }
    if (bytes_.size() == before) to.add_message(number, "", 0);  // protozero takes back one that has nothing in it
  }

 private:
  void put(pbf_writer& to, pbf_tag_type number, const std::unsigned_integral auto& value) {
    if (value != 0) to.add_uint64(number, value);
  }
  void put(pbf_writer& to, pbf_tag_type number, const std::string& value) {
    if (!value.empty()) to.add_bytes(number, value);
  }
  void put(pbf_writer& to, pbf_tag_type number, const std::vector<std::int64_t>& values) {
    to.add_packed_int64(number, values.begin(), values.end());  // nothing, if there are none
  }
  void put(pbf_writer& to, pbf_tag_type number, const std::vector<std::string>& values) {
    for (const std::string& value : values) to.add_bytes(number, value);
  }
  template <typename Message>
  void put(pbf_writer& to, pbf_tag_type number, const std::vector<Message>& messages) {
    for (const Message& message : messages) write(to, number, message);
  }
  template <typename Message>
  void put(pbf_writer& to, pbf_tag_type number, const std::optional<Message>& message) {
    if (message) write(to, number, *message);
  }

  std::string& bytes_;
};

}  // namespace

std::optional<Frame> parse(std::string_view bytes) {
  Frame frame;
  try {
    Reader reader;
    pbf_reader from(bytes.data(), bytes.size());
    while (from.next()) read_body(reader, from, frame);
  } catch (const protozero::exception&) {
    return std::nullopt;
  } catch (const std::length_error&) {
    return std::nullopt;
  }
  return frame;
}

void append_to(std::string& bytes, const Frame& frame) {
  pbf_writer to(bytes);
  Writer writer(bytes);
  std::visit(
      [&]<typename Body>(const Body& body) {
        if constexpr (!std::same_as<Body, std::monostate>) {
          writer.write(to, static_cast<pbf_tag_type>(frame.index()), body);
        }
      },
      frame);
}

std::size_t size_limit(const Region& region) noexcept {
  constexpr std::size_t kNumber = 11;  // a tag below 16, and a varint
  std::size_t size = 7 * kNumber + region.name.size() + region.keys.size() * (kNumber * 3);
  if (region.tensor) size += 4 * kNumber + (region.tensor->shape.size() + region.tensor->strides.size()) * kNumber;
  return size;
}

}  // namespace fairlead::datapath::control
