#include "tests/conformance/transport_fixture.h"

#include <cstdlib>
#include <thread>

namespace fairlead::conformance {

std::ostream& operator<<(std::ostream& out, const TransportCase& each) { return out << each.name; }

int scaled(int rounds) {
  const char* text = std::getenv("FAIRLEAD_CONFORMANCE_SCALE");
  const int scale = text != nullptr ? std::atoi(text) : 1;
  return scale > 0 ? rounds * scale : rounds;
}

Buffer::Buffer(const End& end, std::size_t bytes, Access access) : device_(*end.device), bytes_(bytes) {
  auto registered = device_.register_memory({.bytes = bytes_, .access = access});
  EXPECT_TRUE(registered.has_value()) << registered.status().to_string();
  if (!registered) return;
  auto granted = device_.grant({.bytes = bytes_, .access = access});
  EXPECT_TRUE(granted.has_value()) << granted.status().to_string();
  if (!granted) {
    device_.deregister(*registered);
    return;
  }
  registration_ = *registered;
  grant_ = *granted;
  registered_ = true;
}

Buffer::~Buffer() { deregister(); }

void Buffer::deregister() {
  if (!std::exchange(registered_, false)) return;
  device_.revoke(grant_);
  device_.deregister(registration_);
}

void End::open_path(PathRole role, const std::string& host) {
  PathConfig config;
  config.role = role;
  config.peer_host = host;
  config.local_host = host;
  config.events = this;
  config.domain = domain;
  auto opened = endpoint->open_path(config);
  ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
  path = std::move(*opened);
}

void End::post(const WorkRequest& work) {
  ASSERT_EQ(path->post({&work, 1}), 1u);
  ++posted;
}

void End::write(std::uint64_t id, LocalSegment from, const Buffer& to, std::size_t offset) {
  post({.id = id,
        .kind = OpKind::kWrite,
        .local = {&from, 1},
        .remote_address = to.grant().address + offset,
        .remote_key = to.grant().key});
}

void End::read(std::uint64_t id, LocalSegment into, const Buffer& from, std::size_t offset) {
  post({.id = id,
        .kind = OpKind::kRead,
        .local = {&into, 1},
        .remote_address = from.grant().address + offset,
        .remote_key = from.grant().key});
}

void End::send(std::uint64_t id, std::span<const std::byte> bytes) {
  const LocalSegment segment{const_cast<std::byte*>(bytes.data()), bytes.size(), 0};
  post({.id = id, .kind = OpKind::kMessage, .local = {&segment, 1}});
}

std::optional<Code> End::code_of(std::uint64_t id) const {
  for (const auto& [each, code] : completions) {
    if (each == id) return code;
  }
  return std::nullopt;
}

void End::on_ready(Path& which) noexcept {
  EXPECT_EQ(&which.events(), this);
  ++ready;
}

void End::on_completion(Path&, const datapath::Ended& ended) noexcept {
  for (std::uint64_t id = ended.first; id != ended.first + ended.count; ++id) {
    completions.emplace_back(id, ended.code);
    if (completion_hook) completion_hook(id, ended.code);
  }
}

void End::on_message(Path&, std::span<const std::byte> bytes) noexcept {
  if (message_hook) return message_hook(bytes);
  messages.emplace_back(bytes.begin(), bytes.end());
}

void End::on_notification(Path&, std::uint32_t value) noexcept {
  notifications.push_back(value);
  if (notification_hook) notification_hook(value);
}

void End::on_down(Path&, Code code, std::string_view reason) noexcept {
  ++downs;
  down_code = code;
  down_reason = reason;
  EXPECT_NE(code, Code::kOk);
  EXPECT_FALSE(reason.empty());
}

void TransportTest::SetUp() {
  for (End* end : {&a, &b}) {
    auto opened = GetParam().open();
    ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
    end->device = std::move(*opened);
    auto endpoint = end->device->open_endpoint();
    ASSERT_TRUE(endpoint.has_value()) << endpoint.status().to_string();
    end->endpoint = std::move(*endpoint);
  }
  a.open_path(PathRole::kActive, GetParam().host);
  b.open_path(PathRole::kPassive, GetParam().host);
}

void TransportTest::TearDown() {
  for (End* end : {&a, &b}) {
    end->path.reset();
    end->endpoint.reset();
    end->device.reset();
  }
}

void TransportTest::connect() {
  const Status passive = b.path->connect(a.path->local_description());
  ASSERT_TRUE(passive.ok()) << passive.to_string();
  const Status active = a.path->connect(b.path->local_description());
  ASSERT_TRUE(active.ok()) << active.to_string();
  ASSERT_TRUE(pump([this] { return (a.ready > 0 && b.ready > 0) || a.downs > 0 || b.downs > 0; }));
  ASSERT_EQ(a.ready, 1) << a.down_reason;
  ASSERT_EQ(b.ready, 1) << b.down_reason;
}

bool TransportTest::pump(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    bool happened = a.endpoint != nullptr && a.poll();
    if (b.endpoint != nullptr) happened |= b.poll();
    if (happened) continue;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void TransportTest::pump_for(std::chrono::milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  pump([deadline] { return std::chrono::steady_clock::now() > deadline; });
}

}  // namespace fairlead::conformance
