// The claims of the program name cases and metrics that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "bench/run/case.h"
#include "bench/run/known_names.h"
#include "bench/run/work.h"
#include "kernels/devices.h"
#include "reports/claims/claims.h"

namespace halfmark::bench {
namespace {

bool has_metric(const Harness& harness, const std::string& metric) {
  const auto is_it = [&](const MetricRow& row) { return row.metric == metric; };
  return std::ranges::any_of(harness.metrics, is_it) || std::ranges::any_of(work_table(), is_it);
}

TEST(ShippedClaims, NameCasesAndMetricsThatExist) {
  for (const bool quick : {false, true})
    for (const Claim& claim : reports::shipped_claims("cpu", quick).claims) {
      for (const std::string& id : claim.cases) {
        const Case one = case_of(id);
        EXPECT_EQ(one.id(), id) << claim.id;
        const auto refusal = accuracy::refusal_of(*one.harness, one.trial(open_device("cpu"), 0));
        EXPECT_FALSE(refusal) << claim.id << ": " << id << ": " << *refusal;
      }
      for (const auto& [name, source] : claim.numbers)
        for (const std::string& id : source.cases)
          EXPECT_TRUE(has_metric(*case_of(id).harness, source.metric))
              << claim.id << ": " << id << " " << source.metric;
    }
}

}  // namespace
}  // namespace halfmark::bench
