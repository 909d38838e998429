// What `compare` shows of machines beyond their times and errors: names, how they add, shares of what they attain, equal bits.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

Record machine_record(const std::string& harness, const std::string& fingerprint) {
  Record record;
  record.subject = "mlp/h64", record.device = "cuda:0", record.policy = "bf16", record.harness = harness;
  record.id = "mlp/h64/cuda:0/bf16/" + harness;
  record.fingerprint = fingerprint;
  return record;
}

// A report of a GPU of this name that attains this share in throughput, with an error of these bits.
NamedReport machine_report(const char* name, const char* sums, double share, const char* bits) {
  NamedReport named{name, {}};
  named.report.environment = {
      {"devices", {{"cuda:0", {{"name", std::string("GPU of ") + name}, {"probed", {{"probe.f16>f32", sums}}}}}}}};
  Record throughput = machine_record("throughput", "cbf29ce484222325");  // of times only: says nothing
  throughput.measurements = {{.metric = "time.step", .at = "hot", .value = 2e-3, .unit = "s", .better = Better::lower},
                             {.metric = "roofline.share", .at = "hot", .value = share}};
  Record error = machine_record("error", bits);
  error.measurements = {{.metric = "error.nmse", .at = "output", .value = 1e-5, .better = Better::lower}};
  named.report.records = {throughput, error, machine_record("training", "77")};
  return named;
}

const NamedReport kMachineA = machine_report("a.json", "9dd4: summation tree=0-63", 0.5, "11");
const NamedReport kMachineB = machine_report("b.json", "af9e: summation tree=0-7", 0.25, "12");

std::string machines_text(const NamedReport& first, const NamedReport& second) {
  return compare({first, second}, {.width = 200});
}

// The columns of the first line that holds `title`, from it on.
std::string machines_line(const std::string& text, const std::string& title) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(title); at != line.npos) {
      std::string words;
      std::istringstream cells(line.substr(at));
      for (std::string word; cells >> word;) words += (words.empty() ? "" : " ") + word;
      return words;
    }
  return {};
}

TEST(CompareMachines, NamesTheDevicesAndHowTheyAdd) {
  const std::string text = machines_text(kMachineA, kMachineB);
  EXPECT_EQ(machines_line(text, "device "), "device GPU of a.json GPU of b.json") << text;
  EXPECT_EQ(machines_line(text, "sums f16>f32"), "sums f16>f32 9dd4 af9e") << text;
  EXPECT_EQ(text.find("summation tree"), text.npos) << text;
  NamedReport older = kMachineB;
  older.report.environment["devices"]["cuda:0"].erase("probed");
  EXPECT_EQ(machines_line(machines_text(kMachineA, older), "sums f16>f32"), "sums f16>f32 9dd4 -");
  for (const char* wrong : {"[]", "{\"cuda:0\": 3}", "{\"cuda:0\": {\"name\": 3, \"probed\": [1]}}"}) {
    older.report.environment["devices"] = nlohmann::ordered_json::parse(wrong);
    EXPECT_EQ(machines_line(machines_text(older, older), "sums"), "") << wrong;
  }
}

TEST(CompareMachines, NamesColumnsByTheEndsOfPathsOrByNumbers) {
  const auto headings = [](const std::string& first, const std::string& second) {
    NamedReport a = kMachineA, b = kMachineB;
    a.name = first, b.name = second;
    return machines_line(machines_text(a, b), "policy ");
  };
  EXPECT_EQ(headings("/runs/a.json", "/runs/b.json"), "policy a.json cuda:0 b.json cuda:0");
  EXPECT_EQ(headings("/runs/old/r.json", "/runs/new/r.json"), "policy old/r.json cuda:0 new/r.json cuda:0");
  EXPECT_EQ(headings("/r.json", "r.json"), "policy /r.json cuda:0 r.json cuda:0");
  EXPECT_EQ(headings("r.json", "r.json"), "policy #1 cuda:0 #2 cuda:0");
  EXPECT_EQ(headings("a/r.json", "a//r.json"), "policy #1 cuda:0 #2 cuda:0");
  EXPECT_EQ(headings("r.json", "/runs/" + std::string(25, 'r')), "policy #1 cuda:0 #2 cuda:0");
  NamedReport other = kMachineB;
  other.name = "/runs/b.json";
  const std::string text = machines_text(kMachineA, other);
  EXPECT_NE(text.find("\nb.json: /runs/b.json\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("a.json: "), std::string::npos) << "its name is whole";
}

TEST(CompareMachines, ShowsTheShareOfWhatIsAttainable) {
  EXPECT_EQ(machines_line(machines_text(kMachineA, kMachineB), "of attainable"), "of attainable 50% 25%");
  NamedReport older = kMachineB;
  older.report.records[0].measurements.pop_back();
  EXPECT_EQ(machines_line(machines_text(kMachineA, older), "of attainable"), "of attainable 50% -");
  NamedReport suspect = kMachineB;
  suspect.report.records[0].status = Status::suspect;
  EXPECT_EQ(machines_line(machines_text(kMachineA, suspect), "of attainable"), "of attainable 50% suspect");
}

TEST(CompareMachines, CountsTheCasesWithEqualBits) {
  const auto line = [](const NamedReport& second) {
    return machines_line(machines_text(kMachineA, second), "equal bits ");
  };
  EXPECT_EQ(line(kMachineB), "equal bits 2 cases 1 of 2");
  EXPECT_EQ(line(kMachineA), "equal bits 2 cases 2 of 2");
  // A case of which only one machine has a fingerprint is neither equal nor different.
  NamedReport other = kMachineB;
  other.report.records[1].fingerprint.clear();
  EXPECT_EQ(line(other), "equal bits 2 cases 1 of 1");
  other.report.records[2].axes = {{"steps", "9"}};
  EXPECT_EQ(line(other), "") << "no case in common";
  // Nor are those of another network under the same name.
  NamedReport base = kMachineA;
  other = kMachineB;
  for (Record& record : base.report.records) record.definition = "3f1c";
  for (Record& record : other.report.records) record.definition = "90ab";
  EXPECT_EQ(machines_line(machines_text(base, other), "equal bits "), "");
}

TEST(CompareMachines, FitTheTerminal) {
  NamedReport named = kMachineA;
  named.report.environment["devices"]["cuda:0"] = {{"name", "NVIDIA A100-SXM4-80GB"},
                                                   {"probed", {{"probe.f16>f32", "9dd4c38489275b61: x"}}}};
  for (const size_t width : {60u, 80u}) {
    std::istringstream lines(compare({named, named, named}, {.width = width}));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
}

}  // namespace
}  // namespace halfmark::reports
