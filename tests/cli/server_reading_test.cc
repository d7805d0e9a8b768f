// What `fairlead status` makes of a server's page.
#include "cli/server/server_reading.h"

#include <gmock/gmock.h>

#include "cli/status_tables.h"

namespace fairlead::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ServerReading read(const std::string& fields) {
  const Result<ServerReading> reading = read_server(R"({"schema": "fairlead.server/1")" + fields + "}");
  EXPECT_TRUE(reading) << reading.error().to_string();
  return reading ? *reading : ServerReading();
}

std::string page(std::uint64_t process, std::uint64_t received, std::uint64_t arrived, double up) {
  return R"(, "process": )" + std::to_string(process) + R"(, "up_seconds": )" + std::to_string(up) +
         R"(, "transports": [{"transport": "tcp", "lane": 1, "bytes_received": )" + std::to_string(received) +
         R"(, "retransmissions": null}], "clients": [{"name": "a", "address": "h:1", "doing": "push", "model": "m",)" +
         R"( "bytes": 200, "arrived_bytes": 50, "arrived_bytes_total": )" + std::to_string(arrived) + "}]";
}

TEST(ServerReading, RatesAreOverTheTimeBetween) {
  const ServerReading before = read(page(7, 1000, 100, 5));
  ServerReading now = read(page(7, 3000, 500, 7));
  set_rates(before, now, 2);
  ASSERT_EQ(now.transports.size(), 1U);
  EXPECT_EQ(now.transports[0].lane, 1U);
  EXPECT_DOUBLE_EQ(now.transports[0].received, 1000);
  ASSERT_EQ(now.clients.size(), 1U);
  EXPECT_DOUBLE_EQ(now.clients[0].received, 200);
  set_rates(read(""), now, 2);
  EXPECT_DOUBLE_EQ(now.transports[0].received, 1500) << "what was not there began at 0";
}

TEST(ServerReading, AServerThatWasStartedAnewBeganAtZero) {
  ServerReading now = read(page(8, 3000, 500, 7));
  set_rates(read(page(7, 1000, 100, 5)), now, 1);
  EXPECT_DOUBLE_EQ(now.transports[0].received, 3000);
  ServerReading again = read(page(7, 3000, 500, 1));  // in a container: the same process number
  set_rates(read(page(7, 1000, 100, 5)), again, 1);
  EXPECT_DOUBLE_EQ(again.transports[0].received, 3000);
}

TEST(ServerReading, WhatIsMissingOrOfAnotherKindIsNothing) {
  const ServerReading reading =
      read(R"(, "service": 7, "transports": {}, "clients": [1, {"name": null}], "models": [[]], "sessions": -3)");
  EXPECT_EQ(reading.service, "");
  EXPECT_EQ(reading.sessions, 0U);
  EXPECT_EQ(reading.clients.size(), 2U);
  EXPECT_EQ(reading.models.size(), 1U);
  EXPECT_EQ(read_server("{").error().code(), Code::kDataLoss);
  EXPECT_EQ(read_server("[]").error().code(), Code::kDataLoss);
  EXPECT_EQ(read_server(R"({"schema": "other/1"})").error().code(), Code::kDataLoss);
}

TEST(StatusTables, ShowADashForWhatATransportDoesNotSay) {
  const auto retransmissions = [](const ServerReading& server) {
    const bench::Json document = status_document("x", server, {}, 1);
    return *document.find("transports")->array()->front().find("retransmissions");
  };
  ServerReading server = read(page(7, 1000, 100, 5));
  EXPECT_THAT(status_tables("x", server, {}), HasSubstr("          -\n"));
  EXPECT_EQ(retransmissions(server).type_name(), "null");
  server = read(R"(, "transports": [{"transport": "tcp", "retransmissions": 3}])");
  EXPECT_THAT(status_tables("x", server, {}), HasSubstr("          3\n"));
  EXPECT_EQ(retransmissions(server).uint(), 3U);
}

TEST(StatusTables, SayWhatIsNotCountedOfTransportsInUse) {
  ServerReading server = read(R"(, "transports": [{"transport": "shm"}, {"transport": "verbs:soft0"}])");
  EXPECT_THAT(status_tables("x", server, {}), AllOf(Not(HasSubstr("over shm")), Not(HasSubstr("over verbs"))));
  server.transports[0].paths = 1;
  EXPECT_THAT(status_tables("x", server, {}), AllOf(HasSubstr("over shm"), Not(HasSubstr("over verbs"))));
  server.transports[1].paths = 1;
  EXPECT_THAT(status_tables("x", server, {}), HasSubstr("over verbs"));
}

TEST(StatusTables, ShowWhatAServerSaysAndNothingOfItDrivesATerminal) {
  ServerReading server = read(page(7, 1000, 100, 5000));
  server.service = "serve";
  server.state = "draining";
  server.model_bytes_limit = 1000;
  server.clients[0].name = "evil\x1b[2J";
  server.models.push_back({std::string(100, 'm'), "alice", 3, 5});
  const std::string text = status_tables("gpu7:9471", server, {});
  EXPECT_THAT(text, AllOf(HasSubstr("gpu7:9471: serve , draining, up 83 min"), HasSubstr("push of m, 25 %"),
                          HasSubstr("alice"), HasSubstr(std::string(37, 'm') + "... "), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(status_tables("x", ServerReading(), {}), HasSubstr("no clients"));
  TenantRates tenant;
  tenant.name = "trainer";
  EXPECT_THAT(status_tables("x", ServerReading(), {{tenant}, {}}), HasSubstr("\ntrainer "));
  EXPECT_THAT(status_tables("x", ServerReading(), {{}, {tenant}}), HasSubstr("\ndevice  "));
  EXPECT_NE(status_document("x", server, {{}, {tenant}}, 1).find("devices"), nullptr);
  EXPECT_NE(status_document("x", server, {{tenant}, {}}, 1).find("tenants"), nullptr);
}

}  // namespace
}  // namespace fairlead::cli
