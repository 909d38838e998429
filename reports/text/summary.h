// The key figures of a report: the few of hundreds of measurements that describe speed, memory, error and training.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"
#include "reports/text/axis_settings.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// The name of the policy that all others are compared with.
inline constexpr std::string_view kBaseline = "fp32";

// The axis whose settings are seeds: the same measurement from other random numbers.
inline constexpr std::string_view kReplicates = "replicate";

// How a ratio to the baseline is computed. speed_up: baseline / value. times: value / baseline. Times have one between
// reports only: within a report a speed-up is measured in turn and is a figure of its own.
enum class Ratio { none, speed_up, rate, times };

// One column of a summary: the lowest or highest of all measurements that match, over places and axes.
struct Figure {
  std::string title;  // heading of its column
  std::string metric;
  std::string at;  // a place, "gradient/*" all below, "*" any, "hot|" hot or none
  Better better = Better::lower;
  Ratio ratio = Ratio::none;
  bool best = false;       // take the best (times) instead of the worst
  bool share = false;      // print as per cent
  bool timed = false;      // not valid in a suspect record
  bool brief = true;       // in the narrow tables of `show` too
  bool one_minus = false;  // print 1 - value: of a cosine only the distance from 1 is of interest
  bool speed_up =
      false;            // a ratio of times measured in turn: printed with its interval, never as a gain if that holds 1
  std::string about{};  // explanation of the column for new users
  // The mean over the seeds, with its standard error. A value without its standard error, or without the number of its
  // samples ("evaluation.samples" for "evaluation.accuracy"), is not shown.
  bool mean = false;
  bool yes_no = false;    // print 1 as "yes", 0 as "open" and -1 as "no"
  bool compared = false;  // between machines too, although it is not brief
};

struct Value {
  double number = 0;
  std::string unit;
  bool suspect = false;            // only suspect records have it
  const Record* record = nullptr;  // of the case that has it, in the report
  std::optional<Range> interval{};
  bool same_kernels = false;  // of a speed-up: the baseline runs the same kernels
  bool folded = false;        // the best or worst of different values, of cases with different axes
  // Of a mean. The error is the larger of two: the standard deviation of the seeds / sqrt(seeds), from two seeds on, and
  // the root of the mean square of the seeds' own standard errors / sqrt(seeds).
  std::optional<double> error{};
  size_t seeds = 0;
  double samples = 0;                  // the fewest of any seed
  std::vector<const Record*> equal{};  // further cases with the same number
};

// Policies of one subject on one device, with the figures they have.
struct Group {
  std::string subject, device;
  std::string data{};  // of the files that a record was measured on: "digits (mnist)"; empty: all are drawn
  std::vector<std::string> policies;                                       // in the order of the report
  std::map<std::string, std::map<std::string, Value>> values;              // [policy][figure title]
  AxisSettings settings;                                                   // of the records with values
  std::map<std::string, std::map<Status, std::set<std::string>>> without;  // [policy][status] reasons
  std::set<size_t> figures;  // the figures that it has, by their place in the list for groups_of()

  const Value* value(const std::string& policy, const Figure& figure) const;
  bool has(const Figure& figure) const;
  std::string title() const;  // "lenet5/b64_c1_s28 on cpu, data digits (mnist)"
};

// "time" of "time.step".
std::string_view family_of(std::string_view metric);

// The figures this program knows, most important first.
std::span<const Figure> known_figures();

// Whether the record is a measured negative control: its bad outcome is intended, so its numbers do not represent the
// precision. The tables leave it out; `show` lists it below them.
bool is_control(const Record& record);

// known_figures(), then the metrics of families unknown here, or with `all` every metric at every place.
std::vector<Figure> figures_of(const std::vector<const Report*>& reports, bool all);

// Groups in the order of the report.
std::vector<Group> groups_of(const Report& report, std::span<const Figure> figures);

// Whether the table of one report shows this figure's ratio to the baseline.
bool has_ratio_within(const Figure& figure);

// The ratio of value and base that `figure.ratio` selects; nullopt if it is meaningless.
std::optional<double> ratio_of(const Figure& figure, const Value* value, const Value* base);

// "1.84 ms", "suspect", "-".
Cell cell_of(const Figure& figure, const Value* value);

}  // namespace halfmark::reports
