#include "reports/record/checksum.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "reports/record/paths_testing.h"
#include "reports/record/record_reading.h"
#include "reports/record/sample_report_testing.h"

namespace halfmark::reports {
namespace {

// Any change of a record after it was written shows in its checksum; another order of its members does not.
TEST(Checksum, SaysWhetherARecordIsAsItWasWritten) {
  const nlohmann::ordered_json written = to_json(sample_report().records[0]);
  EXPECT_EQ(record_from_json(written, "r.json").intact, Intact::yes);
  const nlohmann::json sorted = written;
  EXPECT_EQ(record_from_json(nlohmann::ordered_json::parse(sorted.dump(4)), "r.json").intact, Intact::yes);
  nlohmann::ordered_json shorter = written;
  shorter["expectation"]["limit"] = 1, shorter["series"][0]["x"] = {0, 1, 2};
  nlohmann::ordered_json longer = written;
  longer["expectation"]["limit"] = 1.0, longer["series"][0]["x"] = {0.0, 1.0, 2.0};
  EXPECT_EQ(checksum_of(shorter), checksum_of(longer));
  // Edges of a histogram, as jq 1.6 writes them again: 2^55 with 17 digits of its 18.
  shorter["series"][0]["x"] = nlohmann::ordered_json::parse("[18014398509481984, 36028797018963970]");
  longer["series"][0]["x"] = nlohmann::ordered_json::parse("[1.8014398509481984e+16, 3.6028797018963968e+16]");
  EXPECT_EQ(checksum_of(shorter), checksum_of(longer));
  nlohmann::ordered_json changed = written;
  changed["measurements"][0]["standard_error"] = 1e-9;
  EXPECT_EQ(record_from_json(changed, "r.json").intact, Intact::no);
  changed = written, changed["status"] = "suspect";
  EXPECT_EQ(record_from_json(changed, "r.json").intact, Intact::no);
  changed = written, changed["axes"].clear();
  EXPECT_EQ(record_from_json(changed, "r.json").intact, Intact::no);
  changed = written, changed.erase("numerics");
  EXPECT_EQ(record_from_json(changed, "r.json").intact, Intact::no);
  changed = written, changed["unknown"] = 1;
  EXPECT_EQ(record_from_json(changed, "r.json").intact, Intact::no);
  changed = written, changed.erase("checksum");
  EXPECT_EQ(record_from_json(changed, "r.json").intact, Intact::unknown);
  const Report report =
      Report::load(std::filesystem::path(test_folders::source()) / "reports/fixtures/report-1.7.json");
  for (const Record& record : report.records) EXPECT_EQ(record.intact, Intact::yes) << record.id;
}

}  // namespace
}  // namespace halfmark::reports
