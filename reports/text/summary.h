// The telling numbers of a report: of hundreds of measurements, the few that answer fast, small, right, trained.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// The precision all others are compared with. A name; the suite gives it its meaning.
inline constexpr std::string_view kBaseline = "fp32";

// How a ratio to the baseline reads. speed_up: baseline / value. times: value / baseline.
enum class Ratio { none, speed_up, rate, times };

// One column of a summary. Of all measurements that match, over places and axes, one is taken: the lowest or highest.
struct Figure {
  std::string title;  // heading of its column
  std::string metric;
  std::string at;  // a place, "gradient/*" all below, "*" any, "hot|" hot or none
  Better better = Better::lower;
  Ratio ratio = Ratio::none;
  bool best = false;       // take the best (times) instead of the worst
  bool share = false;      // print as per cent
  bool timed = false;      // of a suspect record it means nothing
  bool brief = true;       // in the narrow tables of `show` too
  bool one_minus = false;  // print 1 - value: of a cosine only the distance from 1 tells anything
  std::string about{};     // what the column says, for a reader who has never seen the suite
};

struct Value {
  double number = 0;
  std::string unit;
  bool suspect = false;  // only suspect records have it
};

// Policies of one subject on one device, with the figures they have.
struct Group {
  std::string subject, device;
  std::vector<std::string> policies;                                       // as they came
  std::map<std::string, std::map<std::string, Value>> values;              // [policy][figure title]
  std::set<std::string> folded_axes;                                       // axes over which best or worst was taken
  std::map<std::string, std::map<Status, std::set<std::string>>> without;  // [policy][status] reasons

  const Value* value(const std::string& policy, const Figure& figure) const;
  bool has(const Figure& figure) const;
};

// "time" of "time.step".
std::string_view family_of(std::string_view metric);

// The figures this program knows, most telling first.
std::span<const Figure> known_figures();

// Whether the record is a negative control that was measured: made to go wrong, so that its numbers are not those of
// the precision. The tables leave it out, `show` lists it below them.
bool is_control(const Record& record);

// known_figures(), then the metrics of families unknown here, or with `all` every metric at every place.
std::vector<Figure> figures_of(const std::vector<const Report*>& reports, bool all);

// Groups in the order of the report.
std::vector<Group> groups_of(const Report& report, std::span<const Figure> figures);

// value against base as `figure.ratio` says, nothing when that is meaningless.
std::optional<double> ratio_of(const Figure& figure, const Value* value, const Value* base);

// "1.84 ms", "suspect", "-".
Cell cell_of(const Figure& figure, const Value* value);

}  // namespace halfmark::reports
