// Merging shards gives the original report; a report that is not one of the shards is rejected by name.
#include "reports/record/merge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "reports/record/folder_testing.h"
#include "reports/record/provenance.h"

namespace halfmark::reports {
namespace {

Report whole_report(size_t cases) {
  Report whole;
  whole.environment = {{"halfmark", {{"version", "0.1.0"}, {"git", "0123456789ab"}}},
                       {"machine", "bench-01"},
                       {"libraries", {{"onednn", "2.6.3"}}},
                       {"compiler", {{"flags", "-O3"}}},
                       {"devices", {{"cpu", {{"processor", "Example 9000"}, {"memory_bytes", "64"}}}}}};
  std::vector<std::string> ids;
  for (size_t i = 0; i < cases; ++i) {
    Record record;
    record.subject = fmt::format("linear/b{}", i), record.device = "cpu", record.policy = "fp16";
    record.harness = "error";
    record.id = record.subject + "/cpu/fp16/error";
    record.measurements = {{.metric = "error.nmse", .at = "output", .value = 0.5 * static_cast<double>(i)}};
    ids.push_back(record.id);
    whole.records.push_back(record);
  }
  whole.run = {"2026-01-31T12:00:00Z", 8, "halfmark run", 42, "smoke", true, cases, "", plan_of(ids)};
  return whole;
}

// Distributed in turn, as the program does it.
std::vector<NamedReport> dealt(const Report& whole, size_t parts) {
  std::vector<NamedReport> shards;
  for (size_t part = 1; part <= parts; ++part) {
    NamedReport named{fmt::format("{}.json", part), whole};
    named.report.records.clear();
    for (size_t i = part - 1; i < whole.records.size(); i += parts) named.report.records.push_back(whole.records[i]);
    named.report.run.shard = fmt::format("{}/{}", part, parts);
    named.report.run.planned = named.report.records.size();
    named.report.run.seconds = static_cast<double>(part);
    named.report.run.started = fmt::format("2026-01-31T12:00:0{}Z", 9 - part);
    named.report.environment["machine"] = fmt::format("bench-0{}", part);
    shards.push_back(std::move(named));
  }
  return shards;
}

std::string refusal(const std::vector<NamedReport>& shards) {
  return complaint([&] { merge(shards, false); });
}

// The error of merging three shards after a change of the second.
std::string refusal_after(const std::function<void(Report&)>& change) {
  std::vector<NamedReport> shards = dealt(whole_report(8), 3);
  change(shards[1].report);
  return refusal(shards);
}

TEST(Merge, GivesBackTheWholeInTheOrderOfThePlan) {
  for (const size_t cases : {1, 2, 3, 7, 8, 40}) {
    const Report whole = whole_report(cases);
    for (const size_t parts : {1, 2, 3, 7}) {
      std::vector<NamedReport> shards = dealt(whole, parts);
      std::reverse(shards.begin(), shards.end());  // the order of the files has no effect
      Report merged = merge(shards, false);
      EXPECT_EQ(merged.run.started, fmt::format("2026-01-31T12:00:0{}Z", 9 - parts)) << "the earliest";
      EXPECT_EQ(merged.run.seconds, static_cast<double>(parts * (parts + 1)) / 2);
      merged.run.started = whole.run.started, merged.run.seconds = whole.run.seconds;
      merged.environment = whole.environment;
      EXPECT_EQ(to_json(merged), to_json(whole)) << cases << " cases in " << parts << " parts";
    }
  }
}

TEST(Merge, KeepsWhereEachShardRan) {
  std::vector<NamedReport> shards = dealt(whole_report(8), 2);
  shards[1].report.environment["devices"]["sim:hopper"] = {{"stands_for", "H100"}};
  shards[1].report.environment["devices"]["cpu"]["memory_bytes"] = "128";
  shards[0].report.environment["devices"]["cuda:0"] = {{"name", "H100"}, {"uuid", "GPU-1"}, {"power limit", "700 W"}};
  shards[1].report.environment["devices"]["cuda:0"] = {{"name", "H100"}, {"uuid", "GPU-2"}, {"nvml", "none"}};
  const auto environment = merge(shards, false).environment;
  EXPECT_EQ(environment["machine"], "bench-01");
  EXPECT_EQ(environment["shards"][1]["machine"], "bench-02");
  EXPECT_EQ(environment["shards"][1]["shard"], "2/2");
  EXPECT_EQ(environment["shards"][1]["devices"]["cpu"]["memory_bytes"], "128");
  EXPECT_FALSE(environment["shards"][0].contains("machine"));
  EXPECT_EQ(environment["devices"]["sim:hopper"]["stands_for"], "H100") << "a device that one shard alone has used";
}

// jq writes 1 for 1.0, other tools the reverse.
TEST(Merge, TakesNumbersOfTheEnvironmentAsNumbers) {
  const auto shards_with = [](const nlohmann::ordered_json& first, const nlohmann::ordered_json& second) {
    std::vector<NamedReport> shards = dealt(whole_report(8), 2);
    for (NamedReport& shard : shards) shard.report.environment["compiler"]["level"] = first;
    shards[1].report.environment["compiler"]["level"] = second;
    return shards;
  };
  for (const nlohmann::ordered_json& first : {nlohmann::ordered_json(1000.0), nlohmann::ordered_json(1000),
                                              nlohmann::ordered_json(1000U), nlohmann::ordered_json::parse("1e3")})
    for (const nlohmann::ordered_json& second : {nlohmann::ordered_json(1000.0), nlohmann::ordered_json(1000)}) {
      EXPECT_FALSE(merge(shards_with(first, second), false).environment["shards"][1].contains("compiler"));
      EXPECT_FALSE(merge(shards_with({{"of", {first}}}, {{"of", {second}}}), false)
                       .environment["shards"][1]
                       .contains("compiler"));
    }
  EXPECT_SAYS(refusal(shards_with(1000.0, 1000.5)), "compiler.level is 1000 and 1000.5");
  EXPECT_SAYS(refusal(shards_with(1000.0, "1000.0")), "compiler.level is 1000 and 1000.0");
  EXPECT_SAYS(refusal(shards_with(1, true)), "compiler.level is 1 and true");
}

TEST(Merge, RefusesWhatDoesNotBelongTogether) {
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.seed = 7; }),
              "1.json and 2.json do not belong together: the seed is 42 and 7");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.suite = "full"; }), "the suite is smoke and full");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.plan.hash = "ab"; }),
              "the plan of cases, networks and data is 8 cases");
  EXPECT_SAYS(refusal_after([](Report& r) { r.environment["halfmark"]["git"] = "ff"; }),
              "halfmark.git is 0123456789ab and ff");
  EXPECT_SAYS(refusal_after([](Report& r) { r.environment["compiler"]["flags"] = "-O0"; }),
              "compiler.flags is -O3 and -O0");
  EXPECT_SAYS(refusal_after([](Report& r) { r.environment["libraries"]["onednn"] = "3.1"; }),
              "libraries.onednn is 2.6.3 and 3.1");
  EXPECT_SAYS(refusal_after([](Report& r) { r.environment["libraries"].erase("onednn"); }),
              "libraries.onednn is 2.6.3 and nothing");
  EXPECT_SAYS(refusal_after([](Report& r) { r.environment["devices"]["cpu"]["processor"] = "Other"; }),
              "devices.cpu.processor is Example 9000 and Other");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.shard = ""; }), "2.json: is not a shard");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.plan = {}; }), "2.json: has no plan");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.shard = "4/3"; }), "2.json: its shard is '4/3'");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.shard = "1/3"; }), "1.json and 2.json are both shard 1/3");
  EXPECT_SAYS(refusal_after([](Report& r) { r.run.shard = "2/4"; }), "has 2 cases, and there are 3 records");
  EXPECT_SAYS(refusal_after([](Report& r) { r.records.pop_back(); }), "has 3 cases, and there are 2 records");
  EXPECT_SAYS(refusal_after([](Report& r) { std::swap(r.records[0], r.records[1]); }), "do not match the plan");
  EXPECT_SAYS(refusal_after([](Report& r) { r.records[0].id = "linear/b0/cpu/fp16/error"; }),
              "1.json and 2.json both have a record linear/b0/cpu/fp16/error");
  auto other = dealt(whole_report(8), 3);
  other[1] = dealt(whole_report(8), 4)[1];
  EXPECT_SAYS(refusal(other), "1.json and 2.json do not belong together: the number of shards is 3 and 4");
  EXPECT_SAYS(refusal({}), "nothing to merge");
}

TEST(Merge, MissesAShardUnlessToldNotTo) {
  std::vector<NamedReport> shards = dealt(whole_report(8), 4);
  shards.erase(shards.begin() + 1);
  EXPECT_SAYS(refusal(shards), "1 of 4 shards are missing (2/4); name their reports too or add --partial");
  const Report merged = merge(shards, true);
  EXPECT_FALSE(merged.run.complete);
  EXPECT_EQ(merged.run.planned, 8u);
  std::vector<std::string> subjects;
  for (const Record& record : merged.records) subjects.push_back(record.subject.substr(8));
  EXPECT_EQ(subjects, (std::vector<std::string>{"0", "2", "3", "4", "6", "7"}));
}

TEST(Merge, MissesTheRestOfAShardThatWasCutShort) {
  const auto cut_short = [](Report& report) {
    report.records.pop_back();
    report.run.complete = false;
  };
  EXPECT_SAYS(refusal_after(cut_short), "2.json: is partial, 2 of 3 cases; finish it with --resume or add --partial");
  std::vector<NamedReport> shards = dealt(whole_report(8), 3);
  cut_short(shards[1].report);
  EXPECT_NO_THROW(merge(shards, true));
}

TEST(Provenance, ReadsShards) {
  for (const char* wrong : {"", "1", "1/", "/2", "0/2", "3/2", "1/0", "-1/2", "1/2 ", " 1/2", "1/2/3", "1.5/2", "+1/2",
                            "99999999999999999999/99999999999999999999"})
    EXPECT_FALSE(shard_named(wrong)) << wrong;
  const auto shard = shard_named("2/8");
  ASSERT_TRUE(shard);
  EXPECT_EQ(shard->part, 2u);
  EXPECT_EQ(shard->parts, 8u);
}

TEST(Provenance, ShardsCoverAPlanOnce) {
  for (uint64_t cases = 0; cases < 30; ++cases) {
    for (uint64_t parts = 1; parts < 12; ++parts) {
      std::vector<int> seen(cases);
      for (uint64_t part = 1; part <= parts; ++part) {
        const Shard shard{part, parts};
        for (uint64_t i = 0; i < shard.size(cases); ++i) ++seen.at(shard.place(i));
      }
      EXPECT_EQ(seen, std::vector<int>(cases, 1)) << cases << " in " << parts;
    }
  }
}

TEST(Provenance, APlanIsItsIdsInTheirOrder) {
  const std::string hash = plan_of({"a", "bc"}).hash;
  EXPECT_EQ(plan_of({"a", "bc"}).hash, hash);
  EXPECT_NE(plan_of({"bc", "a"}).hash, hash);
  EXPECT_NE(plan_of({"ab", "c"}).hash, hash);
  EXPECT_NE(plan_of({"a", "bc", ""}).hash, hash);
  EXPECT_EQ(plan_of({"a", "bc"}).cases, 2u);
}

TEST(Provenance, LooksAtWhatResultsDependOn) {
  const nlohmann::ordered_json here = whole_report(1).environment;
  auto there = here;
  there["machine"] = "bench-07";
  there["memory_bytes"] = 7;
  there["devices"]["cpu"]["memory_bytes"] = "7";
  there["devices"]["cuda:0"] = {{"name", "Example GPU"}};  // one of them has not opened it
  EXPECT_FALSE(difference_of(here, there));
  there["variables"] = {{"OMP_NUM_THREADS", "1"}};
  const auto difference = difference_of(here, there);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->key, "variables.OMP_NUM_THREADS");
  EXPECT_EQ(difference->here, "nothing");
  EXPECT_EQ(difference->there, "1");
}

}  // namespace
}  // namespace halfmark::reports
