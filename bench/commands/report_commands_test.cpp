// End-to-end tests of show, export, history and list: the effect of words and options on the output, and the numbers in
// the tables.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/known_names.h"
#include "bench/run/program_testing.h"
#include "models/policy.h"
#include "reports/outputs/csv.h"
#include "reports/outputs/export.h"
#include "reports/outputs/sample_report.h"
#include "reports/record/report.h"
#include "reports/text/places_text.h"

namespace halfmark::bench {
namespace {

using Json = nlohmann::ordered_json;

class ReportCommands : public ProcessTest {
 protected:
  // Two policies that lose values in one of two tensors each.
  void write_range_report() const {
    Report report;
    for (const char* policy : {"fp16", "bf16"}) {
      Record record;
      record.subject = "mlp/h64", record.device = "cpu", record.policy = policy, record.harness = "range";
      record.id = fmt::format("mlp/h64/cpu/{}/range", policy);
      record.measurements = {{.metric = "range.underflow", .at = "gradient/fc1", .value = 0.25},
                             {.metric = "range.underflow", .at = "activation/fc2", .value = 0}};
      report.records.push_back(record);
    }
    report.save(folder_ / "report.json");
  }
  std::string shown(const std::string& words) const {
    const Result result = halfmark("show report.json " + words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
};

TEST_F(ReportCommands, ShowKeepsToTheRecordsThatItsWordsMatch) {
  write_range_report();
  for (const char* option : {"", " --layers", " --all"}) {
    EXPECT_TRUE(says(shown(option), "bf16")) << option;
    EXPECT_FALSE(says(shown(std::string("fp16") + option), "bf16")) << option;
    EXPECT_TRUE(says(shown(std::string("fp16") + option), "fp16")) << option;
  }
  expect_complaint("show report.json fp17 --layers", "no record matches 'fp17'");
}

// The tables of the subjects leave out a case with an expected outcome. Where it is the result of an experiment and no planted
// fault, its numbers need another table.
TEST_F(ReportCommands, EveryHarnessWithAnExpectedOutcomeHasATable) {
  const std::set<std::string_view> planted = {"batchnorm_drift", "convergence", "lint", "sanity", "training"};
  for (const Harness& harness : all_harnesses())
    if (harness.expects && !planted.contains(harness.name) && harness.name != "cast_lists") {
      EXPECT_TRUE(reports::is_shown_by_place(harness.name)) << harness.name;
    }
}

TEST_F(ReportCommands, RunPrintsTheNumbersOfEveryExperiment) {
  const std::pair<const char*, const char*> table[] = {
      {"linear/b4_i16_o8/cpu/fp16/mantissa", "slope"},
      {"mlp/b8_i16_h24_o10/cpu/amp-fp16/cast_cache", "peak_bytes"},
      {"mlp/b8_i16_h24_o10/cpu/amp-fp16/cast_lists", "operations that autocast keeps in fp32"},
      {"mlp/b8_i16_h24_o10/cpu/fp32/evaluation/part=memory", "peak_bytes"},
      {"mlp/b8_i16_h24_o10/cpu/fp16/sensitivity", "half_alone"},
      {"convnet/b4_c1_s8_w4/cpu/amp-fp16/lint/mistake=no_unscale", "- not_unscaled: "}};
  for (const auto& [id, part] : table) {
    const Result result = halfmark(std::string("run --no-probes --case ") + id);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(says(result.out, part)) << result.out;
    EXPECT_EQ(halfmark("show report.json").out, result.out);
    // No heading is followed by an empty line.
    std::istringstream lines(result.out);
    for (std::string before, line; std::getline(lines, line); before = line)
      EXPECT_FALSE(line.empty() && says(before, " on cpu") && before.starts_with("mlp/")) << result.out;
  }
}

TEST_F(ReportCommands, ShowLayersIsTheTableOfTheTensors) {
  write_range_report();
  EXPECT_FALSE(says(shown(""), "d fc1"));
  EXPECT_TRUE(says(shown("--layers"), "d fc1"));
  EXPECT_FALSE(says(shown("--layers"), "fc2"));
  EXPECT_TRUE(says(shown("--layers --all"), "fc2"));
  EXPECT_FALSE(says(shown(""), "range.underflow")) << "a metric by its name is for --all";
  EXPECT_TRUE(says(shown("--all"), "range.underflow"));
}

TEST_F(ReportCommands, ExportWritesTheFormatThatIsAskedForAndCountsWhatItLeavesOut) {
  const Report report = timed_report();
  report.save(folder_ / "report.json");
  size_t left_out = 0;
  for (const ExportFormat& format : export_formats()) {
    const Exported expected = format.write(report);
    std::string lines;
    for (const std::string& line : expected.left_out)
      lines += fmt::format("halfmark: --to {} leaves out {}\n", format.name, line);
    left_out += expected.left_out.size();
    const Result printed = halfmark(fmt::format("export report.json --to {}", format.name));
    EXPECT_EQ(printed.code, 0) << format.name;
    EXPECT_EQ(printed.out, expected.text) << format.name;
    EXPECT_EQ(printed.err, lines);
    const Result written = halfmark(fmt::format("export report.json --to {} -o out", format.name));
    EXPECT_EQ(written.code, 0) << format.name;
    EXPECT_EQ(written.out, "") << format.name;
    EXPECT_EQ(written.err, lines);
    EXPECT_EQ(read(folder_ / "out"), expected.text) << format.name;
  }
  EXPECT_GT(left_out, 3u);
}

// A shell script replaces python3 here. readers_test.py tests the real conversion if pyarrow is installed.
TEST_F(ReportCommands, ExportHandsTheWholeCsvToTheScriptForParquet) {
  const Report report = timed_report();
  report.save(folder_ / "report.json");
  expect_complaint("export report.json --to parquet", "--to parquet: name a regular file with -o, it is binary");
  expect_complaint("export report.json --to parquet -o /dev/stdout", "--to parquet: name a regular file with -o");
  const auto with_python = [&](const std::string& script) {
    std::filesystem::create_directory(folder_ / "path");
    std::ofstream(folder_ / "path" / "python3") << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(folder_ / "path" / "python3", std::filesystem::perms::owner_all);
    return shell("PATH=\"$PWD/path:$PATH\" \"$HALFMARK\" export report.json --to parquet -o out.parquet");
  };
  const Result done = with_python("test -f \"$1\" && test \"$2\" = -o && cat > \"$3\"");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(read(folder_ / "out.parquet"), measurements_csv_of(report));
  const Result refused = with_python("printf 'no Python package pyarrow' >&2; exit 2");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, "halfmark: --to parquet: no Python package pyarrow\n");
  const Result silent = with_python("kill -9 $$");
  EXPECT_EQ(silent.code, 2);
  EXPECT_EQ(silent.err, "halfmark: --to parquet: python3 failed\n");
}

TEST_F(ReportCommands, HistoryTakesItsOptions) {
  std::filesystem::create_directory(folder_ / "store");
  for (const auto& [name, factor] : {std::pair("anchor", 1.0), std::pair("build", 1.5)}) {
    Report report = timed_report(factor);
    report.environment["halfmark"]["git"] = name;
    report.run.started = factor == 1 ? "2026-01-01T01:00:00Z" : "2026-01-01T02:00:00Z";
    report.save(folder_ / "store" / fmt::format("{}.json", name));
  }
  const std::string all = halfmark("history store --all").out;
  EXPECT_TRUE(says(all, "time.step at hot")) << all;
  const std::string memory = halfmark("history store --all --metric memory.peak").out;
  EXPECT_TRUE(says(memory, "memory.peak at train")) << memory;
  EXPECT_FALSE(says(memory, "time.step")) << memory;
  std::ofstream(folder_ / "store" / "\xFF.json") << "broken";
  const Result written = halfmark("history store --json out.json");
  EXPECT_EQ(written.code, 0) << written.err;
  const Json json = Json::parse(read(folder_ / "out.json"));
  EXPECT_EQ(json["anchor"], "anchor");
  EXPECT_FALSE(json["series"].empty());
  EXPECT_TRUE(says(json["remarks"].dump(), "\uFFFD.json: is not valid JSON")) << json["remarks"];
  expect_complaint("history store --p 2", "--p: a probability is at most 1");
  expect_complaint("history store --anchor other", "no build in the folder starts with this");
}

class ListCommand : public ProcessTest {
 protected:
  Json list_json(const std::string& what) const { return Json::parse(halfmark("list --json " + what).out); }

  // The words of the first line of `list WHAT` that starts with `name` and a blank.
  std::vector<std::string> row(const std::string& what, const std::string& name) const {
    std::istringstream lines(halfmark("list " + what).out);
    std::vector<std::string> words;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(name + " ")) continue;
      std::istringstream text(line);
      for (std::string word; text >> word;) words.push_back(word);
      break;
    }
    return words;
  }
};

TEST_F(ListCommand, SubjectsHaveTheirOwnNumbers) {
  Json found;
  for (const Json& one : list_json("subjects"))
    if (one["id"] == "linear/b8_i32_o16") found = one;
  EXPECT_EQ(found["input"], (Json{8, 32}));
  EXPECT_EQ(found["output"], (Json{8, 16}));
  EXPECT_EQ(found["parameters"], 32 * 16 + 16);
  EXPECT_EQ(found["forward_flops"], 2 * 8 * 32 * 16);
  EXPECT_EQ(row("subjects", "linear/b8_i32_o16"),
            (std::vector<std::string>{"linear/b8_i32_o16", "[8,32]", "[8,16]", "528", "8.19", "kFLOP"}));
  EXPECT_EQ(row("subjects", "relu/b2_c4_s5").back(), "-") << "no matmul and no convolution";
}

TEST_F(ListCommand, PoliciesHaveTheirOwnTypes) {
  const Json listed = list_json("policies");
  std::map<std::string, Json> by_name;
  for (const Json& one : listed) by_name[one["name"]] = one;
  size_t shown = 0;
  for (const models::Policy& policy : models::policies()) {
    const std::string name(policy.name);
    ASSERT_TRUE(by_name.contains(name)) << name;
    ++shown;
    const Json& one = by_name[name];
    EXPECT_EQ(one["parameters"], name_of(policy.param)) << name;
    EXPECT_EQ(one["low"], name_of(policy.low)) << name;
    EXPECT_EQ(one["batch_norms"], name_of(policy.batch_norm)) << name;
    EXPECT_EQ(one["statistics"], name_of(policy.state)) << name;
    EXPECT_EQ(one["gradients"], name_of(policy.grad)) << name;
    EXPECT_EQ(one["master"], policy.master) << name;
    // The columns are those types, in the order of the titles.
    std::vector<std::string> words = row("policies", name);
    const std::vector<std::string> last(words.end() - std::min<std::ptrdiff_t>(6, std::ssize(words)), words.end());
    const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
    EXPECT_EQ(last,
              (std::vector<std::string>{std::string(name_of(policy.param)), std::string(name_of(policy.low)),
                                        std::string(name_of(policy.grad)), std::string(name_of(policy.state)),
                                        yes(policy.master), yes(policy.scaler.kind != models::ScalerSpec::Kind::none)}))
        << name;
  }
  EXPECT_EQ(listed.size(), shown);
}

TEST_F(ListCommand, SaysWhichKernelsAreEmulatedAndWhichDevicesAreAbsent) {
  bool emulated = false;
  for (const Json& one : list_json("kernels")) emulated = emulated || one["speed"] == "emulated";
  EXPECT_EQ(says(halfmark("list kernels").out, "(emulated)"), emulated);
  EXPECT_TRUE(emulated);
  for (const Json& one : list_json("devices")) {
    const std::string absent = one["absent"];
    EXPECT_EQ(row("devices", one["name"])[1] == "absent:", !absent.empty()) << one;
  }
}

TEST_F(ListCommand, AloneLeavesOutTheLongLists) {
  const Json all = list_json("");
  for (const char* name : {"subjects", "policies", "devices", "harnesses"}) EXPECT_TRUE(all.contains(name)) << name;
  for (const char* name : {"kernels", "instructions"}) EXPECT_FALSE(all.contains(name)) << name;
  EXPECT_TRUE(says(halfmark("list harnesses").out, "work.flops")) << "what every record has";
}

TEST_F(ListCommand, ShowsTheRowsThatWordsName) {
  const auto values = [&](const std::string& words, const char* key) {
    std::set<std::string> names;
    for (const Json& row : list_json(words)) names.insert(row[key]);
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(values("harnesses range error", "name"), (Names{"error", "range"}));
  EXPECT_EQ(values("policies 'amp-f*16'", "name"), Names{"amp-fp16"});
  EXPECT_EQ(values("kernels cpu matmul attention", "operation"), (Names{"matmul", "attention"}));
  EXPECT_EQ(values("kernels cpu matmul", "device"), Names{"cpu"});
  EXPECT_GT(list_json("kernels cpu matmul").size(), 1u) << "every row that is tried";
  expect_complaint("list instructions volta wgmma.k16",
                   "halfmark list instructions: no row has all of: volta, wgmma.k16");
  EXPECT_EQ(values("instructions hopper wgmma.k16", "instruction"), Names{"wgmma.k16"});
  // Texts that are made from the tables leave the same rows out.
  for (const char* words : {"families linear", "layers linear", "scalers torch", "devices cpu", "quantizers te-nvfp4",
                            "instructions hopper", "harnesses range", "claims S0-1"}) {
    const std::string all(words, std::string(words).find(' ')), name(words + all.size() + 1);
    const std::string text = halfmark(std::string("list ") + words).out;
    EXPECT_TRUE(says(text, name)) << words;
    EXPECT_LT(text.size(), halfmark("list " + all).out.size()) << words;
  }
  expect_complaint("list harnesses rang", "unknown harness 'rang'; did you mean range?");
  expect_complaint("list policies --model x", "--model: halfmark list policies takes none");
}

// A number of a record was changed with another program, and its checksum was not.
TEST_F(ReportCommands, RefuseAReportThatWasChangedAfterItWasWritten) {
  ASSERT_EQ(halfmark("run --policy fp32 --device cpu linear/b8_i8_o8 error --no-probes -o base.json").code, 0);
  Json report = Json::parse(read(folder_ / "base.json"));
  Json& value = report["records"][0]["measurements"][0]["value"];
  value = value.get<double>() + 1;
  std::ofstream(folder_ / "changed.json") << report.dump();
  for (const char* command : {"gate base.json changed.json", "gate changed.json base.json", "compare changed.json",
                              "merge changed.json -o merged.json", "export changed.json --to csv"})
    expect_complaint(
        command,
        "changed after they were written (checksum wrong or missing): 1 of 1, the first is linear/b8_i8_o8/cpu");
  // Without a checksum too, if the program that wrote the report writes them.
  Json without = Json::parse(read(folder_ / "base.json"));
  without["records"][0].erase("checksum");
  std::ofstream(folder_ / "without.json") << without.dump();
  expect_complaint("merge without.json -o merged.json", "checksum wrong or missing");
  without["minor"] = 6;
  std::ofstream(folder_ / "older.json") << without.dump();
  EXPECT_EQ(halfmark("compare older.json").code, 0);
  std::filesystem::remove(folder_ / "without.json");
  const Result shown = halfmark("show changed.json");
  EXPECT_EQ(shown.code, 0);
  EXPECT_TRUE(says(shown.out, "changed   records changed after they were written")) << shown.out;
  EXPECT_FALSE(says(halfmark("show base.json").out, "changed after"));
  EXPECT_TRUE(says(halfmark("history .").out, "omitted: changed.json: records changed after they were written"));
}

TEST_F(ReportCommands, SayWhetherTheProcessesOfARunHadTheSameBits) {
  const std::string run = "run --policy fp32 --device cpu linear/b8_i8_o8 error throughput --no-probes -o base.json";
  EXPECT_FALSE(says(halfmark(run).out, "bits  ")) << "one process shows nothing";
  EXPECT_TRUE(says(halfmark(run + " --processes 2").out, "bits      of 1 case in 2 processes: the same every time"));
}

}  // namespace
}  // namespace halfmark::bench
