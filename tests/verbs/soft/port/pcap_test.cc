// Captures: every frame is there once per end, with headers and checksums that a reader can verify.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/port_spec.h"
#include "verbs/soft/port/wrap/pcap_port.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft::test {
namespace {

struct Frame {
  std::vector<std::byte> ip;  // from the IP header on
  [[nodiscard]] std::span<const std::byte> roce() const { return std::span(ip).subspan(28); }
  [[nodiscard]] std::uint32_t source() const { return load32(&ip[12]); }
  [[nodiscard]] std::uint32_t destination() const { return load32(&ip[16]); }
  [[nodiscard]] std::uint16_t id() const { return load16(&ip[4]); }
  [[nodiscard]] bool icrc_right() const {
    const UdpFrame frame{Gid::from_ipv4(source()),
                         Gid::from_ipv4(destination()),
                         load16(&ip[20]),
                         load16(&ip[22]),
                         id(),
                         ip.size() - 28};
    const auto covered = roce().first(roce().size() - kIcrcBytes);
    return icrc(frame, covered) == load_icrc(covered.data() + covered.size());
  }
};

std::vector<Frame> read_capture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> raw((std::istreambuf_iterator<char>(file)), {});
  const auto word = [&raw](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, &raw[at], sizeof(value));
    return value;
  };
  std::vector<Frame> frames;
  if (raw.size() < kPcapFileHeaderBytes) return frames;
  EXPECT_EQ(word(0), 0xa1b23c4dU);
  EXPECT_EQ(word(4), 0x00040002U);  // version 2.4
  EXPECT_EQ(word(20), 101U);        // LINKTYPE_RAW
  for (std::size_t at = kPcapFileHeaderBytes; at < raw.size();) {
    EXPECT_GT(word(at), 1'700'000'000U);  // seconds since 1970
    EXPECT_LT(word(at + 4), 1'000'000'000U);
    const std::uint32_t length = word(at + 8);
    EXPECT_EQ(word(at + 12), length);
    at += kPcapRecordHeaderBytes;
    Frame frame;
    for (std::uint32_t i = 0; i < length; ++i) frame.ip.push_back(static_cast<std::byte>(raw[at + i]));
    at += length;
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::string capture_path(const char* name) {
  return std::filesystem::temp_directory_path() / (std::string("fairlead_") + name + std::to_string(::getpid()));
}

TEST(Pcap, ShowsBothDirectionsWithChecksumsThatHold) {
  const std::string path = capture_path("pcap");
  const auto file = PcapFile::open(path);
  ASSERT_TRUE(file) << file.status().to_string();
  {
    ibv_device entry{};
    ManualClock clock;
    auto [left, right] = LoopbackPort::make_pair();
    right->count_ids(500);  // as Linux rxe does
    Endpoint a(new Device(entry, Profile::kFull, clock, std::make_unique<PcapPort>(std::move(left), **file)));
    Endpoint b(new Device(entry, Profile::kFull, clock, std::move(right)));
    connect(a, b);
    fill_pattern(a.buffer, 1);
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 3, 2501, &b, 0), 0);
    ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 2, 4000, 100, &b, 0), 0);
    ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 2; }));
    std::vector<Frame> frames = read_capture(path);
    std::filesystem::remove(path);
    std::vector<std::byte> payload;
    std::size_t sent = 0;
    for (const Frame& frame : frames) {
      ASSERT_EQ(load16(&frame.ip[2]), frame.ip.size());
      ASSERT_EQ(load16(&frame.ip[24]), frame.ip.size() - 20);
      ASSERT_EQ(load16(&frame.ip[22]), kRoceUdpPort);
      std::uint32_t sum = 0;
      for (std::size_t i = 0; i < 20; i += 2) sum += load16(&frame.ip[i]);
      EXPECT_EQ((sum >> 16) + (sum & 0xffff), 0xffffU);  // RFC 791
      EXPECT_TRUE(frame.icrc_right());
      Packet packet;
      ASSERT_EQ(parse(frame.roce(), packet), ParseError::kNone);
      const bool outward = frame.source() == 0x0a000001;
      EXPECT_EQ(frame.destination(), outward ? 0x0a000002U : 0x0a000001U);
      EXPECT_EQ(packet.bth.dest_qpn, outward ? b.qp->qp_num : a.qp->qp_num);
      if (outward) {
        ++sent;
        EXPECT_EQ(frame.id(), 0);
        payload.insert(payload.end(), packet.payload.begin(), packet.payload.end());
      } else {
        EXPECT_GE(frame.id(), 500);
      }
    }
    EXPECT_EQ(sent, a.counter("sent_pkts"));
    EXPECT_EQ(frames.size() - sent, a.counter("rcvd_pkts"));
    ASSERT_EQ(payload.size(), 2501U);
    EXPECT_EQ(std::memcmp(payload.data(), &a.buffer[3], payload.size()), 0);
  }
}

// Nothing is kept back: a process that is killed leaves all that it saw.
TEST(Pcap, SurvivesTheDeathOfItsProcess) {
  const std::string path = capture_path("killed");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto file = PcapFile::open(path);
    PcapRecords records;
    const std::vector<std::byte> frame(60, std::byte{0x45});
    records.begin(1'800'000'000'000'000'007, frame.size());
    records.append(frame);
    if (file) (*file)->write(records);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_capture(path).size(), 1U);
  std::filesystem::remove(path);
}

TEST(Pcap, SeveralProcessesAppendToOneFile) {
  const std::string path = capture_path("shared");
  const auto file = PcapFile::open(path);
  ASSERT_TRUE(file);
  PcapRecords records;
  const std::vector<std::byte> frame(60, std::byte{0x45});
  records.begin(1'800'000'000'000'000'007, frame.size());
  records.append(frame);
  (*file)->write(records);
  const pid_t child = ::fork();
  if (child == 0) {
    // Another name for it, so that it is opened anew, as a process that was not forked would.
    const std::string same = std::filesystem::path(path).parent_path() / "." / std::filesystem::path(path).filename();
    const auto again = PcapFile::open(same);
    if (again) (*again)->write(records);
    ::_exit(again ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_capture(path).size(), 2U);
  std::filesystem::remove(path);
}

mode_t mode_of(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_mode & 07777;
}

// It holds payload. Who wants to let others in makes the file first.
TEST(Pcap, IsForItsUserAlone) {
  const std::string path = capture_path("mode");
  const std::string opened_up = capture_path("mode_of_ones_own");
  const mode_t before = ::umask(0);
  std::ofstream(opened_up) << "";
  ASSERT_TRUE(PcapFile::open(path));
  ASSERT_TRUE(PcapFile::open(opened_up));
  ::umask(before);
  EXPECT_EQ(mode_of(path), 0600U);
  EXPECT_EQ(mode_of(opened_up), 0666U);
  std::filesystem::remove(path);
  std::filesystem::remove(opened_up);
}

TEST(Pcap, AFileOfAnotherUserIsRefused) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  const std::string path = capture_path("foreign");
  std::ofstream(path) << "";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  const auto file = PcapFile::open(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message().find(path + " is uid 65534's"), std::string::npos) << file.error().message();
}

TEST(Pcap, ProcessNumberInThePath) {
  const std::string path = capture_path("percent_");
  ASSERT_TRUE(PcapFile::open(path + "%p"));
  EXPECT_TRUE(std::filesystem::remove(path + std::to_string(::getpid())));
}

TEST(Pcap, AFileThatCannotBeWrittenIsRefusedByName) {
  auto [left, right] = LoopbackPort::make_pair();
  const auto port = decorate(std::move(left), {.faults = {}, .pcap = "/nonexistent/soft.pcap"});
  ASSERT_FALSE(port);
  EXPECT_NE(port.error().message().find("/nonexistent/soft.pcap: No such file or directory"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::soft::test
