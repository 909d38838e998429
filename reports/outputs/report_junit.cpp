// A report as JUnit XML, for the test views of GitLab, Jenkins and others.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reports/outputs/export.h"
#include "reports/outputs/xml.h"
#include "reports/record/provenance.h"

namespace halfmark::reports {

namespace {

// The element inside a test case, or nothing if it passed.
const char* element_of(Status status) {
  switch (status) {
    case Status::ok:
    case Status::suspect:
      return nullptr;
    case Status::skipped:
      return "skipped";
    case Status::failed:
      return "failure";
  }
  return nullptr;
}

void add_record(pugi::xml_node suite, const Record& record) {
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "classname", fmt::format("{}.{}.{}", record.harness, record.device, record.policy));
  set(node, "name", record.id);
  set(node, "time", fmt::format("{:.6f}", std::isfinite(record.seconds) ? record.seconds : 0));
  const std::string again = record.repro.empty() ? "" : "\nreproduce: " + record.repro;
  if (const char* element = element_of(record.status)) {
    pugi::xml_node child = node.append_child(element);
    if (record.status == Status::failed) set(child, "type", name_of(record.status));
    set(child, "message", record.reason);
    set_text(child, record.reason + again + "\n");
  } else if (record.status == Status::suspect) {
    set_text(node.append_child("system-out"), fmt::format("suspect: {}{}\n", record.reason, again));
  }
}

}  // namespace

Exported report_junit_of(const Report& report) {
  std::map<std::string_view, std::vector<const Record*>> suites;
  for (const Record& record : report.records) suites[record.harness].push_back(&record);

  pugi::xml_document document;
  pugi::xml_node root = begin_document(document, "testsuites");
  set(root, "name", "halfmark run");
  for (const auto& [harness, records] : suites) {
    pugi::xml_node suite = root.append_child("testsuite");
    set(suite, "name", harness);
    std::map<Status, size_t> counts;
    for (const Record* record : records) ++counts[record->status];
    set_count(suite, "tests", records.size());
    set_count(suite, "failures", counts[Status::failed]);
    set_count(suite, "errors", 0);
    set_count(suite, "skipped", counts[Status::skipped]);
    if (!report.run.started.empty()) set(suite, "timestamp", report.run.started);
    pugi::xml_node properties = suite.append_child("properties");
    add_property(properties, "suite", report.run.suite);
    add_property(properties, "seed", fmt::format("{}", report.run.seed));
    add_property(properties, "machine", fact(report.environment, "/machine"));
    add_property(properties, "git", fact(report.environment, "/halfmark/git"));
    for (const Record* record : records) add_record(suite, *record);
  }
  return {text_of(document)};
}

}  // namespace halfmark::reports
