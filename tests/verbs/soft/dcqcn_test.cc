// The arithmetic of DCQCN, on a clock that the test moves.
#include "verbs/soft/flow_control/dcqcn.h"

#include <gtest/gtest.h>

namespace fairlead::soft::test {
namespace {

constexpr Nanos kStart = kSecond;

TEST(DcqcnNotificationPoint, AnswersAtMostOneMarkPerInterval) {
  const DcqcnConfig config;
  NotificationPoint point;
  int answered = 0;
  for (Nanos at = 0; at < kMillisecond; at += kMicrosecond) answered += point.on_mark(config, kStart + at) ? 1 : 0;
  EXPECT_EQ(answered, 20);  // 1 ms of marks, one answer per 50 us
}

TEST(DcqcnReactionPoint, IsUnlimitedWithoutNotifications) {
  ReactionPoint point({.line_rate = 10e9});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(point.may_send(kStart));
    point.on_sent(4096, kStart);
  }
}

TEST(DcqcnReactionPoint, FirstNotificationHalvesTheRateAndLaterOnesCutByAlpha) {
  ReactionPoint point({.line_rate = 10e9});
  point.on_notification(kStart);
  EXPECT_DOUBLE_EQ(point.rate(), 5e9);  // alpha was 1
  EXPECT_DOUBLE_EQ(point.alpha(), 1);   // (1 - g) 1 + g
  // Without notifications alpha decays by (1 - g) every 55 us.
  point.advance(kStart + 55 * kMicrosecond);
  EXPECT_DOUBLE_EQ(point.alpha(), 255.0 / 256);
  point.advance(kStart + 550 * kMicrosecond);
  EXPECT_NEAR(point.alpha(), 0.9616, 0.0001);  // (255/256)^10
}

TEST(DcqcnReactionPoint, RecoversHalfWayFiveTimesThenAddsThenHurries) {
  const DcqcnConfig config{.line_rate = 100e9, .increase_bytes = 1000};
  ReactionPoint point(config);
  point.on_notification(kStart);
  point.on_notification(kStart);  // rate 25, target 50 Gb/s
  EXPECT_DOUBLE_EQ(point.rate(), 25e9);
  Nanos now = kStart;
  double distance = 25e9;
  for (int step = 0; step < 5; ++step) {  // fast recovery: the target stays
    now += config.increase_interval;
    point.advance(now);
    distance /= 2;
    EXPECT_NEAR(point.rate(), 50e9 - distance, 1);
  }
  double rate = point.rate();
  now += config.increase_interval;
  point.advance(now);  // additive: the target rises by R_AI
  EXPECT_NEAR(point.rate(), (rate + 50e9 + 40e6) / 2, 1);
  // Six increases by bytes as well: hyper increase from the sixth.
  rate = point.rate();
  double target = 50e9 + 40e6;
  for (int step = 1; step <= 6; ++step) {
    point.on_sent(1000, now);
    target += step == 6 ? 400e6 : 40e6;
    rate = (rate + target) / 2;
    EXPECT_NEAR(point.rate(), rate, 1) << step;
  }
}

TEST(DcqcnReactionPoint, PacesAtItsRate) {
  ReactionPoint point({.line_rate = 8e9, .increase_interval = kSecond});
  point.on_notification(kStart);  // 4 Gb/s: 500 bytes per microsecond
  Nanos now = kStart;
  std::uint64_t sent = 0;
  for (; now < kStart + 10 * kMillisecond; now += 200) {
    if (!point.may_send(now)) {
      EXPECT_GT(point.next_send(), now);
      continue;
    }
    point.on_sent(1000, now);
    sent += 1000;
  }
  EXPECT_NEAR(static_cast<double>(sent), 5e6, 5e4);
}

TEST(DcqcnReactionPoint, AQuietSpellGivesNoMoreThanAShortBurst) {
  ReactionPoint point({.line_rate = 8e9, .increase_interval = 100 * kSecond});
  point.on_notification(kStart);
  const Nanos later = kStart + kSecond;
  int burst = 0;
  while (point.may_send(later)) {
    point.on_sent(1000, later);
    ++burst;
  }
  EXPECT_EQ(burst, 51);  // 100 us at 4 Gb/s, and the packet that overdraws it
}

TEST(DcqcnReactionPoint, NeverBelowTheLeastRateAndBackToUnlimitedInTime) {
  const DcqcnConfig config{.line_rate = 10e9};
  ReactionPoint point(config);
  for (int i = 0; i < 100; ++i) point.on_notification(kStart);
  EXPECT_DOUBLE_EQ(point.rate(), config.least_rate);
  point.advance(kStart + kSecond);
  EXPECT_DOUBLE_EQ(point.rate(), config.line_rate);
  point.advance(kStart + 1'000'000 * kSecond);  // a long sleep costs nothing
}

}  // namespace
}  // namespace fairlead::soft::test
