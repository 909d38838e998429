// The history of a folder of reports and judgements: for each case the ratio of every build to one anchor build over
// time, and the change points of that ratio: statistics/changes_in_noise.h for numbers with noise, every change of an
// exact one.
//
// Stored times drift with driver versions, clock speeds and temperature, so they are never compared directly. Compared
// are ratios to the anchor that were measured at about the same time. `halfmark ab ANCHOR NEW --json F` contains such
// ratios. A report gives one if there is a report of the anchor build from the same machine, libraries and case version
// within the given hours. Numbers that do not drift (bytes, errors) may be any time apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/record/report.h"
#include "reports/record/subject_facts.h"
#include "reports/statistics/change_points.h"
#include "reports/text/table.h"

namespace halfmark::reports {

struct HistoryRules {
  std::string anchor{};  // the beginning of its git revision; empty: the build of the oldest file
  double hours = 24;     // maximum gap between a run and the anchor run it is compared with, for times
  // Globs. time.process: medians of separate processes, if a run has several.
  std::vector<std::string> metrics{"time.process", "time.step", "memory.peak", "error.nmse", "evaluation.accuracy"};
  bool metrics_are_given = false;  // by the user: each must match a number of the folder
  ChangePointRules change{};       // applied to the logarithms of the ratios
};

struct HistoryPoint {
  int64_t when = 0;       // seconds since 1970
  std::string started{};  // the same time as written in the file
  std::string build{};    // git revision
  std::string file{};
  double ratio = 1;  // to the anchor
};

struct HistorySeries {
  std::string id{}, metric{}, at{}, machine{};
  Better better = Better::lower;
  bool exact = false;                  // a number without noise: any change is one
  std::vector<HistoryPoint> points{};  // in order of time
  std::vector<ChangePoint> changes{};  // indices into points; levels are logarithms
  std::vector<std::string> beside{};   // for each change, the facts of the environment that changed with it

  bool worse(const ChangePoint& change) const;  // true if the new level is worse
};

struct History {
  std::string anchor{};
  size_t reports = 0, judgements = 0;
  std::vector<HistorySeries> series{};  // largest change first, then by name
  std::vector<std::string> remarks{};   // what was omitted, with the reason
};

class HistoryStore {
 public:
  // Adds a report or a judgement of `halfmark ab`. Throws ReportError if it is neither, or has no start time.
  void add(const std::string& file, std::string_view text);

  // Throws ReportError when there is nothing to compare, no build matches the anchor, or no number a given metric.
  History history(const HistoryRules& rules) const;

 private:
  struct Key {
    std::string id, metric, at;
    int case_version;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
  };
  struct Value {
    double value;
    Better better;
    bool timed;
    bool exact;  // without noise
    std::string unit;
    bool operator==(const Value& other) const;  // a NaN equals a NaN
  };
  struct StoredReport {
    std::string file, started, build, machine;
    int64_t when;
    uint64_t seed;
    nlohmann::ordered_json environment;         // without the facts of the build: its revision and its compiler
    nlohmann::ordered_json facts;               // all of the environment but the revision, and run.seed; flat
    std::map<std::string, std::string> absent;  // case: why it has no numbers ("failed: crash")
    std::map<std::string, int> versions;        // of the cases
    std::map<Key, Value> values;
    std::map<std::string, SubjectFacts> subjects;  // by case
  };
  struct StoredJudgement {
    std::string file, started, base, candidate, machine;
    int64_t when;
    std::map<Key, double> ratios;  // candidate to base
  };
  class Collector;

  // A copy of a file that is there already counts once.
  static bool is_copy(const StoredReport& a, const StoredReport& b);
  static bool is_copy(const StoredJudgement& a, const StoredJudgement& b);
  template <class Stored>
  void add_unless_copy(std::vector<Stored>& all, Stored one);

  void add_report(const std::string& file, std::string_view text);
  void add_judgement(const std::string& file, std::string_view text);
  std::string anchor_of(const HistoryRules& rules) const;
  void require_metrics(const HistoryRules& rules) const;

  std::vector<StoredReport> reports_;
  std::vector<StoredJudgement> judgements_;
  std::vector<std::pair<std::string, std::string>> copies_;  // file, the file that it is a copy of
};

// Reads all *.json files of the folder and its subfolders; unusable files become remarks. Throws ReportError when the
// folder cannot be read or contains nothing to compare.
History history_in(const std::filesystem::path& folder, const HistoryRules& rules);

// Converts "2025-11-01T12:00:00Z" or with "+02:00" to seconds since
// 1970. Throws ReportError; `where` is the prefix of its message.
int64_t seconds_since_1970(const std::string& text, std::string_view where);

// Text for a terminal: the changes with their curves, then what was omitted. With options.all, every series.
std::string text_of(const History& history, const TextOptions& options = {});

// JSON for other programs and scripts/history_charts.py (schema/history-1.schema.json).
nlohmann::ordered_json to_json(const History& history);

}  // namespace halfmark::reports
