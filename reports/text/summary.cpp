#include "reports/text/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace halfmark::reports {

namespace {

const std::vector<Figure>& table() {
  using enum Better;
  static const std::vector<Figure> figures = {
      {"train step", "time.step", "hot|", lower, Ratio::speed_up, true, false, true, true, false, false,
       "median time of a training step (forward, backward, optimizer), caches hot"},
      {"speed-up", "speedup.step", "hot", higher, Ratio::none, true, false, true, true, false, true,
       "how many times faster a hot step is than under fp32, timed in turn, with half of its 95 % interval; no gain: "
       "the "
       "interval holds 1; same kernels: nothing can be faster"},
      {"step cold", "time.step", "cold", lower, Ratio::speed_up, true, false, true, false, false, false,
       "the same with caches emptied before each step"},
      {"forward", "time.forward", "hot|", lower, Ratio::speed_up, true, false, true, false, false, false,
       "median time of forward and loss"},
      {"backward", "time.backward", "hot|", lower, Ratio::speed_up, true, false, true, false, false, false,
       "median time of backward"},
      {"optimizer", "time.optimizer", "hot|", lower, Ratio::speed_up, true, false, true, false, false, false,
       "median time of the optimizer step, loss scaling included"},
      {"evaluation", "time.evaluation", "hot|", lower, Ratio::speed_up, true, false, true, false, false, false,
       "median time of one batch in evaluation mode"},
      {"samples", "throughput.step", "hot|", higher, Ratio::rate, true, false, true, false, false, false,
       "samples trained per second"},
      {"FLOP rate", "throughput.flops", "hot|", higher, Ratio::rate, true, false, true, true, false, false,
       "additions and multiplications of matmul and convolution in a training step, per second"},
      {"tensors", "memory.tensors", "train|", lower, Ratio::times, false, false, false, true, false, false,
       "most bytes of tensors alive at one instant of a training step, without scratch of kernels and padding; vs "
       "fp32: share of "
       "its "
       "bytes"},
      {"predicted", "memory.predicted", "train", lower, Ratio::none, false, false, false, false, false, false,
       "the same computed from shapes, dtypes, cast rules, optimizer and batch, without running"},
      {"kept", "memory.saved", "train", lower, Ratio::times, false, false, false, false, false, false,
       "bytes that forward and the loss leave for backward, of activations and statistics"},
      {"tensors eval", "memory.tensors", "evaluate", lower, Ratio::times, false, false, false, false, false, false,
       "the same while a batch is evaluated between two steps: gradients and optimizer state stay allocated"},
      {"peak memory", "memory.peak", "train|", lower, Ratio::none, false, false, false, false, false, false,
       "the same with scratch of kernels; on a processor that emulates a format, also that of the emulation"},
      {"memory eval", "memory.peak", "evaluate", lower, Ratio::none, false, false, false, false, false, false,
       "the same while a batch is evaluated between two steps"},
      {"output NMSE", "error.nmse", "output", lower, Ratio::times, false, false, false, true, false, false,
       "squared error of the output / squared fp64 reference; its square root is a relative error"},
      {"arithmetic NMSE", "error.arithmetic.nmse", "output", lower, Ratio::times, false, false, false, false, false,
       false, "the same against a reference that starts from the rounded inputs: the share of the kernels"},
      {"1 - cosine", "error.cosine", "output", higher, Ratio::none, false, false, false, true, true, false,
       "distance of the output's direction from that of the fp64 reference"},
      {"gradient NMSE", "error.nmse", "gradient/*", lower, Ratio::times, false, false, false, true, false, false,
       "NMSE of the gradient that is worst"},
      {"zeroed", "error.zeroed", "*", lower, Ratio::none, false, true, false, true, false, false,
       "largest share of a tensor that is zero but not in the fp64 reference: lost to underflow"},
      {"overflow", "error.infinite", "*", lower, Ratio::none, false, true, false, true, false, false,
       "largest share of a tensor that is infinite"},
      {"NaN", "error.nan", "*", lower, Ratio::none, false, true, false, false, false, false,
       "largest share of a tensor that is NaN"},
      {"underflow", "range.underflow", "*", lower, Ratio::none, false, true, false, false, false, false,
       "largest share of a tensor below half the format's least number"},
      {"headroom", "range.headroom", "*", higher, Ratio::none, false, false, false, true, false, false,
       "doublings (bits) left before the largest value of any tensor overflows; below 0: it does"},
      {"BatchNorm drift", "batchnorm.running_var_drift", "*", neither, Ratio::none, false, false, false, true, false,
       false, "relative drift of the running variance from fp64; 0 is best"},
      {"final loss", "training.final_loss", "*", lower, Ratio::none, false, false, false, true, false, false,
       "mean training loss of the last tenth of the steps of a short training"},
      {"accuracy", "evaluation.accuracy", "fp32", higher, Ratio::none, false, true, false, true, false, false,
       "share of held-out samples classified correctly, evaluated in fp32: mean over the seeds, with its standard "
       "error",
       true},
      {"half accuracy", "evaluation.accuracy", "half", higher, Ratio::none, false, true, false, false, false, false,
       "the same, evaluated in half precision throughout", true},
      {"training accuracy", "training.final_accuracy", "*", higher, Ratio::none, false, true, false, false, false,
       false,
       "share of the training batches classified correctly, mean of the last tenth of the steps: no held-out samples"},
      {"eval gap", "evaluation.gap", "*", lower, Ratio::none, false, false, false, true, false, false,
       "loss of the trained model evaluated in half precision, less that in fp32"},
      {"skipped steps", "training.skipped_steps", "*", lower, Ratio::none, false, false, false, true, false, false,
       "steps that the loss scaler skipped because a gradient was not finite"},
      {"lost updates", "training.noop_updates", "*", lower, Ratio::none, false, true, false, true, false, false,
       "share of weights that an update left unchanged: lost to rounding where it exceeds that of fp32, whose "
       "gradients are 0"},
      {"loss", "convergence.loss", "*", lower, Ratio::none, false, false, false, true, false, false,
       "loss of held-out samples after training, evaluated in fp32: mean over the seeds"},
      {"loss gap", "convergence.loss_gap", "*", neither, Ratio::none, false, false, false, true, false, false,
       "held-out loss after training, less that under fp32: mean over the seeds"},
      {"fp32 spread", "convergence.fp32_spread", "*", lower, Ratio::none, false, false, false, true, false, false,
       "half of the interval that holds the held-out loss of one more seed of fp32 with 95 %"},
      {"as fp32", "convergence.as_fp32", "*", higher, Ratio::none, false, false, false, true, false, false,
       "yes: the 90 % interval of the loss gap lies within the spread of fp32; no: beyond; open: neither", false, true},
      {"sum error", "accumulation.backward_error", "*", lower, Ratio::none, false, false, false, true, false, false,
       "error of one long sum of products / sum of their magnitudes"},
  };
  return figures;
}

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
    auto& values = group.values[record.policy];
    for (const Measurement& one : record.measurements) {
      const auto places = places_.find(one.metric);
      if (places == places_.end()) continue;
      const auto keep = [&](size_t i) {
        const Figure& figure = figures_[i];
        if (figure.mean) return collect(place, record, one, i);
        Value value{one.value, one.unit, figure.timed && record.status == Status::suspect, &record.axes, one.interval};
        if (figure.speed_up) {
          const Measurement* same = find(record, "speedup.same_kernels", one.at);
          value.same_kernels = same && same->value == 1;
        }
        const auto [found, is_new] = values.try_emplace(figure.title, value);
        value.folded = found->second.folded || *found->second.axes != record.axes;
        found->second.folded = value.folded;
        if (!is_new && replaces(figure, value, found->second)) found->second = std::move(value);
        group.figures.insert(i);
      };
      for (const size_t i : places->second.patterns)
        if (matches(figures_[i].at, one.at)) keep(i);
      if (const auto exact = places->second.exact.find(one.at); exact != places->second.exact.end())
        std::for_each(exact->second.begin(), exact->second.end(), keep);
    }
  }

  // After all records: the mean over the seeds of each setting, and of those the worst.
  void add_means_to(std::vector<Group>& groups) const {
    for (const auto& [key, seeds] : seeds_) {
      Group& group = groups[key.group];
      const Figure& figure = figures_[key.figure];
      Value value = mean_of(seeds);
      auto& values = group.values[key.policy];
      const auto [found, is_new] = values.try_emplace(figure.title, value);
      value.folded = found->second.folded = found->second.folded || !is_new;
      if (!is_new && replaces(figure, value, found->second)) found->second = std::move(value);
      group.figures.insert(key.figure);
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
    Value value{mean, seeds[0].unit, false, &seeds[0].record->axes, std::nullopt};
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

std::span<const Figure> known_figures() { return table(); }

bool is_control(const Record& record) {
  if (!record.expectation) return false;
  return record.status == Status::ok || record.status == Status::suspect || !record.expectation->met;
}

std::vector<Figure> figures_of(const std::vector<const Report*>& reports, bool all) {
  std::vector<Figure> figures = table();
  std::set<std::string> seen;
  std::set<std::string_view> families;
  for (const Figure& figure : table()) {
    seen.insert(figure.metric + " @ " + figure.at);
    families.insert(family_of(figure.metric));
  }
  for (const Report* report : reports) {
    for (const Record& record : report->records) {
      for (const Measurement& one : record.measurements) {
        // The numbers of the reference itself serve the gate and are the same under every policy.
        const bool background =
            (one.kind == Kind::information && one.better == Better::neither) || family_of(one.metric) == "reference";
        if (!all && (families.contains(family_of(one.metric)) || background)) continue;
        const std::string title = all && !one.at.empty() ? one.metric + " @ " + one.at : one.metric;
        if (!seen.insert(title).second) continue;
        Figure figure{title, one.metric, all ? one.at : "*", one.better};
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
  std::map<std::tuple<size_t, std::string, std::string>, std::map<std::string, std::string>> axes;
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
    const auto [first, is_first] = axes.try_emplace({found->second, record.policy, record.harness}, record.axes);
    for (const auto& [axis, setting] : record.axes) {
      const auto earlier = first->second.find(axis);
      if (earlier == first->second.end() || earlier->second != setting) group.folded_axes.insert(axis);
    }
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
