// Frames beside what protoc's code makes of the same description.
#include "datapath/protocol/frames.h"

#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "control.pb.h"
#include "tests/datapath/frame_oracle.h"

namespace fairlead::datapath {
namespace {

namespace oracle = fairlead::control;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string written(const control::Frame& frame) {
  std::string bytes;
  control::append_to(bytes, frame);
  return bytes;
}

/// What we read of what protoc's code wrote.
template <typename Body>
Body read(const oracle::Frame& frame) {
  const auto parsed = control::parse(frame.SerializeAsString());
  EXPECT_TRUE(parsed && std::holds_alternative<Body>(*parsed)) << frame.ShortDebugString();
  return parsed && std::holds_alternative<Body>(*parsed) ? std::get<Body>(*parsed) : Body();
}

TEST(Frames, EveryFieldIsWhereItsNameIs) {
  oracle::Frame frame;
  oracle::Hello& hello = *frame.mutable_hello();
  hello.set_version_min(1);
  hello.set_version_max(2);
  hello.set_engine_name("name");
  hello.set_session_id(3);
  hello.set_max_message_bytes(UINT64_MAX);
  hello.set_event_window(UINT32_MAX);
  hello.set_event_window_bytes(UINT64_MAX - 1);
  hello.set_principal("who");
  hello.set_nonce("once");
  hello.set_proof("shown");
  hello.set_resume("secret");
  oracle::TransportOffer& transport = *hello.add_transports();
  transport.set_name("verbs:x");
  transport.set_kind("verbs");
  transport.set_software(true);
  transport.set_describe("text");
  hello.add_transports();
  const auto h = read<control::Hello>(frame);
  EXPECT_EQ(h.version_min, 1U);
  EXPECT_EQ(h.version_max, 2U);
  EXPECT_EQ(h.engine_name, "name");
  EXPECT_EQ(h.session_id, 3U);
  EXPECT_EQ(h.max_message_bytes, UINT64_MAX);
  EXPECT_EQ(h.event_window, UINT32_MAX);
  EXPECT_EQ(h.event_window_bytes, UINT64_MAX - 1);
  EXPECT_EQ(h.principal, "who");
  EXPECT_EQ(h.nonce, "once");
  EXPECT_EQ(h.proof, "shown");
  EXPECT_EQ(h.resume, "secret");
  ASSERT_EQ(h.transports.size(), 2U);
  EXPECT_EQ(h.transports[0].name, "verbs:x");
  EXPECT_EQ(h.transports[0].kind, "verbs");
  EXPECT_TRUE(h.transports[0].software);
  EXPECT_EQ(h.transports[0].describe, "text");
  EXPECT_FALSE(h.transports[1].software);

  frame.mutable_refused()->set_code(14);
  frame.mutable_refused()->set_reason("version");
  EXPECT_EQ(read<control::Refused>(frame).code, 14U);
  EXPECT_EQ(read<control::Refused>(frame).reason, "version");

  oracle::PathOffer& offer = *frame.mutable_path_offer();
  offer.set_epoch(1);
  offer.set_active_transport(2);
  offer.set_passive_transport(3);
  offer.set_description(std::string("\0\xff", 2));
  EXPECT_FALSE(read<control::PathOffer>(frame).probe);
  offer.mutable_probe()->set_address(4);
  offer.mutable_probe()->set_key(5);
  offer.set_flow(6);
  const auto o = read<control::PathOffer>(frame);
  EXPECT_EQ(o.epoch, 1U);
  EXPECT_EQ(o.active_transport, 2U);
  EXPECT_EQ(o.passive_transport, 3U);
  EXPECT_EQ(o.description, std::string("\0\xff", 2));
  ASSERT_TRUE(o.probe);
  EXPECT_EQ(o.probe->address, 4U);
  EXPECT_EQ(o.probe->key, 5U);
  EXPECT_EQ(o.flow, 6U);

  oracle::PathAnswer& answer = *frame.mutable_path_answer();
  answer.set_epoch(1);
  answer.set_description("d");
  answer.mutable_probe()->set_key(2);
  answer.set_flow(3);
  const auto a = read<control::PathAnswer>(frame);
  EXPECT_EQ(a.epoch, 1U);
  EXPECT_EQ(a.description, "d");
  EXPECT_EQ(a.probe.value_or(control::Key()).key, 2U);
  EXPECT_EQ(a.flow, 3U);

  frame.mutable_path_ready()->set_epoch(1);
  frame.mutable_path_ready()->set_one_sided(true);
  frame.mutable_path_ready()->set_flow(2);
  EXPECT_EQ(read<control::PathReady>(frame).epoch, 1U);
  EXPECT_TRUE(read<control::PathReady>(frame).one_sided);
  EXPECT_EQ(read<control::PathReady>(frame).flow, 2U);

  frame.mutable_path_down()->set_epoch(1);
  frame.mutable_path_down()->set_code(2);
  frame.mutable_path_down()->set_reason("r");
  frame.mutable_path_down()->set_stalled(true);
  frame.mutable_path_down()->set_flow(3);
  EXPECT_EQ(read<control::PathDown>(frame).epoch, 1U);
  EXPECT_EQ(read<control::PathDown>(frame).code, 2U);
  EXPECT_EQ(read<control::PathDown>(frame).reason, "r");
  EXPECT_TRUE(read<control::PathDown>(frame).stalled);
  EXPECT_EQ(read<control::PathDown>(frame).flow, 3U);

  frame.mutable_fence()->set_epoch(1);
  frame.mutable_fence()->set_received(2);
  frame.mutable_fence()->set_flow(3);
  EXPECT_EQ(read<control::Fence>(frame).epoch, 1U);
  EXPECT_EQ(read<control::Fence>(frame).received, 2U);
  EXPECT_EQ(read<control::Fence>(frame).flow, 3U);
  frame.mutable_fence_ack()->set_epoch(1);
  frame.mutable_fence_ack()->set_received(2);
  frame.mutable_fence_ack()->set_flow(3);
  EXPECT_EQ(read<control::FenceAck>(frame).epoch, 1U);
  EXPECT_EQ(read<control::FenceAck>(frame).received, 2U);
  EXPECT_EQ(read<control::FenceAck>(frame).flow, 3U);

  frame.mutable_path_wanted()->set_flow(1);
  EXPECT_EQ(read<control::PathWanted>(frame).flow, 1U);

  frame.mutable_lookup()->set_request(1);
  frame.mutable_lookup()->set_name("n");
  frame.mutable_lookup()->set_prefix(true);
  frame.mutable_lookup()->set_after("m");
  EXPECT_EQ(read<control::Lookup>(frame).request, 1U);
  EXPECT_EQ(read<control::Lookup>(frame).name, "n");
  EXPECT_TRUE(read<control::Lookup>(frame).prefix);
  EXPECT_EQ(read<control::Lookup>(frame).after, "m");

  oracle::Regions& regions = *frame.mutable_regions();
  regions.set_request(1);
  regions.set_code(2);
  regions.set_reason("r");
  regions.set_more(true);
  oracle::Region& region = *regions.add_regions();
  region.set_name("kv/0");
  region.set_id(3);
  region.set_size(4);
  region.set_access(5);
  region.mutable_tensor()->set_dtype(6);
  region.mutable_tensor()->add_shape(7);
  region.mutable_tensor()->add_shape(INT64_MIN);
  region.mutable_tensor()->add_strides(-1);
  region.mutable_tensor()->set_offset(8);
  region.add_keys();  // not registered there: its place counts
  region.add_keys()->set_address(9);
  region.mutable_keys(1)->set_key(10);
  region.set_atomics(11);
  regions.add_regions();
  const auto r = read<control::Regions>(frame);
  EXPECT_EQ(r.request, 1U);
  EXPECT_EQ(r.code, 2U);
  EXPECT_EQ(r.reason, "r");
  EXPECT_TRUE(r.more);
  ASSERT_EQ(r.regions.size(), 2U);
  EXPECT_EQ(r.regions[0].name, "kv/0");
  EXPECT_EQ(r.regions[0].id, 3U);
  EXPECT_EQ(r.regions[0].size, 4U);
  EXPECT_EQ(r.regions[0].access, 5U);
  ASSERT_TRUE(r.regions[0].tensor);
  EXPECT_EQ(r.regions[0].tensor->dtype, 6U);
  EXPECT_EQ(r.regions[0].tensor->shape, (std::vector<std::int64_t>{7, INT64_MIN}));
  EXPECT_EQ(r.regions[0].tensor->strides, (std::vector<std::int64_t>{-1}));
  EXPECT_EQ(r.regions[0].tensor->offset, 8U);
  ASSERT_EQ(r.regions[0].keys.size(), 2U);
  EXPECT_EQ(r.regions[0].keys[0].key, 0U);
  EXPECT_EQ(r.regions[0].keys[1].address, 9U);
  EXPECT_EQ(r.regions[0].keys[1].key, 10U);
  EXPECT_EQ(r.regions[0].atomics, 11U);
  EXPECT_FALSE(r.regions[1].tensor);

  frame.mutable_ping()->set_nonce(1);
  frame.mutable_ping()->set_reply(true);
  EXPECT_EQ(read<control::Ping>(frame).nonce, 1U);
  EXPECT_TRUE(read<control::Ping>(frame).reply);
  frame.mutable_goodbye()->set_code(9);
  frame.mutable_goodbye()->set_reason("bye");
  EXPECT_EQ(read<control::Goodbye>(frame).code, 9U);
  EXPECT_EQ(read<control::Goodbye>(frame).reason, "bye");
  EXPECT_EQ(frame.body_case(), oracle::Frame::kGoodbye);
  frame.mutable_withdrawn()->set_id(11);
  EXPECT_EQ(read<control::Withdrawn>(frame).id, 11U);
  frame.mutable_challenge()->set_nonce("first");
  EXPECT_EQ(read<control::Challenge>(frame).nonce, "first");
  frame.mutable_proof()->set_digest("second");
  EXPECT_EQ(read<control::Proof>(frame).digest, "second");
  frame.mutable_resume()->set_session_id(12);
  frame.mutable_resume()->set_attempt(13);
  frame.mutable_resume()->set_heard(14);
  frame.mutable_resume()->set_nonce("again");
  EXPECT_EQ(read<control::Resume>(frame).session_id, 12U);
  EXPECT_EQ(read<control::Resume>(frame).attempt, 13U);
  EXPECT_EQ(read<control::Resume>(frame).heard, 14U);
  EXPECT_EQ(read<control::Resume>(frame).nonce, "again");
  frame.mutable_resumed()->set_heard(15);
  frame.mutable_resumed()->set_proof("too");
  EXPECT_EQ(read<control::Resumed>(frame).heard, 15U);
  EXPECT_EQ(read<control::Resumed>(frame).proof, "too");
  frame.mutable_heard()->set_count(16);
  EXPECT_EQ(read<control::Heard>(frame).count, 16U);
  EXPECT_EQ(control::parse("")->index(), 0U);
}

class RandomFrames : public testing::Test {
 protected:
  std::uint64_t below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random);
  }
  /// Of any length as a varint, often 0.
  std::uint64_t number() { return below(4) == 0 ? 0 : random() >> below(64); }

  void fill(Message& message) {
    const auto* type = message.GetDescriptor();
    const auto* reflection = message.GetReflection();
    for (int f = 0; f < type->field_count(); ++f) {
      const FieldDescriptor* field = type->field(f);
      if (field->real_containing_oneof() != nullptr) continue;
      const std::uint64_t times = field->is_repeated() ? below(4) : below(3) != 0 ? 1 : 0;
      for (std::uint64_t i = 0; i < times; ++i) fill(message, *reflection, field);
    }
    if (type->real_oneof_decl_count() == 0) return;
    const auto* one_of = type->oneof_decl(0);
    fill(message, *reflection,
         one_of->field(static_cast<int>(below(static_cast<std::uint64_t>(one_of->field_count())))));
  }

  std::mt19937_64 random{7};

 private:
  void fill(Message& message, const google::protobuf::Reflection& reflection, const FieldDescriptor* field) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return fill(field->is_repeated() ? *reflection.AddMessage(&message, field)
                                         : *reflection.MutableMessage(&message, field));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.AddInt64(&message, field, static_cast<std::int64_t>(number()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection.SetUInt64(&message, field, number());
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.SetUInt32(&message, field, static_cast<std::uint32_t>(number()));
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.SetBool(&message, field, below(2) == 0);
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string text(below(20), '\0');
        for (char& each : text) each = static_cast<char>(random());
        return field->is_repeated() ? reflection.AddString(&message, field, text)
                                    : reflection.SetString(&message, field, text);
      }
      default:
        FAIL() << "a field of a type that the test does not know: " << field->full_name();
    }
  }
};

TEST_F(RandomFrames, AreReadAndWrittenAsProtocDoes) {
  std::set<std::size_t> kinds;
  for (int i = 0; i < 5000; ++i) {
    oracle::Frame frame;
    fill(frame);
    const std::string bytes = frame.SerializeAsString();
    const auto parsed = control::parse(bytes);
    ASSERT_TRUE(parsed) << frame.ShortDebugString();
    ASSERT_EQ(written(*parsed), bytes) << frame.ShortDebugString();
    kinds.insert(parsed->index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<control::Frame> - 1);
}

TEST_F(RandomFrames, ThatAreDamagedAreReadAsProtocDoesOrRefusedByBoth) {
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    oracle::Frame frame;
    fill(frame);
    std::string bytes = frame.SerializeAsString();
    if (below(4) == 0) {  // two in one: the last body counts, or they merge
      fill(frame);
      bytes += frame.SerializeAsString();
    }
    for (std::uint64_t n = below(4); n != 0 && !bytes.empty(); --n) {
      const std::size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + below(3));
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
      }
    }
    if (!is_proto3(bytes)) continue;
    const auto theirs = as_protoc_writes(bytes);
    const auto ours = control::parse(bytes);
    ASSERT_EQ(ours.has_value(), theirs.has_value()) << testing::PrintToString(bytes);
    ++(ours ? read : refused);
    if (!ours) continue;
    ASSERT_EQ(written(*ours), *theirs) << testing::PrintToString(bytes);
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Frames, HaveABoundedNumberOfParts) {
  control::Regions regions;
  regions.regions.resize(control::kMaxRepeated);
  EXPECT_TRUE(control::parse(written(regions)));
  regions.regions[7].keys.resize(1);
  EXPECT_FALSE(control::parse(written(regions)));
  control::Regions numbers;
  numbers.regions.resize(1);
  numbers.regions[0].tensor.emplace().shape.assign(control::kMaxRepeated + 1, 1);
  EXPECT_FALSE(control::parse(written(numbers)));
}

TEST(Frames, GroupsAreRefused) {
  EXPECT_FALSE(control::parse("\x7b\x7c"));  // field 15 begins, and ends
}

TEST(Frames, ARegionTakesNoMoreThanItsLimit) {
  control::Region region{
      .name = "n", .id = UINT64_MAX, .size = UINT64_MAX, .access = UINT32_MAX, .tensor = {}, .keys = {}};
  region.tensor = control::Tensor{.dtype = UINT32_MAX, .shape = {-1, -1}, .strides = {-1}, .offset = UINT64_MAX};
  region.keys.assign(3, {.address = UINT64_MAX, .key = UINT64_MAX});
  control::Regions one;
  one.regions.push_back(region);
  const std::size_t without = written(control::Regions()).size();
  EXPECT_LE(written(one).size() - without, control::size_limit(region) + 4);  // the frame's own length grows, too
}

}  // namespace
}  // namespace fairlead::datapath
