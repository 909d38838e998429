// halfmark claims from end to end: reports that do not decide, files that cannot be written, options that have no effect, what the
// verdicts say of their numbers, and a run that SIGKILL ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"
#include "reports/record/journal.h"
#include "reports/record/paths_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

class ClaimsProgram : public ProcessTest {
 protected:
  using Json = nlohmann::ordered_json;

  static inline const std::string kTwo = "claims S0-2 S0-10 --device cpu";  // three cases, below a second

  Report measured(const std::string& file) const {
    EXPECT_EQ(halfmark(kTwo + " -o " + file).code, 0);
    return Report::load(folder_ / file);
  }
  Json json_in(const std::string& file) const { return Json::parse(read(folder_ / file)); }
  static Json verdict(const Json& verdicts, const std::string& id) {
    for (const Json& one : verdicts["verdicts"])
      if (one["id"] == id) return one;
    ADD_FAILURE() << "no verdict on " << id;
    return {};
  }
  // Judges the report and returns the verdicts; expects them to be undecided.
  Json judged(const Report& report, const std::string& options = "", int code = 3) const {
    report.save(folder_ / "given.json");
    const Result result = halfmark(kTwo + " --from given.json --json verdicts.json " + options);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.err, "");
    out_ = result.out;
    return json_in("verdicts.json");
  }
  static std::string without_breaks(const std::string& text) {
    std::string one;
    std::istringstream words(text);
    for (std::string word; words >> word;) one += (one.empty() ? "" : " ") + word;
    return one;
  }
  mutable std::string out_;
};

TEST_F(ClaimsProgram, AReportThatWasChangedAfterItWasWrittenDecidesNothing) {
  const Report whole = measured("whole.json");
  const auto reason_after = [&](const std::function<void(Record&)>& change) -> std::string {
    Report changed = whole;
    const auto record = std::ranges::find_if(changed.records,
                                             [](const Record& one) { return one.id.ends_with("/mistake=no_unscale"); });
    if (record == changed.records.end()) return "the report has no such case";
    change(*record);
    const Json found = verdict(judged(changed), "S0-10");
    EXPECT_EQ(found["verdict"], "INCONCLUSIVE");
    return found["reason"];
  };
  const auto evidence = [](Record& record) -> Measurement& {
    return *std::ranges::find_if(record.measurements, [](const Measurement& one) {
      return one.metric == "lint.evidence" && one.at == "not_unscaled";
    });
  };
  const std::string edited = "the report was changed after it was written";
  EXPECT_TRUE(says(reason_after([&](Record& r) { evidence(r).value *= 2; }), edited));
  EXPECT_TRUE(says(reason_after([&](Record& r) { r.fingerprint = ""; }), edited));
  EXPECT_TRUE(says(reason_after([](Record& r) { r.axes.clear(); }), "its axes are not those of its id"));
  EXPECT_TRUE(says(reason_after([&](Record& r) { evidence(r).unit = "s"; }), "has the unit 's', not '1'"));
  EXPECT_TRUE(says(reason_after([&](Record& r) { evidence(r).kind = Kind::sampled; }), "is of the kind sampled"));
  EXPECT_TRUE(says(reason_after([&](Record& r) { r.repro += " --seed 3"; }),
                   "was measured with the seed 3, the report says 0"));
}

TEST_F(ClaimsProgram, AReportOfAnotherProgramIsJudgedWithANote) {
  Report whole = measured("whole.json");
  (void)judged(whole, "", 0);
  EXPECT_FALSE(says(out_, "the report was written by")) << out_;
  whole.environment["halfmark"]["git"] = "0123456789ab";
  (void)judged(whole, "", 0);
  EXPECT_TRUE(says(out_, "note: the report was written by halfmark 0.1.0 (0123456789ab), this is halfmark 0.1.0 ("))
      << out_;
}

// What no fingerprint covers: the file itself is edited.
TEST_F(ClaimsProgram, AReportWhoseFileWasEditedDecidesNothing) {
  measured("whole.json");
  const std::string text = read(folder_ / "whole.json");
  const auto reason_with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string edited = text;
    for (size_t at = edited.find(from); at != edited.npos; at = edited.find(from, at + to.size()))
      edited.replace(at, from.size(), to);
    EXPECT_TRUE(edited != text) << from;
    std::ofstream(folder_ / "edited.json") << edited;
    EXPECT_EQ(halfmark(kTwo + " --from edited.json --json verdicts.json").code, 3) << from;
    return verdict(json_in("verdicts.json"), "S0-10")["reason"];
  };
  const std::string wrong = "its checksum is wrong";
  EXPECT_TRUE(says(reason_with("\"unit\":\"1\",", "\"unit\":\"1\",\"standard_error\":0.001,"), wrong));
  EXPECT_TRUE(says(reason_with("\"met\":true", "\"met\":false"), wrong));
  EXPECT_TRUE(says(reason_with("\"checksum\":", "\"sum\":"), wrong));
  EXPECT_TRUE(says(reason_with("\"seed\": 0", "\"seed\": 5"), "the report says 5"));
}

TEST_F(ClaimsProgram, APartialReportDecidesTheClaimsWhoseCasesItHoldsAndSaysSo) {
  const Report whole = measured("whole.json");
  const Json decided = judged(whole, "", 0);
  EXPECT_EQ(decided["complete"], true);
  EXPECT_TRUE(decided["remarks"].empty());
  EXPECT_FALSE(says(out_, "partial")) << out_;
  Report partial = whole;
  partial.run.complete = false;
  std::erase_if(partial.records, [](const Record& record) { return record.axes.contains("optimizer"); });
  ASSERT_EQ(partial.records.size() + 1, whole.records.size());
  const Json open = judged(partial, "--markdown verdicts.md");
  EXPECT_EQ(open["complete"], false);
  const std::string remark = "the report holds 2 of 3 cases: the run was cut short";
  EXPECT_TRUE(says(open["remarks"][0], remark)) << open["remarks"];
  EXPECT_TRUE(says(out_, remark)) << out_;
  EXPECT_TRUE(says(read(folder_ / "verdicts.md"), remark));
  EXPECT_EQ(verdict(open, "S0-2"), verdict(decided, "S0-2")) << "its cases are there";
  EXPECT_EQ(verdict(open, "S0-10")["verdict"], "INCONCLUSIVE");
  EXPECT_TRUE(says(verdict(open, "S0-10")["reason"], "the report, which is partial, has no case convnet"))
      << verdict(open, "S0-10");
}

TEST_F(ClaimsProgram, ACaseOfAnotherVersionNetworkOrDataDecidesNothing) {
  const Report whole = measured("whole.json");
  const std::pair<std::function<void(Record&)>, std::string> table[] = {
      {[](Record& one) { one.case_version = 2; }, "is version 2 of the case, this program decides by version 1"},
      {[](Record& one) { one.case_version = 0; }, "is version 0 of the case, this program decides by version 1"},
      {[](Record& one) { one.definition = "0123456789abcdef"; }, "was measured on another network"},
      {[](Record& one) { one.data.emplace().name = "digits"; },
       "was measured on digits, the claims are about drawn data"}};
  for (const auto& [change, reason] : table) {
    Report other = whole;
    for (Record& record : other.records)
      if (record.harness == "dtypes") change(record);
    const Json verdicts = judged(other);
    EXPECT_EQ(verdict(verdicts, "S0-2")["verdict"], "INCONCLUSIVE") << reason;
    EXPECT_TRUE(says(verdict(verdicts, "S0-2")["reason"], reason)) << verdict(verdicts, "S0-2")["reason"];
    EXPECT_TRUE(says(without_breaks(out_), reason)) << out_;
    EXPECT_NE(verdict(verdicts, "S0-10")["verdict"], "INCONCLUSIVE");
  }
  Report older = whole;  // of before the definitions
  for (Record& record : older.records) record.definition.clear();
  judged(older, "", 0);
}

TEST_F(ClaimsProgram, AReportWithoutACaseOfTheClaimsIsRefused) {
  measured("cpu.json");
  expect_complaint("claims S0-2 --device sim:hopper --from cpu.json", "its devices: cpu; name one with --device");
  expect_complaint("claims S0-14 --device cpu --from cpu.json", "holds none of the cases of these claims on cpu");
  EXPECT_EQ(halfmark("claims S0-9 --device cpu --from cpu.json").code, 0) << "it has no case at all";
  // The quick case of S0-13 has another id than the full one.
  ASSERT_EQ(halfmark("claims S0-13 --quick --device cpu -o quick.json").code, 0);
  expect_complaint("claims S0-13 --device cpu --from quick.json",
                   "more cases of a quick run than of the full one: add --quick");
  Report full = Report::load(folder_ / "quick.json");
  ASSERT_EQ(full.records.size(), 1u);
  full.records[0].axes.erase("seeds"), full.records[0].axes.erase("steps");
  const std::string id = halfmark("claims S0-13 --dry-run --device cpu").out;
  full.records[0].id = id.substr(0, id.size() - 1);
  full.save(folder_ / "full.json");
  expect_complaint("claims S0-13 --quick --device cpu --from full.json", "leave out --quick");
}

TEST_F(ClaimsProgram, AFileThatCannotBeWrittenIsSaidBeforeAnythingIsMeasured) {
  std::ofstream(folder_ / "kept.json") << "precious";
  for (const auto& [options, about] : {std::pair{"--json absent/v.json", "absent/v.json: cannot be written"},
                                       {"--json kept.json --markdown absent/v.md", "absent/v.md: cannot be written"},
                                       {"--json . ", ".: cannot be written: Is a directory"},
                                       {"--json kept.json --markdown ./kept.json", "name the same file"},
                                       {"--json kept.json -o absent/report.json", "absent"},
                                       {"--json new.json -o absent/report.json", "absent"},
                                       {"--json whole.json -o whole.json", "--output and --json name the same file"}}) {
    expect_complaint(kTwo + " " + options, about);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "claims_report.json")) << options << ": something was measured";
    EXPECT_FALSE(std::filesystem::exists(folder_ / "new.json")) << "a failed run leaves no empty file";
    EXPECT_EQ(read(folder_ / "kept.json"), "precious");
  }
  if (::geteuid() == 0) return;  // the superuser may write everywhere
  std::filesystem::permissions(folder_ / "kept.json", std::filesystem::perms::owner_read);
  expect_complaint(kTwo + " --json kept.json", "kept.json: cannot be written");
}

TEST_F(ClaimsProgram, AreWrittenToPipesAndDevices) {
  measured("whole.json");
  const Result piped = shell("\"$HALFMARK\" " + kTwo + " --from whole.json --json /dev/stdout | cat");
  EXPECT_EQ(piped.err, "");
  const size_t begin = piped.out.find("\n{\n");
  ASSERT_NE(begin, std::string::npos) << piped.out;
  EXPECT_EQ(Json::parse(piped.out.substr(begin))["verdicts"].size(), 2u);
  EXPECT_EQ(halfmark(kTwo + " --from whole.json --json /dev/null --markdown /dev/null").code, 0);
}

TEST_F(ClaimsProgram, WhatHasNoEffectBesideFromIsRefused) {
  measured("whole.json");
  const std::string from = kTwo + " --from whole.json ";
  for (const auto& [options, about] : {std::pair{"--seed 0", "takes no --seed"},
                                       {"--seed 7", "takes no --seed"},
                                       {"-o other.json", "takes no --output"},
                                       {"--output claims_report.json", "takes no --output"},
                                       {"--resume", "takes no --resume"},
                                       {"--dry-run", "takes no --dry-run"},
                                       {"--seed 1 -o x.json", "takes no --seed and no --output"}})
    expect_complaint(from + options, about);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other.json"));
}

TEST_F(ClaimsProgram, AnUnknownClaimIsSaidWithTheOnesLikeIt) {
  expect_complaint("claims S99", "unknown claim 'S99' (halfmark list claims shows all)");
  expect_complaint("claims S0-2x", "unknown claim 'S0-2x'; did you mean S0-2");
  expect_complaint("claims S0-2 'T*'", "unknown claim 'T*'");
  expect_complaint("claims --json= S0-2", "--json needs a value");
  EXPECT_LT(halfmark("claims S99").err.size(), 100u) << "not the list of all";
}

TEST_F(ClaimsProgram, TheVerdictsSayWhetherTheRunWasQuick) {
  // S0-2 measures the same in both, S0-13 fewer seeds and steps.
  const std::string two = "claims S0-2 S0-13 --device cpu --json verdicts.json --markdown verdicts.md -o quick.json";
  const Result result = halfmark(two + " --quick");
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  const Json quick = json_in("verdicts.json");
  const std::string remark = "a quick run: fewer seeds, steps or samples for 1 of 2 claims";
  EXPECT_EQ(quick["quick"], true);
  EXPECT_EQ(verdict(quick, "S0-2")["quick"], false);
  EXPECT_EQ(verdict(quick, "S0-13")["quick"], true);
  EXPECT_TRUE(says(quick["remarks"][0], remark));
  EXPECT_TRUE(says(result.out, remark)) << result.out;
  EXPECT_TRUE(says(read(folder_ / "verdicts.md"), remark));
  // The report of the quick run answers the full claims in part only, and a line says why.
  const Result full = halfmark("claims S0-2 S0-13 --device cpu --from quick.json --json verdicts.json");
  EXPECT_EQ(full.code, 3);
  EXPECT_TRUE(says(full.out, "more cases of a quick run than of the full one: add --quick")) << full.out;
  EXPECT_EQ(json_in("verdicts.json")["quick"], false);
  EXPECT_EQ(verdict(json_in("verdicts.json"), "S0-13")["verdict"], "INCONCLUSIVE");
}

// S4-5 has 29 cases.
TEST_F(ClaimsProgram, KilledAndResumedItLosesNothingMeasuresNothingTwiceAndEndsInTheSameVerdicts) {
  const std::string many = "claims S4-5 S0-2 --quick --device cpu --json ";
  ASSERT_EQ(halfmark(many + "whole_verdicts.json -o whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  ASSERT_GT(whole.records.size(), 10u);
  const std::filesystem::path journal = journal_of(folder_ / "report.json");
  std::set<size_t> finished;
  std::map<std::string, Json> kept;       // records of the journal before each resumption
  for (const size_t lines : {4u, 12u}) {  // killed twice; a line for each record after the one of the run
    const pid_t child = start_halfmark(many + "verdicts.json -o report.json" + (finished.empty() ? "" : " --resume"));
    ASSERT_TRUE(wait_until([&] { return lines_in(journal) >= lines || has_ended(child); }));
    ::kill(child, SIGKILL);
    EXPECT_EQ(wait(child).code, 128 + SIGKILL) << "it had ended before";
    EXPECT_FALSE(std::filesystem::exists(folder_ / "verdicts.json"));
    const Report so_far = Journal::read(journal);
    for (const Record& record : so_far.records) {
      const auto [found, is_new] = kept.try_emplace(record.id, to_json(record));
      EXPECT_EQ(found->second, to_json(record)) << record.id << " was measured again";
    }
    EXPECT_TRUE(finished.insert(kept.size()).second) << "the second start measured nothing";
  }
  const Result resumed = halfmark(many + "verdicts.json -o report.json --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  const Report report = Report::load(folder_ / "report.json");
  EXPECT_TRUE(report.run.complete);
  EXPECT_EQ(times_aside(report), times_aside(whole));
  EXPECT_GE(kept.size(), 11u);
  for (const Record& record : report.records)  // with its seconds, which differ between two measurements
    if (const auto found = kept.find(record.id); found != kept.end()) {
      EXPECT_EQ(to_json(record), found->second) << record.id << " was measured again";
    }
  EXPECT_FALSE(std::filesystem::exists(journal));
  const auto verdicts_in = [&](const std::string& file) { return json_in(file)["verdicts"]; };
  EXPECT_EQ(verdicts_in("verdicts.json"), verdicts_in("whole_verdicts.json"));
  expect_complaint("claims S0-2 --device cpu -o report.json --resume --json report.json", "name the same file");
}

TEST_F(ClaimsProgram, AreListedWithWhereTheyCanBeDecided) {
  const Result text = halfmark("list claims");
  EXPECT_EQ(text.code, 0) << text.err;
  const Json list = Json::parse(halfmark("list claims --json").out);
  const Json claims = Json::parse(read(std::filesystem::path(test_folders::source()) / "reports/claims/claims.json"));
  ASSERT_EQ(list.size(), claims["entries"].size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json &row = list[i], &claim = claims["entries"][i];
    EXPECT_EQ(row["id"], claim["id"]);
    EXPECT_EQ(row["claim"], claim["claim"]);
    EXPECT_EQ(row["decided_on"] == "nowhere", claim.contains("not_testable")) << row["id"];
    EXPECT_EQ(row["decided_on"] == "any device", !claim.contains("not_testable") && !claim.contains("needs"));
    EXPECT_TRUE(says(without_breaks(text.out), without_breaks(fmt::format("{} {} {}", row["id"].get<std::string>(),
                                                                          row["decided_on"].get<std::string>(),
                                                                          row["claim"].get<std::string>()))))
        << row["id"];
  }
  EXPECT_FALSE(says(halfmark("list").out, "S0-1 ")) << "a long list, which has to be named";
  EXPECT_EQ(Json::parse(halfmark("list claims S0-1 --json").out).size(), 1u);
  expect_complaint("list claim", "did you mean claims");
}

}  // namespace
}  // namespace halfmark::bench
