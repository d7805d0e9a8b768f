// What makes terms unequal, and what comes of that: no claim.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "bench/gain/report.h"

namespace fairlead::bench {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

EndFacts end_of(const std::string& name, std::uint64_t process) {
  EndFacts facts;
  facts.host = {.cpu_model = "x", .cores = 2, .kernel = "Linux", .name = name, .boot = name, .usable = 2, .quota = 0};
  facts.process = process;
  facts.tcp_buffer = 6'291'456;
  facts.udp_buffer = 2'097'152;
  facts.lanes = 1;
  return facts;
}

SideFacts tcp_side() {
  SideFacts side;
  side.transport = "tcp";
  side.path = "tcp 10.0.0.1:5 -> 10.0.0.2:6, depth 256";
  side.link = "eth0";
  side.local = "10.0.0.1";
  side.remote = "10.0.0.2";
  side.link_mtu = 9000;
  side.payload = 8948;
  side.buffer = side.target_buffer = 6'291'456;
  side.initiator = end_of("a", 1);
  side.target = end_of("b", 2);
  return side;
}

SideFacts verbs_side() {
  SideFacts side = tcp_side();
  side.transport = "verbs:soft0";
  side.software = true;
  side.payload = 4096;
  side.buffer = side.target_buffer = 2'097'152;
  return side;
}

GainPlan plan_of() {
  GainPlan plan;
  plan.load.sizes = {4096, 1 << 20};
  plan.primary_size = 1 << 20;
  return plan;
}

std::vector<std::string> unequal(const SideFacts& baseline, const SideFacts& candidate) {
  std::vector<std::string> names;
  for (const Term& term : terms_of(baseline, candidate, plan_of())) {
    if (!term.equal) names.push_back(term.name);
  }
  return names;
}

TEST(ParsePath, FindsAddressesAndMtu) {
  const PathFacts verbs =
      parse_path("verbs:soft0 (soft0 10.99.0.1 qpn 0x2c012 -> 10.99.0.2 qpn 0x19be1, mtu 4096): asked for");
  EXPECT_EQ(verbs.local, "10.99.0.1");
  EXPECT_EQ(verbs.remote, "10.99.0.2");
  EXPECT_EQ(verbs.mtu, 4096U);
  const PathFacts tcp =
      parse_path("tcp (tcp 127.0.0.1:40000 -> 127.0.0.1:40001, depth 256, congestion control reno): asked for");
  EXPECT_EQ(tcp.local, "127.0.0.1");
  EXPECT_EQ(tcp.remote, "127.0.0.1");
  EXPECT_EQ(tcp.mtu, 0U);
  EXPECT_EQ(tcp.congestion_control, "reno");
  EXPECT_EQ(parse_path("tcp 1.1.1.1:5 -> 1.1.1.2:6, depth 1, congestion control bbr").congestion_control, "bbr");
  EXPECT_EQ(verbs.congestion_control, "");
  EXPECT_EQ(parse_path("tcp [fd00::1]:5 -> [fd00::2]:6, depth 256").local, "fd00::1");
  EXPECT_EQ(parse_path("verbs:a fd00::1 qpn 0x1 -> fd00::2 qpn 0x2, mtu 1024").remote, "fd00::2");
  EXPECT_EQ(parse_path("shm of this host").local, "");
  EXPECT_EQ(parse_path(" -> ").local, "");
}

TEST(Terms, OfOneLinkAreEqual) {
  EXPECT_THAT(unequal(tcp_side(), verbs_side()), UnorderedElementsAre());
  EXPECT_THAT(unequal(tcp_side(), tcp_side()), UnorderedElementsAre());
  EXPECT_THAT(unequal(verbs_side(), verbs_side()), UnorderedElementsAre());
}

TEST(Terms, OfAnotherLinkAreNot) {
  SideFacts shm = verbs_side();
  shm.transport = "shm";
  shm.link = "memory of this host";
  shm.link_mtu = shm.payload = 0;
  shm.buffer = shm.target_buffer = {};
  EXPECT_THAT(unequal(tcp_side(), shm), testing::Contains("link"));
  SideFacts memif = verbs_side();
  memif.link = "dpdk:net_memif0,role=client";
  EXPECT_THAT(unequal(tcp_side(), memif), testing::Contains("link"));
  SideFacts elsewhere = verbs_side();
  elsewhere.remote = "10.0.0.3";
  EXPECT_THAT(unequal(tcp_side(), elsewhere), UnorderedElementsAre("link"));
  SideFacts unknown = verbs_side();
  unknown.link = "";
  EXPECT_THAT(unequal(unknown, unknown), testing::Contains("link"));
}

TEST(Terms, LoopbacksMtuIsNoNetworks) {
  SideFacts tcp = tcp_side();
  SideFacts verbs = verbs_side();
  tcp.link = verbs.link = "lo";
  tcp.local = tcp.remote = "127.0.0.1";
  verbs.local = "127.0.0.2", verbs.remote = "127.0.0.3";  // softroce's own
  tcp.link_mtu = verbs.link_mtu = 65536;
  tcp.payload = 65484;
  EXPECT_THAT(unequal(tcp, verbs), UnorderedElementsAre("payload of a packet"));
  EXPECT_THAT(unequal(tcp, tcp), UnorderedElementsAre());
  tcp.link_mtu = verbs.link_mtu = 9000;
  tcp.payload = 8948;
  EXPECT_THAT(unequal(tcp, verbs), UnorderedElementsAre());
}

TEST(Terms, EachThatDiffersIsNamed) {
  SideFacts mtu = verbs_side();
  mtu.payload = 1024;  // --mtu 1024 on a link with room for 4096
  EXPECT_THAT(unequal(tcp_side(), mtu), UnorderedElementsAre("payload of a packet"));
  SideFacts buffers = verbs_side();
  buffers.target_buffer = 425'984;
  EXPECT_THAT(unequal(tcp_side(), buffers), UnorderedElementsAre("socket buffers"));
  SideFacts unread = tcp_side(), unread_too = verbs_side();
  unread.buffer = unread_too.buffer = 0;
  EXPECT_THAT(unequal(unread, unread_too), UnorderedElementsAre("socket buffers")) << "not known is not equal";
  SideFacts nameless = tcp_side(), nameless_too = verbs_side();
  nameless.target.host.boot = nameless_too.target.host.boot = "";
  EXPECT_THAT(unequal(nameless, nameless_too), UnorderedElementsAre("hosts"));
  SideFacts streams = verbs_side();
  streams.streams = 4;
  EXPECT_THAT(unequal(tcp_side(), streams), UnorderedElementsAre("streams"));
  SideFacts cores = verbs_side();
  cores.target.host.usable = 1;
  EXPECT_THAT(unequal(tcp_side(), cores), UnorderedElementsAre("cores and budget"));
  SideFacts budget = verbs_side();
  budget.initiator.host.quota = 1.5;
  EXPECT_THAT(unequal(tcp_side(), budget), UnorderedElementsAre("cores and budget"));
  SideFacts lanes = verbs_side();
  lanes.target.lanes = 2;
  EXPECT_THAT(unequal(tcp_side(), lanes), UnorderedElementsAre("lanes"));
  SideFacts queue = verbs_side();
  queue.dscp = 26;
  EXPECT_THAT(unequal(tcp_side(), queue), UnorderedElementsAre("DSCP"));
  SideFacts paced = tcp_side(), other = tcp_side();
  paced.congestion_control = "bbr";
  other.congestion_control = "cubic";
  EXPECT_THAT(unequal(paced, other), UnorderedElementsAre("congestion control"));
  EXPECT_THAT(unequal(paced, verbs_side()), IsEmpty());
  SideFacts process = verbs_side();
  process.target.process = 3;
  EXPECT_THAT(unequal(tcp_side(), process), UnorderedElementsAre("hosts"));
  SideFacts emulated = verbs_side();
  emulated.transport = "verbs:vmw_pvrdma0";
  emulated.emulated = true;
  EXPECT_THAT(unequal(tcp_side(), emulated), UnorderedElementsAre("device"));
}

TEST(Terms, OfADeviceInSoftwareItIsSaidAndIsNoReason) {
  SideFacts rxe = verbs_side();
  rxe.transport = "verbs:rxe0";
  SideFacts nic = verbs_side();
  nic.transport = "verbs:mlx5_0";
  nic.software = false;
  const auto device = [](const SideFacts& candidate) {
    const std::vector<Term> terms = terms_of(tcp_side(), candidate);
    return *std::ranges::find(terms, "device", &Term::name);
  };
  EXPECT_EQ(device(rxe).candidate, "verbs:rxe0, in software");
  EXPECT_THAT(device(rxe).remark, HasSubstr("what verbs:rxe0 does is the processors' work"));
  EXPECT_THAT(device(verbs_side()).remark, HasSubstr("what softroce does is the processors' work"));
  EXPECT_TRUE(device(rxe).equal && device(nic).equal);
  EXPECT_EQ(device(nic).candidate, "verbs:mlx5_0");
  EXPECT_EQ(device(nic).remark, "");
}

// Quads of bandwidth whose candidate is `ratio` times as fast, with noise of 1 %.
std::vector<Quad> quads_of(double ratio, std::size_t count) {
  std::vector<Quad> quads(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      const double noise = 1 + 0.01 * std::sin(static_cast<double>(7 * i + 3 * j));
      const auto operations = static_cast<std::uint64_t>(1000 * ratio);
      quads[i].baseline[j] = {
          .seconds = 0.1 * noise, .operations = 1000, .size = 1 << 20, .initiator_cpu = 0.05, .target_cpu = 0.05};
      quads[i].candidate[j] = {
          .seconds = 0.1 / noise, .operations = operations, .size = 1 << 20, .initiator_cpu = 0.05, .target_cpu = 0.05};
    }
  }
  return quads;
}

GainReport report_of(double ratio, double control, std::size_t quads, const SideFacts& candidate = verbs_side()) {
  GainReport report;
  report.plan = plan_of();
  report.baseline = tcp_side();
  report.candidate = candidate;
  const Series series{.kind = Kind::kBandwidth,
                      .size = 1 << 20,
                      .quads = quads_of(ratio, quads),
                      .control = quads_of(control, quads),
                      .verified = true};
  report.analysis = analyse({series}, terms_of(report.baseline, report.candidate, report.plan), report.plan, false);
  return report;
}

std::string_view verdict_in(const GainReport& report) {
  const Json document = to_json(report);
  static std::string kept;
  kept = *document.find("verdict")->string();
  return kept;
}

TEST(Analysis, SaysWhoIsFaster) {
  EXPECT_EQ(verdict_in(report_of(2, 1, 24)), "rdma_faster");
  EXPECT_EQ(verdict_in(report_of(0.5, 1, 24)), "tcp_faster");
  EXPECT_EQ(verdict_in(report_of(1, 1, 24)), "no_difference");
  const GainReport report = report_of(2, 1, 24);
  EXPECT_NEAR(report.analysis.primary()->ratio.ratio, 2, 0.05);
  EXPECT_EQ(report.analysis.primary()->quads.size(), 24U);
}

TEST(Analysis, ClaimsNothingOnUnequalTerms) {
  SideFacts shm = verbs_side();
  shm.link = "memory of this host";
  const GainReport report = report_of(2, 1, 24, shm);
  EXPECT_EQ(verdict_in(report), "unequal_terms");
  EXPECT_THAT(report.analysis.reason, HasSubstr("link"));
  for (const Comparison& each : report.analysis.results) EXPECT_EQ(each.verdict, Verdict::kUnequalTerms);
}

TEST(Analysis, ClaimsNothingOfFewQuadsOrWhatTheControlShowsToo) {
  EXPECT_EQ(verdict_in(report_of(2, 1, 19)), "inconclusive");
  for (const auto& [ratio, control] :
       {std::pair(1.2, 1.2), std::pair(1.1, 1.2), std::pair(0.8, 0.7), std::pair(1., 1.2)}) {
    const GainReport unsteady = report_of(ratio, control, 24);
    EXPECT_EQ(verdict_in(unsteady), "inconclusive") << ratio;
    EXPECT_THAT(unsteady.analysis.reason, HasSubstr("control")) << ratio;
  }
  EXPECT_EQ(verdict_in(report_of(2, 1.2, 24)), "rdma_faster");
  EXPECT_EQ(verdict_in(report_of(0.8, 1.2, 24)), "tcp_faster");
  GainReport nothing = report_of(2, 1, 0);
  EXPECT_EQ(nothing.analysis.primary(), nullptr);
  EXPECT_EQ(verdict_in(nothing), "inconclusive");
  EXPECT_THAT(page_of(nothing), HasSubstr("inconclusive"));
}

TEST(Analysis, ClaimsNothingOfOneEndsProcessorTimeWhereBothShareAHost) {
  std::vector<Quad> quads = quads_of(1, 24);
  for (Quad& quad : quads) {
    for (Block* block : {&quad.baseline[0], &quad.baseline[1], &quad.candidate[0], &quad.candidate[1]}) {
      block->one_host = true;
      block->initiator_softirq = block->target_softirq = 0.05;
    }
    for (Block& block : quad.candidate) block.target_cpu /= 10;  // the kernel works for it
  }
  const auto of_target = [&] {
    const Series series{.kind = Kind::kBandwidth, .size = 1 << 20, .quads = quads, .control = {}, .verified = true};
    const Analysis analysis = analyse({series}, terms_of(tcp_side(), verbs_side(), plan_of()), plan_of(), false);
    return std::ranges::find(analysis.results, Metric::kTargetCpu, &Comparison::metric)->verdict;
  };
  EXPECT_EQ(of_target(), Verdict::kInconclusive);
  for (Quad& quad : quads) quad.baseline[0].one_host = false;
  EXPECT_EQ(of_target(), Verdict::kCandidate);
}

TEST(Analysis, ClaimsNothingOfARunThatWasInterrupted) {
  GainPlan plan = plan_of();
  const std::atomic<int> stop{1};
  plan.load.stop = &stop;
  const Series series{.kind = Kind::kBandwidth,
                      .size = 1 << 20,
                      .quads = quads_of(2, 24),
                      .control = quads_of(1, 24),
                      .verified = true};
  const Analysis analysis = analyse({series}, terms_of(tcp_side(), verbs_side(), plan), plan, true);
  for (const Comparison& each : analysis.results) EXPECT_EQ(each.verdict, Verdict::kInconclusive);
  EXPECT_THAT(analysis.reason, HasSubstr("interrupted"));
}

TEST(Figures, CountWhatTheHostsSpendInSoftInterrupts) {
  Block block{.seconds = 1,
              .operations = 1000,
              .size = 1'000'000,
              .initiator_cpu = 0.2,
              .target_cpu = 0.3,
              .initiator_softirq = 0.1,
              .target_softirq = 0.4};
  EXPECT_DOUBLE_EQ(figure_of(block, Metric::kBytesPerCpuSecond), 1e9 / 1.0);
  EXPECT_DOUBLE_EQ(figure_of(block, Metric::kInitiatorCpu), 0.2 + 0.1);
  EXPECT_DOUBLE_EQ(figure_of(block, Metric::kTargetCpu), 0.3 + 0.4);
  block.one_host = true;
  block.initiator_softirq = 0.4;
  EXPECT_DOUBLE_EQ(figure_of(block, Metric::kBytesPerCpuSecond), 1e9 / 0.9) << "one host's are counted once";
  EXPECT_DOUBLE_EQ(figure_of(block, Metric::kInitiatorCpu), 0.2);
  block.target_cpu = 0;
  EXPECT_EQ(figure_of(block, Metric::kTargetCpu), 0) << "what could not be measured is no figure";
}

TEST(Analysis, SecondaryIntervalsAreWider) {
  const GainReport report = report_of(2, 1, 24);
  ASSERT_EQ(report.analysis.results.size(), 4U);  // bandwidth, and three of processor time
  EXPECT_EQ(report.analysis.results[0].ratio.confidence, kConfidence);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_FALSE(report.analysis.results[i].primary);
    EXPECT_NEAR(report.analysis.results[i].ratio.confidence, 1 - 0.01 / 3, 1e-12);
  }
}

TEST(Analysis, IsWhatTheDocumentsQuadsSay) {
  const Json document = to_json(report_of(1.5, 1, 24));
  for (const Json& result : *document.find("results")->array()) {
    const Better better = *result.find("better")->string() == "higher" ? Better::kHigher : Better::kLower;
    std::vector<double> logs;
    for (const Json& quad : *result.find("quads")->array()) {
      const auto value = [&quad](const char* side, std::size_t i) {
        return quad.find(side)->array()->at(i).number().value();
      };
      logs.push_back(log_advantage(
          {{value("baseline", 0), value("baseline", 1)}, {value("candidate", 0), value("candidate", 1)}}, better));
    }
    EXPECT_NEAR(std::exp(median(logs)), *result.find("ratio")->number(), 1e-9);
  }
}

TEST(Page, EscapesWhatItTells) {
  GainReport report = report_of(2, 1, 24);
  report.warnings = {"<script>alert(1)</script>"};
  const std::string page = page_of(report);
  EXPECT_THAT(page, testing::Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
}

}  // namespace
}  // namespace fairlead::bench
