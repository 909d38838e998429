// A folder of reports and of judgements as a store: for each case the ratio of every build to one anchor build, over
// time, and where the ratio changes its level.
//
// Stored times drift with drivers, clocks and the weather, so that none of them is compared with another. What is
// compared are ratios to the anchor that were measured beside it: `halfmark ab ANCHOR NEW --json F` says such ratios
// itself, and a report gives one where a report of the anchor build, of the same machine, libraries and case version,
// was made within the same hours. Numbers that do not drift (bytes, errors) may be hours apart as they like.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "reports/record/report.h"
#include "reports/statistics/change_points.h"
#include "reports/text/table.h"

namespace halfmark::reports {

struct HistoryRules {
  std::string anchor{};  // the beginning of its git revision; empty: the build that the oldest file is about
  double hours = 24;     // a time is compared with one of the anchor that is at most so much older or younger
  // Globs. time.process: medians of processes of their own, where a run has several.
  std::vector<std::string> metrics{"time.process", "time.step", "memory.peak", "error.nmse", "evaluation.accuracy"};
  ChangePointRules change{};  // of the logarithms of the ratios
};

struct HistoryPoint {
  int64_t when = 0;       // seconds since 1970
  std::string started{};  // the same as the file says it
  std::string build{};    // git revision
  std::string file{};
  double ratio = 1;  // to the anchor
};

struct HistorySeries {
  std::string id{}, metric{}, at{}, machine{};
  Better better = Better::lower;
  std::vector<HistoryPoint> points{};  // in the order of time
  std::vector<ChangePoint> changes{};  // indices into points; levels are logarithms

  bool worse(const ChangePoint& change) const;  // the new level is the worse one
};

struct History {
  std::string anchor{};
  size_t reports = 0, judgements = 0;
  std::vector<HistorySeries> series{};  // largest change first, then by name
  std::vector<std::string> remarks{};   // what was left out, and why
};

class HistoryStore {
 public:
  // A report or a judgement of `halfmark ab`. Throws ReportError: it is neither, or does not say when it was made.
  void add(const std::string& file, std::string_view text);

  // Throws ReportError when there is nothing to compare or no build is called as the anchor.
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
  };
  struct StoredReport {
    std::string file, started, build, machine;
    int64_t when;
    nlohmann::ordered_json environment;  // less what a build is: its revision and its compiler
    std::map<Key, Value> values;
  };
  struct StoredJudgement {
    std::string file, started, base, candidate, machine;
    int64_t when;
    std::map<Key, double> ratios;  // candidate to base
  };
  class Collector;

  void add_report(const std::string& file, std::string_view text);
  void add_judgement(const std::string& file, std::string_view text);
  std::string anchor_of(const HistoryRules& rules) const;

  std::vector<StoredReport> reports_;
  std::vector<StoredJudgement> judgements_;
};

// All *.json of the folder and of the folders in it; what cannot be used is a remark. Throws ReportError when the
// folder cannot be read or holds nothing to compare.
History history_in(const std::filesystem::path& folder, const HistoryRules& rules);

// "2025-11-01T12:00:00Z" or with "+02:00" to seconds since 1970. Throws ReportError; `where` opens its message.
int64_t seconds_since_1970(const std::string& text, std::string_view where);

// For a terminal: the changes with their curves, then what was left out. With options.all every series.
std::string text_of(const History& history, const TextOptions& options = {});

// For other programs and scripts/history_charts.py (schema/history-1.schema.json).
nlohmann::ordered_json to_json(const History& history);

}  // namespace halfmark::reports
