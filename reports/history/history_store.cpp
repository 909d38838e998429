// Reads the files of a folder into the store of a history.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "reports/history/history.h"
#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"
#include "reports/record/provenance.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kJudgementKind = "halfmark judgement";

// Removes the facts of the build, which may differ: the history compares builds.
Json without_build(Json environment) {
  for (const char* key : {"halfmark", "compiler"}) environment.erase(key);
  return environment;
}

// All *.json of the folder and of the folders in it; links to folders are not followed. Returns why the folder itself
// cannot be read; of the others that is a remark.
std::error_code collect(const std::filesystem::path& folder, std::vector<std::filesystem::path>& files,
                        std::vector<std::string>& remarks) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const fs::path& path = entry->path();
    const bool is_folder = fs::is_directory(entry->symlink_status(unknown));
    if (path.extension() == ".json") {
      if (is_folder)
        remarks.push_back(path.string() + ": is a folder with the name of a file");
      else
        files.push_back(path);
    }
    if (!is_folder) continue;
    if (const std::error_code problem = collect(path, files, remarks))
      remarks.push_back(fmt::format("{}: cannot be read: {}", path.string(), problem.message()));
  }
  return error;
}

bool drifts(std::string_view metric) { return metric.starts_with("time.") || metric.starts_with("throughput."); }

}  // namespace

int64_t seconds_since_1970(const std::string& text, std::string_view where) {
  std::tm time{};
  int length = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon, &time.tm_mday, &time.tm_hour,
                  &time.tm_min, &time.tm_sec, &length) == 6 &&
      length > 0) {
    const std::string zone = text.substr(static_cast<size_t>(length));
    int hours = 0, minutes = 0, end = 0;
    const bool east_or_west = std::sscanf(zone.c_str(), "%3d:%2d%n", &hours, &minutes, &end) == 2 &&
                              static_cast<size_t>(end) == zone.size() && (zone[0] == '+' || zone[0] == '-');
    if (zone == "Z" || east_or_west) {
      time.tm_year -= 1900, time.tm_mon -= 1;
      const int64_t offset = zone == "Z" ? 0 : 3600 * std::abs(hours) + 60 * minutes;
      return static_cast<int64_t>(::timegm(&time)) - (zone[0] == '-' ? -offset : offset);
    }
  }
  throw ReportError(fmt::format("{}: has no valid start time: '{}' is not a date like 2025-11-01T12:00:00Z", where,
                                printable(text.substr(0, 40))));
}

void HistoryStore::add(const std::string& file, std::string_view text) {
  // A judgement is recognised by its first line, because a report is too long to be parsed twice.
  if (text.substr(0, 200).find("\"gate/1\"") != text.npos)
    add_judgement(file, text);
  else
    add_report(file, text);
}

void HistoryStore::add_report(const std::string& file, std::string_view text) {
  const Report report = Report::parse(text, file);
  if (const std::string changed = changed_text(report); !changed.empty())
    throw ReportError(fmt::format("{}: {}", file, changed));
  StoredReport stored{.file = file,
                      .started = report.run.started,
                      .build = fact(report.environment, "/halfmark/git"),
                      .machine = fact(report.environment, "/machine"),
                      .when = seconds_since_1970(report.run.started, file),
                      .seed = report.run.seed,
                      .environment = without_build(report.environment),
                      .facts = {},
                      .absent = {},
                      .versions = {},
                      .values = {},
                      .subjects = {}};
  Json environment = report.environment;
  if (environment.contains("halfmark") && environment["halfmark"].is_object()) environment["halfmark"].erase("git");
  environment["run"] = {{"seed", report.run.seed}};
  stored.facts = environment.flatten();
  if (stored.build.empty()) throw ReportError(fmt::format("{}: has no git revision of its build", file));
  for (const Record& record : report.records) {
    stored.versions.emplace(record.id, record.case_version);
    if (record.status != Status::ok) {
      stored.absent.emplace(record.id, record.reason.empty()
                                           ? std::string(name_of(record.status))
                                           : fmt::format("{}: {}", name_of(record.status), record.reason));
      continue;
    }
    stored.subjects.emplace(record.id, subject_facts(record));
    for (const Measurement& one : record.measurements)
      if (one.better != Better::neither)
        stored.values.emplace(Key{record.id, one.metric, one.at, record.case_version},
                              Value{one.value, one.better, drifts(one.metric), one.kind == Kind::exact, one.unit});
  }
  add_unless_copy(reports_, std::move(stored));
}

bool HistoryStore::Value::operator==(const Value& other) const {
  return (value == other.value || (std::isnan(value) && std::isnan(other.value))) && better == other.better &&
         timed == other.timed && exact == other.exact && unit == other.unit;
}

bool HistoryStore::is_copy(const StoredReport& a, const StoredReport& b) {
  return a.started == b.started && a.build == b.build && a.machine == b.machine && a.values == b.values;
}

bool HistoryStore::is_copy(const StoredJudgement& a, const StoredJudgement& b) {
  return a.started == b.started && a.base == b.base && a.candidate == b.candidate && a.machine == b.machine &&
         a.ratios == b.ratios;
}

template <class Stored>
void HistoryStore::add_unless_copy(std::vector<Stored>& all, Stored one) {
  const auto same = std::find_if(all.begin(), all.end(), [&](const Stored& other) { return is_copy(one, other); });
  if (same == all.end())
    all.push_back(std::move(one));
  else
    copies_.emplace_back(one.file, same->file);
}

void HistoryStore::add_judgement(const std::string& file, std::string_view text) {
  const Json json = parse_json(text, file, kJudgementKind);
  const JsonReader reader(json, file, kJudgementKind);
  reader.expect_object();
  const JsonReader env = reader.required("env");
  StoredJudgement stored{.file = file,
                         .started = env.text("started"),
                         .base = env.text("base"),
                         .candidate = env.text("candidate"),
                         .machine = env.text("machine"),
                         .when = 0,
                         .ratios = {}};
  stored.when = seconds_since_1970(stored.started, file);
  if (stored.base.empty() || stored.candidate.empty())
    throw ReportError(fmt::format("{}: has no git revisions of the builds it compares", file));
  reader.each("cases", [&](const JsonReader& line) {
    const auto timing = line.optional("timing");
    if (!timing || line.text("question") != "time") return;
    const double ratio = timing->required("ratio").number();
    if (std::isfinite(ratio) && ratio > 0)
      stored.ratios[{line.required("case").text(), line.text("metric"), line.text("at"), 1}] = ratio;
  });
  add_unless_copy(judgements_, std::move(stored));
}

History history_in(const std::filesystem::path& folder, const HistoryRules& rules) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::vector<std::string> broken;
  if (const std::error_code error = collect(folder, files, broken))
    throw ReportError(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
  std::sort(files.begin(), files.end());

  HistoryStore store;
  size_t good = 0;
  for (const fs::path& file : files) {
    try {
      // Without asking the file system: a link may lead in a circle.
      store.add(file.lexically_relative(folder).string(), read_regular_file(file));
      ++good;
    } catch (const ReportError& problem) {
      broken.push_back(problem.what());
    }
  }
  if (good == 0)
    throw ReportError(fmt::format("{}: contains no report and no judgement{}", folder.string(),
                                  broken.empty() ? "" : fmt::format("; {}", broken[0])));
  History history = store.history(rules);
  for (const std::string& problem : broken) history.remarks.push_back("omitted: " + problem);
  return history;
}

}  // namespace halfmark::reports
