// The tables of experiments with a row for each place.
#include "reports/text/places_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

bool finds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Record experiment_at(const std::string& harness, std::vector<Measurement> measurements) {
  Record record;
  record.id = "mlp/b8/cpu/amp-fp16/" + harness, record.subject = "mlp/b8", record.device = "cpu";
  record.policy = "amp-fp16", record.harness = harness, record.measurements = std::move(measurements);
  return record;
}

Record cast_cache_record() {
  Record record = experiment_at("cast_cache", {{.metric = "cast_cache.casts", .at = "on", .value = 3},
                                               {.metric = "cast_cache.bytes", .at = "on", .value = 2048, .unit = "B"},
                                               {.metric = "cast_cache.casts", .at = "off", .value = 5},
                                               {.metric = "cast_cache.bytes", .at = "off", .value = 0, .unit = "B"},
                                               {.metric = "cast_cache.saved_casts", .value = 2},
                                               {.metric = "work.parameters", .value = 17}});
  record.expectation = Expectation{"cast_cache.different", "parameter", "==", 0, 0, true};
  return record;
}

TEST(PlacesText, HasARowForEachPlaceAndATableForEqualPlaces) {
  Report report;
  report.records = {cast_cache_record()};
  EXPECT_EQ(places_text(report, {.width = 80}),
            "\nmlp/b8/cpu/amp-fp16/cast_cache\n"
            "at   casts  bytes\n"
            "on       3  2 KiB\n"
            "off      5    0 B\n"
            "saved_casts 2\n");
}

TEST(PlacesText, ANumberAtSomeOfThePlacesHasAColumnWithGaps) {
  Report report;
  report.records = {experiment_at("sensitivity", {{.metric = "sensitivity.half_alone", .at = "fc1", .value = 1},
                                                  {.metric = "sensitivity.half_alone", .at = "fc2", .value = 2},
                                                  {.metric = "sensitivity.half_alone", .at = "all", .value = 3},
                                                  {.metric = "sensitivity.rank", .at = "fc1", .value = 2},
                                                  {.metric = "sensitivity.rank", .at = "fc2", .value = 1}})};
  EXPECT_TRUE(finds(places_text(report, {.width = 80}),
                    "\nat   half_alone  rank\nfc1           1     2\nfc2           2     1\nall           3\n"))
      << places_text(report, {.width = 80});
}

TEST(PlacesText, IsPartOfShowThoughTheCaseHasAnExpectedOutcome) {
  NamedReport named{"r.json", {}};
  named.report.records = {cast_cache_record()};
  const std::string text = show(named, {.width = 80});
  EXPECT_TRUE(finds(text, "on       3  2 KiB\n")) << text;
  EXPECT_TRUE(finds(text, "cases with a known outcome")) << text;
  EXPECT_FALSE(finds(text, "negative")) << text;
}

TEST(PlacesText, ShowsStandardErrorsAndTheFirstPlacesOfMany) {
  std::vector<Measurement> layers;
  for (int i = 0; i < 15; ++i) {
    layers.push_back({.metric = "sensitivity.half_alone", .at = fmt::format("layer{}", i), .value = 0.5});
    layers.back().standard_error = 0.25;
  }
  Report report;
  report.records = {experiment_at("sensitivity", layers)};
  const std::string text = places_text(report, {.width = 80});
  EXPECT_TRUE(finds(text, "layer11  0.5 +-0.25\nand 3 places more (--all)\n")) << text;
  EXPECT_TRUE(finds(places_text(report, {.width = 80, .all = true}), "layer14  0.5 +-0.25\n"));
}

// The worst number of an evaluation over all forms says nothing, so that its records have no table of figures.
TEST(Show, PrintsNoHeadingWithNothingBelowIt) {
  NamedReport named{"r.json", {}};
  named.report.records = {
      experiment_at("evaluation", {{.metric = "evaluation.peak_bytes", .at = "fp32", .value = 4096, .unit = "B"},
                                   {.metric = "evaluation.peak_bytes", .at = "half", .value = 2048, .unit = "B"}})};
  named.report.records[0].axes = {{"part", "memory"}};
  const std::string text = show(named, {.width = 80});
  EXPECT_FALSE(finds(text, "mlp/b8 on cpu")) << text;
  EXPECT_TRUE(finds(text, "at    peak_bytes\nfp32       4 KiB\nhalf       2 KiB\n")) << text;
  named.report.records[0].status = Status::failed, named.report.records[0].reason = "because";
  named.report.records[0].measurements.clear();
  EXPECT_TRUE(finds(show(named, {.width = 80}), "mlp/b8 on cpu\namp-fp16 failed: because\n"));
}

TEST(PlacesText, LeavesOtherHarnessesToTheTablesOfTheSubjects) {
  Report report;
  report.records = {experiment_at("error", {{.metric = "error.nmse", .at = "output", .value = 1}}),
                    experiment_at("cast_lists", {{.metric = "cast_lists.verdict", .at = "exp", .value = 1}})};
  EXPECT_EQ(places_text(report, {.width = 80}), "");
}

}  // namespace
}  // namespace halfmark::reports
