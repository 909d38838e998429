// The report file: writing and reading back, and every kind of invalid file.
#include "reports/record/report.h"
#include "reports/record/json_parser.h"
#include "reports/record/record_reading.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>
#include <tuple>

#include "reports/record/file.h"
#include "reports/record/folder_testing.h"
#include "reports/record/memory_file.h"
#include "reports/record/paths_testing.h"
#include "reports/record/sample_report_testing.h"

namespace halfmark::reports {
namespace {

namespace fs = std::filesystem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class ReportFile : public FolderTest {
 protected:
  fs::path write(const std::string& text) const {
    std::ofstream(folder_ / "report.json", std::ios::binary) << text;
    return folder_ / "report.json";
  }
};

std::string complaint_about(const std::string& text) {
  return complaint([&] { report_from_json(parse_json(text, "r.json"), "r.json"); });
}

TEST_F(ReportFile, ComesBackAsItWasWritten) {
  const Report written = sample_report();
  written.save(folder_ / "report.json");
  const Report read = Report::load(folder_ / "report.json");
  EXPECT_EQ(to_json(read), to_json(written));
  EXPECT_EQ(read.environment, written.environment);
  EXPECT_EQ(read.run.seed, written.run.seed);
  ASSERT_EQ(read.records.size(), written.records.size());
  EXPECT_EQ(read.records[0].axes, written.records[0].axes);
  EXPECT_EQ(read.records[0].kernels[0].refusals, written.records[0].kernels[0].refusals);
  EXPECT_EQ(read.records[0].kernels[0].choices, written.records[0].kernels[0].choices);
  EXPECT_EQ(read.records[0].measurements[0].samples, written.records[0].measurements[0].samples);
  EXPECT_TRUE(read.records[0].expectation->met);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "a temporary file was left";
}

TEST_F(ReportFile, KeepsEveryBitOfANumber) {
  Report report = sample_report();
  const double values[] = {
      0.1, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1.0 / 3, 9007199254740992.0};
  for (double value : values)
    report.records[0].measurements.push_back(
        {.metric = "test.value", .at = std::to_string(report.records[0].measurements.size()), .value = value});
  report.run.seed = std::numeric_limits<uint64_t>::max();
  report.save(folder_ / "report.json");
  const Report read = Report::load(folder_ / "report.json");
  EXPECT_EQ(read.run.seed, report.run.seed);
  const auto& back = read.records[0].measurements;
  for (size_t i = 0; i < std::size(values); ++i) {
    const double value = back[back.size() - std::size(values) + i].value;
    EXPECT_EQ(value, values[i]);
    EXPECT_EQ(std::signbit(value), std::signbit(values[i]));
  }
}

TEST_F(ReportFile, SurvivesNonFiniteNumbers) {
  Report report = sample_report();
  Measurement measurement{.metric = "error.nmse", .value = kNaN};
  measurement.bound = kInfinity;
  measurement.samples = {kNaN, -kInfinity, kInfinity, 1};
  report.records[0].measurements = {measurement};
  report.records[0].series = {{.metric = "training.loss", .at = "", .x = {0, 1}, .y = {2.5, kNaN}}};
  report.save(folder_ / "report.json");
  const std::string text = read_file(folder_ / "report.json");
  EXPECT_SAYS(text, R"("samples":["NaN","-Infinity","Infinity",1.0])");
  const Record read = Report::load(folder_ / "report.json").records[0];
  EXPECT_TRUE(std::isnan(read.measurements[0].value));
  EXPECT_EQ(read.measurements[0].bound, kInfinity);
  EXPECT_EQ(read.measurements[0].samples[1], -kInfinity);
  EXPECT_TRUE(std::isnan(read.series[0].y[1]));
}

TEST_F(ReportFile, CutAtAnyByteIsAnErrorAndNoCrash) {
  sample_report().save(folder_ / "report.json");
  const std::string whole = read_file(folder_ / "report.json");
  for (size_t size = 0; size + 1 < whole.size(); ++size) {  // it is complete without the last line break
    const std::string message = complaint_about(whole.substr(0, size));
    EXPECT_TRUE(message.find("r.json: ") == 0) << message;
  }
  EXPECT_SAYS(complaint_about(""), "is empty");
  EXPECT_SAYS(complaint_about(whole.substr(0, whole.size() / 2)), "cut short");
}

// HALFMARK_LONG=1: all six bytes at every place.
TEST_F(ReportFile, WithAnyByteChangedIsAReportOrAnError) {
  sample_report().save(folder_ / "report.json");
  const std::string whole = read_file(folder_ / "report.json");
  constexpr char kBytes[] = {'\0', '"', '9', '{', ']', '\xff'};
  const size_t tried = std::getenv("HALFMARK_LONG") ? std::size(kBytes) : 2;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (size_t k = 0; k < tried; ++k) {
      std::string text = whole;
      text[i] = kBytes[(i + k) % std::size(kBytes)];
      try {
        report_from_json(parse_json(text, "r.json"), "r.json");
      } catch (const ReportError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    }
  }
}

TEST(Report, IgnoresFieldsItDoesNotKnow) {
  auto json = to_json(sample_report());
  json["minor"] = 7;
  json["verdicts"] = {1, 2};
  json["records"][0]["weather"] = "rain";
  json["records"][0]["measurements"][0]["confidence"] = {{"low", 1}};
  const Report read = report_from_json(json, "r.json");
  EXPECT_EQ(read.minor, 7);
  EXPECT_EQ(read.records.size(), sample_report().records.size());
}

TEST(Report, RefusesAnotherMajorSchema) {
  auto json = to_json(sample_report());
  json["schema"] = 2;
  json["records"] = "in another shape";
  const std::string message = complaint([&] { report_from_json(json, "r.json"); });
  EXPECT_SAYS(message, "r.json: is a report of schema 2, this program reads schema 1");
}

TEST(Report, SaysWhichFieldIsWrong) {
  const auto with = [](const char* pointer, const nlohmann::ordered_json& value) {
    auto json = to_json(sample_report());
    json[nlohmann::ordered_json::json_pointer(pointer)] = value;
    return complaint([&] { report_from_json(json, "r.json"); });
  };
  EXPECT_SAYS(with("/records/0/measurements/0/value", "fast"),
              "r.json: records[0].measurements[0].value: expected a number");
  EXPECT_SAYS(with("/records/0/measurements/0/value", "fast"), "found \"fast\"");
  EXPECT_SAYS(with("/records/0/status", "fine"), "records[0].status: expected one of ok, suspect, skipped, failed");
  EXPECT_SAYS(with("/records/0/axes/eval", 3), "records[0].axes.eval: expected text, found 3");
  EXPECT_SAYS(with("/records/0/series/0/x", {1}), "records[0].series[0]: x has 1 values and y has");
  EXPECT_SAYS(with("/records", nlohmann::ordered_json::object()), "records: expected a list, found an object");
  EXPECT_SAYS(with("/run/seed", -1), "run.seed: expected a whole number");
  EXPECT_SAYS(with("/schema", "1"), "schema: expected a whole number");
  EXPECT_SAYS(with("/environment", 1), "environment: expected an object");
  EXPECT_SAYS(with("/records/0/expectation/met", "yes"), "expectation.met: expected true or false");
  auto nameless = to_json(sample_report());
  nameless["records"][1].erase("policy");
  EXPECT_SAYS(complaint([&] { report_from_json(nameless, "r.json"); }), "records[1]: \"policy\" is missing");
}

TEST(Report, SaysWhereTextIsNoJson) {
  EXPECT_SAYS(complaint_about("{\n \"schema\": 1,\n \"records\": [}\n"), "not valid JSON at line 3, column 14");
  EXPECT_SAYS(complaint_about("{\"schema\": 1, \"minor\": 1e999}"), "too large");
  EXPECT_SAYS(complaint_about("{\"schema\": 1, \"minor\": 99999999999}"), "minor: expected a small whole number");
  EXPECT_SAYS(complaint_about("[]"), "r.json: expected an object, found a list");
  EXPECT_SAYS(complaint_about("{}"), "\"schema\" is missing");
  EXPECT_SAYS(complaint_about(std::string(1 << 20, '[')), "nested deeper");
}

TEST_F(ReportFile, SaysWhyItCannotBeReadOrWritten) {
  const Report report = sample_report();
  EXPECT_SAYS(complaint([&] { Report::load(folder_ / "none.json"); }), "none.json: cannot be read: No such file");
  EXPECT_SAYS(complaint([&] { Report::load(folder_); }), "cannot be read: Is a directory");
  EXPECT_SAYS(complaint([&] { report.save(folder_ / "none" / "r.json"); }), "cannot be written: No such file");
  EXPECT_SAYS(complaint([&] { report.save(folder_); }), "cannot be written: Is a directory");
  EXPECT_SAYS(complaint([&] { report.save(""); }), "path is empty");
  // As root the test uses its own device file: with an error in save(), /dev/full itself would be replaced.
  fs::path full = "/dev/full";
  if (::geteuid() == 0) {
    full = folder_ / "full";
    ASSERT_EQ(::mknod(full.c_str(), S_IFCHR | 0666, makedev(1, 7)), 0);
  }
  EXPECT_SAYS(complaint([&] { report.save(full); }), "full: cannot be written: No space left on device");
  EXPECT_TRUE(fs::is_character_file(full)) << "a device must not be replaced by a file";
}

TEST_F(ReportFile, DoesNotReplaceAFileThatMayNotBeWritten) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may write everywhere";
  const fs::path path = write("the old report");
  fs::permissions(path, fs::perms::owner_read);
  EXPECT_SAYS(complaint([&] { sample_report().save(path); }), "report.json: cannot be written: Permission denied");
  EXPECT_EQ(read_file(path), "the old report");
}

TEST_F(ReportFile, KeepsTheModeOfTheFileThatItReplaces) {
  const fs::path path = write("the old report");
  for (const auto mode : {fs::perms{0640}, fs::perms{0604}}) {
    fs::permissions(path, mode);
    sample_report().save(path);
    EXPECT_EQ(fs::status(path).permissions(), mode);
  }
}

TEST_F(ReportFile, StaysAsItWasWhenTheDiskIsFull) {
  const fs::path path = write("the old report");
  Report report = sample_report();
  report.run.command = std::string(1 << 16, 'x');
  // A limit on the file size simulates a full disk: the same partial write, then an error.
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {1 << 14, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = complaint([&] { report.save(path); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_SAYS(message, "report.json: cannot be written: File too large; free some space");
  EXPECT_EQ(read_file(path), "the old report");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "the temporary file was left behind";
}

// A file is read record by record. If that is not possible, or the file is invalid, the result must be the same.
TEST_F(ReportFile, IsReadTheSameInWhateverOrderItsPartsCome) {
  const Report sample = sample_report();
  const auto json = to_json(sample);
  const auto loaded = [&](std::initializer_list<const char*> order) {
    auto turned = nlohmann::ordered_json::object();
    for (const char* key : order) turned[key] = json[key];
    return to_json(Report::load(write(turned.dump())));
  };
  EXPECT_EQ(loaded({"schema", "minor", "environment", "run", "lint", "records"}), json);
  EXPECT_EQ(loaded({"records", "run", "environment", "lint", "minor", "schema"}), json);
  EXPECT_EQ(loaded({"lint", "environment", "schema", "records", "minor", "run"}), json);
  const auto complains = [&](const std::string& text) { return complaint([&] { Report::load(write(text)); }); };
  auto wrong = json;
  wrong["records"][1]["status"] = "fine";
  EXPECT_SAYS(complains(wrong.dump()), "report.json: records[1].status: expected one of ok");
  wrong["schema"] = 2;
  EXPECT_SAYS(complains(wrong.dump()), "is a report of schema 2");
  for (const char* records : {"[5]", "[null]", "[[]]", "{}", "[{}]", "[{\"id\": [{}]}]"})
    EXPECT_SAYS(complains(fmt::format("{{\"schema\": 1, \"records\": {}}}", records)), "records");
  const std::string record = json["records"][0].dump();
  EXPECT_SAYS(complains(fmt::format("{{\"schema\": 1, \"records\": [{}, 5]}}", record)), "expected an object, found 5");
  EXPECT_SAYS(complains(fmt::format("{{\"schema\": 1, \"records\": [{0}], \"records\": [{0}]}}", record)),
              "report.json: has \"records\" twice in one object");
  EXPECT_SAYS(complains(fmt::format("{{\"schema\": 1, \"records\": [], \"records\": [{}]}}", record)), "twice");
  EXPECT_SAYS(complains("{\"schema\": 1, \"records\": [{\"id\": \"a\", \"status\": \"ok\", \"id\": \"b\"}]}"),
              "has \"id\" twice in one object");
  EXPECT_SAYS(complains("{\"schema\": 1, \"records\": [" + record + ", "), "cut short");
}

TEST_F(ReportFile, IsReplacedBehindASymbolicLink) {
  write("the old report");
  fs::create_symlink("report.json", folder_ / "latest.json");
  sample_report().save(folder_ / "latest.json");
  EXPECT_TRUE(fs::is_symlink(folder_ / "latest.json"));
  EXPECT_EQ(Report::load(folder_ / "report.json").records.size(), sample_report().records.size());
  fs::create_symlink("to_come.json", folder_ / "next.json");
  sample_report().save(folder_ / "next.json");
  EXPECT_TRUE(fs::is_symlink(folder_ / "next.json"));
  EXPECT_EQ(Report::load(folder_ / "to_come.json").records.size(), sample_report().records.size());
}

TEST_F(ReportFile, IsWrittenIntoAnOpenFileWithoutAName) {
  const MemoryFile file("report");
  const std::string path = "/proc/self/fd/" + std::to_string(file.descriptor());
  write_file(path, "one, ");
  write_file(path, "two");
  EXPECT_EQ(file.text(), "one, two") << "an open file is continued";
}

TEST_F(ReportFile, IsWholeWheneverItIsReadWhileItIsWritten) {
  const fs::path path = folder_ / "report.json";
  Report small = sample_report(), large = sample_report();
  for (int i = 0; i < 200; ++i) large.records.push_back(small.records[0]), large.records.back().id += std::to_string(i);
  small.save(path);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) (i % 2 ? small : large).save(path);
    done = true;
  });
  while (!done) {
    const size_t records = Report::load(path).records.size();
    EXPECT_TRUE(records == small.records.size() || records == large.records.size()) << records;
  }
  writer.join();
}

TEST_F(ReportFile, TakesBytesThatAreNoText) {
  Report report = sample_report();
  report.environment["gpu"] = "Tesla\xff\xfe";
  report.save(folder_ / "report.json");
  EXPECT_EQ(Report::load(folder_ / "report.json").environment["gpu"], "Tesla\uFFFD\uFFFD");
}

TEST(Report, KeepsHowOftenTheBitsWereTheSame) {
  using Proof = Determinism::Proof;
  const std::tuple<Determinism, Proof, const char*> rows[] = {{{0, 0}, Proof::unproved, ""},
                                                              {{1, 0}, Proof::unproved, "unproved"},
                                                              {{2, 0}, Proof::proved, "proved"},
                                                              {{24, 3}, Proof::refuted, "refuted"}};
  for (const auto& [determinism, proof, word] : rows) {
    Record record = sample_report().records[0];
    record.determinism = determinism;
    const auto json = to_json(record);
    EXPECT_EQ(json.contains("determinism"), determinism.processes > 0);
    EXPECT_EQ(json.contains("determinism") ? json["determinism"]["proof"] : "", word);
    const Record read = record_from_json(json, "r.json");
    EXPECT_EQ(read.determinism.processes, determinism.processes);
    EXPECT_EQ(read.determinism.differing, determinism.differing);
    EXPECT_EQ(read.determinism.proof(), proof);
  }
  auto json = to_json(sample_report().records[0]);
  json["determinism"] = {{"processes", 2}, {"differing", -1}};
  EXPECT_SAYS(complaint([&] { record_from_json(json, "r.json"); }), "determinism: -1 of 2 processes differ");
  json["determinism"] = {{"processes", 2}, {"differing", 2}};
  EXPECT_SAYS(complaint([&] { record_from_json(json, "r.json"); }), "determinism: 2 of 2 processes differ");
  for (const int processes : {0, -3}) {
    json["determinism"] = {{"processes", processes}, {"differing", 0}};
    EXPECT_SAYS(complaint([&] { record_from_json(json, "r.json"); }),
                fmt::format("determinism: {} processes measured it", processes));
  }
}

TEST(Report, RefusesNumbersThatCountBackwardsAndWhatIsThereTwice) {
  auto record = to_json(sample_report().records[0]);
  record["case_version"] = -1;
  EXPECT_SAYS(complaint([&] { record_from_json(record, "r.json"); }), "\"case_version\" is -1, which is negative");

  for (const nlohmann::ordered_json& seed : {nlohmann::ordered_json(-1), nlohmann::ordered_json(1.5),
                                             nlohmann::ordered_json("1"), nlohmann::ordered_json(1e300)}) {
    auto seeded = to_json(sample_report());
    seeded["run"]["seed"] = seed;
    EXPECT_SAYS(complaint([&] { report_from_json(seeded, "r.json"); }),
                "run.seed: expected a whole number, not negative");
  }

  record = to_json(sample_report().records[0]);
  record["measurements"].push_back(record["measurements"][0]);
  EXPECT_SAYS(complaint([&] { record_from_json(record, "r.json"); }),
              "measurements[1]: \"error.nmse\" at \"output\" is used twice");
  record["measurements"][1]["at"] = "input";
  EXPECT_EQ(record_from_json(record, "r.json").measurements.size(), 2u);

  auto report = to_json(sample_report());
  report["records"][1] = report["records"][0];
  const std::string expected =
      fmt::format("records[1]: the id \"{}\" is used twice", report["records"][0]["id"].get<std::string>());
  EXPECT_SAYS(complaint([&] { report_from_json(report, "r.json"); }), expected);
  EXPECT_SAYS(complaint([&] { Report::parse(report.dump(), "r.json"); }), expected);
  EXPECT_SAYS(complaint([] { require_records({"r.json", Report()}); }), "r.json: has no records");
}

TEST(Report, ReadsAProofByConstructionAsItIsWritten) {
  Record record = sample_report().records[0];
  record.determinism = {1, 0, true};
  const Record read = record_from_json(to_json(record), "r.json");
  EXPECT_TRUE(read.determinism.by_construction);
  EXPECT_EQ(read.determinism.proof(), Determinism::Proof::proved);
  record.determinism = {1, 0};
  EXPECT_EQ(record_from_json(to_json(record), "r.json").determinism.proof(), Determinism::Proof::unproved);
}

TEST(Report, RefusesAnIntervalThatIsNone) {
  auto record = to_json(sample_report().records[0]);
  for (const auto& interval : {nlohmann::ordered_json{1}, nlohmann::ordered_json{2, 1}, nlohmann::ordered_json{1, 2, 3},
                               nlohmann::ordered_json{"NaN", 1}}) {
    record["measurements"][0]["interval"] = interval;
    EXPECT_SAYS(complaint([&] { record_from_json(record, "r.json"); }),
                "measurements[0].interval: expected two numbers, the smaller one first");
  }
  record["measurements"][0]["value"] = 0.5;
  record["measurements"][0]["interval"] = {1, 2};
  EXPECT_SAYS(complaint([&] { record_from_json(record, "r.json"); }), "interval: does not hold the value");
  record["measurements"][0]["value"] = 1.5;
  record["measurements"][0]["interval"] = {1, "Infinity"};
  const Record read = record_from_json(record, "r.json");
  EXPECT_EQ(to_json(read)["measurements"][0]["interval"], record["measurements"][0]["interval"]) << "written as read";
}

TEST(Report, ReadsTheFixtureOfEveryVersion) {
  const fs::path fixtures = fs::path(test_folders::source()) / "reports/fixtures";
  size_t read = 0;
  for (const auto& entry : fs::directory_iterator(fixtures)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("report-1.")) {
      EXPECT_FALSE(Report::load(entry.path()).records.empty()) << name;
      ++read;
    }
  }
  EXPECT_EQ(read, static_cast<size_t>(Report::kMinor) + 1);
  const Report report = Report::load(fixtures / "report-1.0.json");
  EXPECT_TRUE(std::isnan(find(report.records[1], "error.nmse", "output")->value));
  EXPECT_TRUE(report.run.complete) << "before minor 1 there were no partial reports";
  EXPECT_EQ(report.run.plan.cases, 0u);
  const RunInfo shard = Report::load(fixtures / "report-1.1.json").run;
  EXPECT_FALSE(shard.complete);
  EXPECT_EQ(shard.planned, 2u);
  EXPECT_EQ(shard.shard, "2/8");
  EXPECT_EQ(shard.plan.cases, 15u);
  const Report paired = Report::load(fixtures / "report-1.2.json");
  const Measurement* ratio = find(paired.records[0], "speedup.step", "hot");
  ASSERT_TRUE(ratio && ratio->interval);
  EXPECT_EQ(ratio->interval->lower, 1.9);
  EXPECT_EQ(ratio->interval->upper, 1.98);
  const Report newer = Report::load(fixtures / "newer-minor.json");
  EXPECT_EQ(newer.records.at(0).axes.at("sparsity"), "2:4");
  EXPECT_EQ(newer.run.plan.cases, 1u);
  EXPECT_SAYS(complaint([&] { Report::load(fixtures / "bad-truncated.json"); }), "cut short");
  EXPECT_SAYS(complaint([&] { Report::load(fixtures / "bad-major.json"); }), "schema 2");
}

// CTest hands the file to the public validator (reports/CMakeLists.txt).
TEST(Report, IsWrittenForTheSchemaValidator) {
  sample_report().save(fs::path(test_folders::binary()) / "reports" / "written_report.json");
}

TEST(Report, RefusesARecordWhoseIdContradictsItsParts) {
  const nlohmann::ordered_json record = to_json(sample_report().records[0]);
  for (const char* part : {"subject", "device", "policy", "harness"}) {
    auto other = record;
    other[part] = "other";
    EXPECT_SAYS(
        complaint([&] { record_from_json(other, "r.json"); }),
        "the id \"mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/error/eval=half\" contradicts its subject, device, policy "
        "and harness");
  }
  auto longer = record;
  longer["id"] = "mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/errors";
  EXPECT_SAYS(complaint([&] { record_from_json(longer, "r.json"); }), "contradicts");
  longer["id"] = "an id of another program";
  EXPECT_EQ(record_from_json(longer, "r.json").id, "an id of another program");
}

}  // namespace
}  // namespace halfmark::reports
