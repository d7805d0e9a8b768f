#include "cli/tenants/tenant_rates.h"

#include <gmock/gmock.h>

#include <cmath>

#include "cli/tenants/tenant_metrics.h"

namespace fairlead::cli {
namespace {

using testing::HasSubstr;

constexpr std::string_view kText =
    "# HELP fairlead_gpu_sessions Sessions.\n"
    "# TYPE fairlead_gpu_sessions gauge\n"
    "fairlead_gpu_sessions 3\n"
    "fairlead_tenant_commands_total{tenant=\"a\"} 1000\n"
    "fairlead_tenant_commands_total{tenant=\"(anonymous)\"} 1e+06\n"
    "fairlead_tenant_copied_bytes_total{tenant=\"a\",direction=\"in\"} 5\n"
    "fairlead_tenant_copied_bytes_total{tenant=\"a\",direction=\"out\"} 7\n"
    "fairlead_tenant_failures_total{tenant=\"a\",scope=\"stream\"} 2\n"
    "fairlead_tenant_failures_total{tenant=\"a\",scope=\"context\"} 1\n"
    "fairlead_tenant_service_seconds_total{tenant=\"a\"} 0.25\n"
    "fairlead_tenant_sessions{tenant=\"a\"} 2\n";

TEST(TenantRates, AreReadFromMetrics) {
  const auto read = read_tenants(kText);
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_EQ(read->size(), 2u);
  const TenantReading& a = read->at("a");
  EXPECT_EQ(a.commands, 1000);
  EXPECT_EQ(a.bytes_in, 5);
  EXPECT_EQ(a.bytes_out, 7);
  EXPECT_THAT(a.failures, testing::ElementsAre(0, 2, 1));
  EXPECT_EQ(a.sessions, 2);
  EXPECT_EQ(read->at("(anonymous)").commands, 1e6);
}

TEST(TenantRates, AreSumsOfDevicesAndDevicesOfTenants) {
  constexpr std::string_view kTwo =
      "fairlead_gpu_sessions 1\n"
      "fairlead_gpu_device_info{device=\"0\",name=\"host\"} 1\n"
      "fairlead_gpu_device_info{device=\"1\",name=\"cuda:3\"} 1\n"
      "fairlead_gpu_device_info{device=\"2\",name=\"cuda:4\"} 1\n"
      "fairlead_tenant_memory_bytes{tenant=\"a\",device=\"0\"} 100\n"
      "fairlead_tenant_memory_bytes{tenant=\"a\",device=\"1\"} 20\n"
      "fairlead_tenant_memory_bytes{tenant=\"b\",device=\"1\"} 3\n"
      "fairlead_tenant_memory_bytes{tenant=\"b\",device=\"7\"} 9\n";
  const auto tenants = read_tenants(kTwo);
  ASSERT_TRUE(tenants);
  EXPECT_EQ(tenants->at("a").memory_bytes, 120);
  const auto devices = read_devices(kTwo);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices.at("0 host").memory_bytes, 100);
  EXPECT_EQ(devices.at("1 cuda:3").memory_bytes, 23);
  EXPECT_EQ(devices.at("2 cuda:4").memory_bytes, 0);
  EXPECT_TRUE(read_devices(kText).empty()) << "an older server";
}

TEST(TenantRates, LinesThatAreNoneOfOursDoNoHarm) {
  for (const std::string_view line :
       {"", "x", "fairlead_tenant_sessions", "fairlead_tenant_sessions{", "fairlead_tenant_sessions{tenant=\"a",
        "fairlead_tenant_sessions{tenant=\"a\"", "fairlead_tenant_sessions{tenant=\"a\"} ", "{} 1",
        "fairlead_tenant_ 1", "fairlead_tenant_sessions{tenant=\"\\", "fairlead_tenant_sessions{tenant=\"a\"}x", "#"}) {
    const auto read = read_tenants(std::string("fairlead_gpu_sessions 1\n") + std::string(line) + "\n");
    ASSERT_TRUE(read) << line;
    EXPECT_TRUE(read->empty() || read->begin()->second.sessions == 0) << line;
  }
  const auto foreign = read_tenants("node_load1 0.5\n");
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message(), HasSubstr("no metrics of a GPU server"));
}

TEST(TenantRates, AreOfTheTimeBetween) {
  const auto before = *read_tenants(kText);
  auto now = before;
  now["a"].commands += 500;
  now["a"].service_seconds += 0.5;
  now["b"].commands = 100;  // it has come since
  now["b"].service_seconds = 1.5;
  now["(anonymous)"].commands = 10;  // the server was started anew
  const std::vector<TenantRates> all = rates(before, now, 2);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "(anonymous)");
  EXPECT_DOUBLE_EQ(all[0].commands, 5);
  EXPECT_DOUBLE_EQ(all[1].commands, 250);
  EXPECT_DOUBLE_EQ(all[1].busy, 0.25);
  EXPECT_DOUBLE_EQ(all[1].share, 0.25);
  EXPECT_DOUBLE_EQ(all[2].share, 0.75);
  EXPECT_DOUBLE_EQ(rates(before, before, 1)[1].share, 0) << "nobody had any time";
}

TEST(TenantMetrics, SayAllThatIsCounted) {
  command::TenantStats a, nobody;
  a.name = "a";
  a.devices.resize(2);
  a.devices[0].commands = 11;
  a.devices[1].commands = 12;
  a.devices[1].service_ns = 2'500'000'000;
  a.devices[1].failures = {1, 2, 3};
  a.devices[1].bytes_out = 9;
  nobody.rejections = 4;
  command::ServiceStats service;
  service.sessions = 2;
  service.sessions_refused = 5;
  service.turn_overruns = 6;
  service.resumed = 7;
  a.away = 3;
  std::map<std::string, double> values;
  for (const metrics::Metric& metric : tenant_metrics(service, {nobody, a}, {"host", "cuda:3"})) {
    for (const metrics::Sample& sample : metric.samples) {
      std::string name = metric.name;
      for (const auto& [label, value] : sample.labels) name += " " + label + "=" + value;
      values[name] = sample.value;
    }
  }
  EXPECT_EQ(values["fairlead_gpu_sessions"], 2);
  EXPECT_EQ(values["fairlead_gpu_sessions_total result=refused"], 5);
  EXPECT_EQ(values["fairlead_gpu_turn_overruns_total"], 6);
  EXPECT_EQ(values["fairlead_gpu_resumptions_total"], 7);
  EXPECT_EQ(values["fairlead_tenant_sessions_away tenant=a"], 3);
  EXPECT_EQ(values["fairlead_gpu_device_info device=1 name=cuda:3"], 1);
  EXPECT_EQ(values["fairlead_tenant_commands_total tenant=a device=0"], 11);
  EXPECT_EQ(values["fairlead_tenant_commands_total tenant=a device=1"], 12);
  EXPECT_EQ(values["fairlead_tenant_service_seconds_total tenant=a device=1"], 2.5);
  EXPECT_EQ(values["fairlead_tenant_failures_total tenant=a device=1 scope=context"], 3);
  EXPECT_EQ(values["fairlead_tenant_copied_bytes_total tenant=a device=1 direction=out"], 9);
  EXPECT_EQ(values["fairlead_tenant_rejections_total tenant=(anonymous)"], 4);
}

}  // namespace
}  // namespace fairlead::cli
