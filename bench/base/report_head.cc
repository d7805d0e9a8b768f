#include "bench/base/report_head.h"

#include <iterator>

#include "base/version/build_info.h"

namespace fairlead::bench {

Json::Object report_head(std::string_view schema, Json::Object rest) {
  const BuildInfo& build = build_info();
  Json::Object report{
      {"schema", schema}, {"version", build.version}, {"commit", build.commit}, {"build_type", build.build_type}};
  report.insert(report.end(), std::move_iterator(rest.begin()), std::move_iterator(rest.end()));
  return report;
}

}  // namespace fairlead::bench
