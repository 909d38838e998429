// A report of unknown origin must not control the terminal or change the text direction: here all its texts are
// hostile, and no output may contain a control character.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/gate/gate.h"
#include "reports/gate/gate_testing.h"
#include "reports/history/history.h"
#include "reports/outputs/annotations.h"
#include "reports/outputs/csv.h"
#include "reports/outputs/export.h"
#include "reports/outputs/gbench.h"
#include "reports/outputs/junit.h"
#include "reports/outputs/markdown.h"
#include "reports/outputs/text.h"
#include "reports/record/record_reading.h"
#include "reports/record/sample_report_testing.h"
#include "reports/text/compare.h"
#include "reports/text/layers.h"

namespace halfmark::reports::hostile_test {
namespace {

using Json = nlohmann::ordered_json;

std::string utf8(uint32_t code) {
  std::string bytes;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  if (code >= 0x800) bytes += static_cast<char>(0xE0 | code >> 12);
  bytes += static_cast<char>(code < 0x800 ? 0xC0 | code >> 6 : 0x80 | (code >> 6 & 0x3F));
  return bytes + static_cast<char>(0x80 | (code & 0x3F));
}

// Listed here a second time, so that the tested code is not its own reference.
std::vector<uint32_t> hostile_codes() {
  std::vector<uint32_t> codes = {0x61C, 0x200E, 0x200F, 0x2028, 0x2029};
  for (uint32_t code = 0; code < 0x20; ++code) codes.push_back(code);
  for (uint32_t code = 0x7F; code < 0xA0; ++code) codes.push_back(code);
  for (uint32_t code = 0x202A; code <= 0x202E; ++code) codes.push_back(code);
  for (uint32_t code = 0x2066; code <= 0x2069; ++code) codes.push_back(code);
  return codes;
}

std::string hostile_text() {
  std::string text = "\xFF\xC0\xAF\xE2\x80\x1B[31m";  // also bytes that are not UTF-8
  for (const uint32_t code : hostile_codes()) text += utf8(code);
  return text + "\nINJECTED\r\n::error::INJECTED";
}

// All texts except fixed names, and the keys that are not fixed. Metrics are tested with and without a known name,
// because known metrics are printed differently.
void poison(Json& json, const std::string& key, bool free_keys, bool metrics) {
  static constexpr std::string_view kOurs[] = {"status", "better", "kind", "proof", "started", "shard", "hash"};
  if (json.is_string()) {
    const bool is_metric = key == "metric" || key == "unit";
    if ((metrics || !is_metric) && std::find(std::begin(kOurs), std::end(kOurs), key) == std::end(kOurs))
      json = json.get<std::string>() + hostile_text();
  } else if (json.is_array()) {
    for (Json& element : json) poison(element, key, free_keys, metrics);
  } else if (json.is_object()) {
    Json poisoned = Json::object();
    for (auto& [name, value] : json.items()) {
      poison(value, name, free_keys || name == "environment" || name == "axes", metrics);
      poisoned[free_keys && name != "halfmark" && name != "git" && name != "machine" ? name + hostile_text() : name] =
          value;
    }
    json = poisoned;
  }
}

NamedReport poisoned(const Report& report, const std::string& name, bool metrics) {
  Json json = to_json(report);
  poison(json, "", false, metrics);
  int count = 0;
  for (Json& record : json["records"]) {  // an id is made of its parts
    std::string id;
    for (const char* part : {"subject", "device", "policy", "harness"}) id += record[part].get<std::string>() + "/";
    const Json before = record["id"];
    record["id"] = id + std::to_string(++count) + hostile_text();
    if (!json.contains("lint")) continue;
    for (Json& finding : json["lint"])  // of the case by its id
      if (finding["case"] == before) finding["case"] = record["id"];
  }
  return {name + hostile_text(), report_from_json(json, "r.json")};
}

// A replaced line end is a space, where a line may break: the width is large enough that none does.
TextOptions wide(bool all) {
  TextOptions options;
  options.width = 1'000'000;
  options.all = all;
  return options;
}

void expect_harmless(const std::string& text, const std::string& what, bool has_lines_of_the_report = false) {
  ASSERT_FALSE(text.empty()) << what;
  EXPECT_EQ(valid_utf8(text), text) << what << " is not UTF-8";
  for (const uint32_t code : hostile_codes()) {
    if (code == '\n' || (has_lines_of_the_report && (code == '\t' || code == '\r'))) continue;
    EXPECT_EQ(text.find(utf8(code)), text.npos) << what << fmt::format(" holds U+{:04X}", code);
  }
  EXPECT_NE(text.find("INJECTED"), text.npos) << what << " shows nothing of the hostile text, the test tests nothing";
  if (has_lines_of_the_report) return;
  EXPECT_EQ(text.find("\nINJECTED"), text.npos) << what;
  EXPECT_EQ(text.find("\n::error::INJECTED"), text.npos) << what;
}

// The sample with a metric, a status and a remark of every kind that the printers know.
Report rich_report() {
  Report report = sample_report();
  report.environment["halfmark"] = {{"git", "abc"}};
  report.run.started = "2026-01-01T01:00:00Z";
  Record third = report.records[0];
  third.id += "/third=1";
  third.status = Status::failed;
  third.reason = "crashed";
  third.policy = "fp32";
  Record fourth = report.records[0];
  fourth.id += "/fourth=1";
  fourth.axes["eval"] = "whole";
  fourth.expectation->met = false;
  for (const char* metric : {"error.nonfinite", "error.zeroed", "range.first_nonfinite", "unknown.metric"})
    fourth.measurements.push_back({.metric = metric, .at = "output", .value = 0.5, .unit = "u"});
  report.records.push_back(third);
  report.records.push_back(fourth);
  Record fifth = report.records[0];  // no control: the only kind that the tables hold
  fifth.id += "/fifth=1";
  fifth.axes["fifth"] = "1";
  fifth.expectation.reset();
  report.records.push_back(fifth);
  return report;
}

TEST(HostileReport, IsShownAndComparedHarmlessly) {
  for (const bool metrics : {false, true}) {
    const NamedReport one = poisoned(rich_report(), "one", metrics), two = poisoned(rich_report(), "two", metrics);
    for (const bool all : {false, true}) {
      const TextOptions options = wide(all);
      expect_harmless(show(one, options), "show");
      expect_harmless(compare({one}, options), "compare one");
      expect_harmless(compare({one, two}, options), "compare two");
    }
  }
}

TEST(HostileReport, HasHarmlessLayers) {
  Report report = rich_report();
  report.run.complete = false;
  Record& lossy = report.records[0];
  lossy.measurements.clear();
  for (const char* at : {"activation/fc1", "gradient/fc1", "of another kind/fc1"}) {
    lossy.measurements.push_back({.metric = "range.underflow", .at = at, .value = 0.5});
    lossy.measurements.push_back({.metric = "range.headroom", .at = at, .value = 12, .unit = "bit"});
  }
  report.records[1] = lossy;  // a policy of which no tensor loses anything
  report.records[1].id += "/second=1";
  report.records[1].policy = "fp32";
  for (Measurement& one : report.records[1].measurements)
    if (one.metric == "range.underflow") one.value = 0;
  NamedReport named = poisoned(report, "one", false);
  for (size_t i : {0u, 1u}) named.report.records[i].harness = "range";
  for (const bool all : {false, true}) expect_harmless(show_layers(named, wide(all)), "show --layers");
}

// The rows of a CSV file, read by RFC 4180.
std::vector<std::vector<std::string>> csv_rows(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row(1);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool pair = text.compare(i, 2, quoted ? "\"\"" : "\r\n") == 0;
    if (quoted && pair)
      row.back() += text[i++];
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && text[i] == ',')
      row.emplace_back();
    else if (!quoted && pair)
      rows.push_back(std::exchange(row, std::vector<std::string>(1))), ++i;
    else
      row.back() += text[i];
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(row, std::vector<std::string>(1)) << "the last row has no end";
  return rows;
}

// Data keep their characters, whatever those do to a terminal; but none of them ends a field, a row or a line.
TEST(HostileReport, IsExportedInFieldsThatHold) {
  Report report = poisoned(rich_report(), "one", true).report;
  report.records[1].status = Status::suspect;
  for (const ExportFormat& format : export_formats()) {
    const std::string text = format.write(report).text;
    EXPECT_EQ(valid_utf8(text), text) << format.name;
  }

  const auto rows = csv_rows(measurements_csv_of(report));
  size_t next = 1;
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements) {
      ASSERT_LT(next, rows.size());
      const std::vector<std::string>& row = rows[next++];
      ASSERT_EQ(row.size(), 19u);
      const std::string axes = record.axes.empty() ? "" : record.axes.begin()->first + "=";
      EXPECT_EQ(
          std::vector(row.begin(), row.begin() + 6),
          (std::vector<std::string>{valid_utf8(record.id), "1", valid_utf8(record.subject), valid_utf8(record.device),
                                    valid_utf8(record.policy), valid_utf8(record.harness)}));
      EXPECT_TRUE(row[6].starts_with(valid_utf8(axes))) << row[6];
      EXPECT_EQ(row[8], valid_utf8(one.metric));
      EXPECT_EQ(row[9], valid_utf8(one.at));
      EXPECT_EQ(row[11], valid_utf8(one.unit));
    }
  EXPECT_EQ(next, rows.size());

  std::istringstream lines(openmetrics_of(report).text);
  static const std::regex kLine(
      "# (TYPE|UNIT|HELP) halfmark_\\w+ [^]*|# EOF|"
      "halfmark_\\w+\\{(\\w+=\"([^\"\\\\]|\\\\[n\"\\\\])*\",?)+\\} \\S+");
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(std::regex_match(line, kLine)) << line;

  EXPECT_TRUE(Json::parse(bmf_of(report).text).is_object());
  EXPECT_TRUE(Json::parse(gbench_of(report)).is_object());
  expect_harmless(report_junit_of(report).text, "export --to junit", true);
}

TEST(HostileReport, IsJudgedHarmlessly) {
  Report base = gate_test::made_report(), worse = base;
  base.records.push_back(gate_test::made_record("lost"));
  worse.records.push_back(gate_test::made_record("new"));
  worse.environment["libraries"]["onednn"] = "3.0";
  worse.environment["devices"]["cpu"]["threads"] = "4";
  for (Measurement& one : worse.records[0].measurements) one.value = 1;
  worse.records[0].fingerprint = "other";
  worse.records[1].status = Status::failed;
  worse.records[1].reason = "out of memory";
  for (const bool metrics : {false, true}) {
    GateOptions options;
    options.strict_bits = options.same_environment = metrics;
    const Judgement judgement =
        judge(poisoned(base, "base", metrics), poisoned(worse, "worse", metrics), load_gate_rules("default"), options);
    ASSERT_FALSE(judgement.lines.empty());
    for (const bool all : {false, true}) expect_harmless(text_of(judgement, wide(all)), "gate");
    expect_harmless(markdown_of(judgement), "markdown");
    expect_harmless(junit_of(judgement), "junit", true);
    expect_harmless(annotations_of(judgement), "annotations");
  }
}

TEST(HostileReport, HasAHarmlessHistory) {
  HistoryStore store;
  for (int i = 0; i < 24; ++i) {
    Report report = gate_test::made_report();
    report.environment["halfmark"]["git"] = i % 2 == 0 ? "anchor" : fmt::format("build{}", i);
    report.run.started = fmt::format("2026-01-{:02}T{:02}:00:00Z", 1 + i / 2, 1 + i % 2);
    for (Record& record : report.records)
      for (Measurement& one : record.measurements)
        if (i % 2 == 1 && i > 12) one.value *= 3;
    NamedReport named = poisoned(report, "file", i % 3 == 0);
    // A file is JSON and so valid UTF-8; its name is not.
    store.add(named.name, to_json(named.report).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  HistoryRules rules;
  rules.metrics = {"*"};
  const History history = store.history(rules);
  ASSERT_FALSE(history.series.empty());
  for (const bool all : {false, true}) expect_harmless(text_of(history, wide(all)), "history");
}

TEST(HostileReport, IsRefusedHarmlessly) {
  Json json = to_json(gate_test::made_report());
  json["records"][0]["status"] = hostile_text();
  json["records"][1]["axes"][hostile_text()] = 1;
  for (const size_t at : {0u, 1u}) {
    try {
      std::string name = "file" + hostile_text();  // contains a zero byte, which a file name cannot
      std::erase(name, '\0');
      record_from_json(json["records"][at], name);
      ADD_FAILURE();
    } catch (const ReportError& error) {
      expect_harmless(printable(error.what()), "a message");  // as the program prints every message
    }
  }
}

}  // namespace
}  // namespace halfmark::reports::hostile_test
