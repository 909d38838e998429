#include "reports/text/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

namespace halfmark::reports {

namespace {

bool is_timed(std::string_view metric) {
  return metric.starts_with("time.") || metric.starts_with("throughput.") || metric.starts_with("energy.") ||
         metric.starts_with("speedup.");
}

bool is_pattern(std::string_view at) { return at.ends_with('*') || at.find('|') != at.npos; }

bool matches(std::string_view pattern, std::string_view at) {
  if (const size_t bar = pattern.find('|'); bar != pattern.npos) {
    return pattern.substr(0, bar) == at || matches(pattern.substr(bar + 1), at);
  }
  if (pattern.ends_with('*')) return at.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == at;
}

// Whether `candidate` replaces `present`: a valid time before a suspect one, then best or worst; NaN counts as worst.
bool replaces(const Figure& figure, const Value& candidate, const Value& present) {
  if (candidate.suspect != present.suspect) return present.suspect;
  const auto badness = [&](double number) {
    if (std::isnan(number)) return std::numeric_limits<double>::infinity();
    if (figure.better == Better::neither) return std::abs(number);  // signed, and zero is best
    return figure.better == Better::higher ? -number : number;
  };
  return figure.best ? badness(candidate.number) < badness(present.number)
                     : badness(candidate.number) > badness(present.number);
}

// Whether two values of one figure differ and come from cases with different axes.
bool differs(const Value& a, const Value& b) {
  return a.record->axes != b.record->axes &&
         (a.suspect != b.suspect || (a.number != b.number && !(std::isnan(a.number) && std::isnan(b.number))));
}

// Finds the figures of a measurement: a report may have thousands, one for each place.
class FigureIndex {
 public:
  explicit FigureIndex(std::span<const Figure> figures) : figures_(figures) {
    for (size_t i = 0; i < figures.size(); ++i) {
      const Figure& figure = figures[i];
      Places& places = places_[figure.metric];
      (is_pattern(figure.at) ? places.patterns : places.exact[figure.at]).push_back(i);
    }
  }

  // `place`: the number of the group.
  void take(Group& group, size_t place, const Record& record) {
    std::map<size_t, Value> own;  // of this case, by figure: the best or worst over the places
    for (const Measurement& one : record.measurements) {
      const auto places = places_.find(one.metric);
      if (places == places_.end()) continue;
      const auto keep = [&](size_t i) {
        const Figure& figure = figures_[i];
        if (figure.mean) return collect(place, record, one, i);
        Value value{one.value, one.unit, figure.timed && record.status == Status::suspect, &record, one.interval};
        if (figure.speed_up) {
          const Measurement* same = find(record, "speedup.same_kernels", one.at);
          value.same_kernels = same && same->value == 1;
        }
        const auto [found, is_new] = own.try_emplace(i, value);
        if (!is_new && replaces(figure, value, found->second)) found->second = std::move(value);
      };
      for (const size_t i : places->second.patterns)
        if (matches(figures_[i].at, one.at)) keep(i);
      if (const auto exact = places->second.exact.find(one.at); exact != places->second.exact.end())
        std::for_each(exact->second.begin(), exact->second.end(), keep);
    }
    auto& values = group.values[record.policy];
    for (auto& [i, value] : own) merge(group, values, i, std::move(value));
  }

  // After all records: the mean over the seeds of each setting, and of those the worst.
  void add_means_to(std::vector<Group>& groups) const {
    for (const auto& [key, seeds] : seeds_) {
      Group& group = groups[key.group];
      merge(group, group.values[key.policy], key.figure, mean_of(seeds));
    }
  }

 private:
  struct Seed {
    double value, error, samples;
    const Record* record;
    std::string unit;
  };
  struct MeanKey {
    size_t group;
    std::string policy;
    size_t figure;
    std::map<std::string, std::string> axes;  // without that of the seeds
    auto operator<=>(const MeanKey&) const = default;
  };

  void merge(Group& group, std::map<std::string, Value>& values, size_t i, Value value) const {
    const Figure& figure = figures_[i];
    group.figures.insert(i);
    const auto [found, is_new] = values.try_emplace(figure.title, value);
    if (is_new) return;
    Value& present = found->second;
    value.folded = present.folded = present.folded || differs(value, present);
    if (replaces(figure, value, present))
      present = std::move(value);
    else if (value.number == present.number && value.suspect == present.suspect)
      present.equal.push_back(value.record);
  }

  void collect(size_t group, const Record& record, const Measurement& one, size_t figure) {
    const std::string samples = std::string(family_of(one.metric)) + ".samples";
    const auto counted = std::find_if(record.measurements.begin(), record.measurements.end(),
                                      [&](const Measurement& other) { return other.metric == samples; });
    if (!one.standard_error || counted == record.measurements.end()) return;
    MeanKey key{group, record.policy, figure, record.axes};
    key.axes.erase(std::string(kReplicates));
    seeds_[std::move(key)].push_back({one.value, *one.standard_error, counted->value, &record, one.unit});
  }

  static Value mean_of(const std::vector<Seed>& seeds) {
    const auto count = static_cast<double>(seeds.size());
    double sum = 0, own = 0, between = 0, samples = seeds[0].samples;
    for (const Seed& seed : seeds) sum += seed.value, own += seed.error * seed.error;
    const double mean = sum / count;
    for (const Seed& seed : seeds) {
      between += (seed.value - mean) * (seed.value - mean);
      samples = std::min(samples, seed.samples);
    }
    own = std::sqrt(own) / count;
    between = seeds.size() > 1 ? std::sqrt(between / (count - 1) / count) : 0;
    Value value{mean, seeds[0].unit, false, seeds[0].record, std::nullopt};
    value.error = std::isnan(between) ? between : std::max(own, between);
    value.seeds = seeds.size(), value.samples = samples;
    return value;
  }

  struct Places {
    std::vector<size_t> patterns;
    std::unordered_map<std::string, std::vector<size_t>> exact;
  };
  std::span<const Figure> figures_;
  std::unordered_map<std::string, Places> places_;  // by metric
  std::map<MeanKey, std::vector<Seed>> seeds_;
};

// "1.84x +-3%", "no gain +-5%", "same kernels". The half-width is that of the wider side.
Cell speed_up_cell(const Value& value) {
  if (value.same_kernels) return {"same kernels", Tone::dim};
  if (!value.interval) return {"unknown", Tone::dim};
  const auto [lower, upper] = *value.interval;
  const double wider = std::max(upper / value.number - 1, 1 - lower / value.number);
  const std::string share = fmt::format("+-{:.2g}%", std::max(100 * wider, 0.1));
  if (value.interval->holds(1)) return {"no gain " + share, Tone::dim};
  return {human_ratio(value.number) + " " + share, value.number > 1 ? Tone::good : Tone::bad};
}

}  // namespace

const Value* Group::value(const std::string& policy, const Figure& figure) const {
  const auto row = values.find(policy);
  if (row == values.end()) return nullptr;
  const auto found = row->second.find(figure.title);
  return found == row->second.end() ? nullptr : &found->second;
}

bool Group::has(const Figure& figure) const {
  return std::any_of(values.begin(), values.end(), [&](const auto& row) { return row.second.contains(figure.title); });
}

std::string_view family_of(std::string_view metric) { return metric.substr(0, metric.find('.')); }

bool is_control(const Record& record) {
  if (!record.expectation) return false;
  return record.status == Status::ok || record.status == Status::suspect || !record.expectation->met;
}

namespace {

// Metrics of which every record that has them has a number of the whole case: that one is shown, not the worst part.
std::set<std::string> metrics_of_whole_cases(const std::vector<const Report*>& reports) {
  std::set<std::string> all, without;
  for (const Report* report : reports)
    for (const Record& record : report->records)
      for (const Measurement& one : record.measurements)
        if (all.insert(one.metric); !find(record, one.metric)) without.insert(one.metric);
  for (const std::string& metric : without) all.erase(metric);
  return all;
}

}  // namespace

std::vector<Figure> figures_of(const std::vector<const Report*>& reports, bool all) {
  const std::span<const Figure> known = known_figures();
  std::vector<Figure> figures(known.begin(), known.end());
  std::set<std::string> seen;
  std::set<std::string_view> families;
  for (const Figure& figure : known) {
    seen.insert(figure.metric + " @ " + figure.at);
    families.insert(family_of(figure.metric));
  }
  const std::set<std::string> whole = metrics_of_whole_cases(reports);
  for (const Report* report : reports) {
    for (const Record& record : report->records) {
      for (const Measurement& one : record.measurements) {
        // The numbers of the reference itself serve the gate and are the same under every policy. The linter has a section.
        const bool background = (one.kind == Kind::information && one.better == Better::neither) ||
                                family_of(one.metric) == "reference" || family_of(one.metric) == "lint";
        if (!all && (families.contains(family_of(one.metric)) || background)) continue;
        const std::string title = all && !one.at.empty() ? one.metric + " @ " + one.at : one.metric;
        if (!seen.insert(title).second) continue;
        Figure figure{title, one.metric, all ? one.at : whole.contains(one.metric) ? "" : "*", one.better};
        figure.timed = figure.best = is_timed(one.metric);
        figures.push_back(figure);
      }
    }
  }
  return figures;
}

std::string Group::title() const { return subject + " on " + device + (data.empty() ? "" : ", data " + data); }

std::vector<Group> groups_of(const Report& report, std::span<const Figure> figures) {
  std::vector<Group> groups;
  FigureIndex index(figures);
  std::map<std::pair<std::string, std::string>, size_t> place;
  std::set<std::pair<size_t, std::string>> policies;
  for (const Record& record : report.records) {
    if (is_control(record)) continue;
    const auto [found, is_new] = place.try_emplace({record.subject, record.device}, groups.size());
    if (is_new) {
      groups.emplace_back();
      groups.back().subject = record.subject;
      groups.back().device = record.device;
    }
    Group& group = groups[found->second];
    if (record.data && group.data.empty()) group.data = record.data->name + " (" + record.data->kind + ")";
    if (policies.emplace(found->second, record.policy).second) group.policies.push_back(record.policy);
    if (record.status != Status::ok) group.without[record.policy][record.status].insert(record.reason);
    if (record.status != Status::ok && record.status != Status::suspect) continue;
    group.settings.add(record);
    index.take(group, found->second, record);
  }
  index.add_means_to(groups);
  return groups;
}

bool has_ratio_within(const Figure& figure) { return figure.ratio != Ratio::none && !figure.timed; }

std::optional<double> ratio_of(const Figure& figure, const Value* value, const Value* base) {
  if (!value || !base || figure.ratio == Ratio::none || value->suspect || base->suspect) return std::nullopt;
  if (!std::isfinite(value->number) || !std::isfinite(base->number)) return std::nullopt;
  const double ratio = figure.ratio == Ratio::speed_up ? base->number / value->number : value->number / base->number;
  return std::isfinite(ratio) ? std::optional(ratio) : std::nullopt;
}

Cell cell_of(const Figure& figure, const Value* value) {
  if (!value) return {"-", Tone::dim};
  if (value->suspect) return {"suspect", Tone::dim};
  if (figure.speed_up) return speed_up_cell(*value);
  const Tone tone = std::isfinite(value->number) ? Tone::plain : Tone::bad;
  if (figure.yes_no)
    return value->number > 0 ? Cell{"yes", Tone::good} : value->number < 0 ? Cell{"no", Tone::bad} : Cell{"open"};
  if (figure.one_minus) return {human(1 - value->number, value->unit), tone};
  const auto shown = [&](double number) { return figure.share ? human_share(number) : human(number, value->unit); };
  return {value->error ? fmt::format("{} +-{}", shown(value->number), shown(*value->error)) : shown(value->number),
          tone};
}

}  // namespace halfmark::reports
