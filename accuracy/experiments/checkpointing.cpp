// The harness `checkpointing`: one training step of a network with and without gradient checkpointing. What it saves in
// bytes, what it adds in operations, and whether the activations that are computed again have the same bits.
#include "accuracy/experiments/checkpointing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/trial_values.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

const std::vector<MetricRow>& checkpointing_table() {
  constexpr Kind information = Kind::information;
  static const std::vector<MetricRow> rows = {
      {"checkpointing.segments", "1", Better::neither, information, "checkpoint layers around parts of the network"},
      {"checkpointing.saved_bytes", "B", Better::lower, information,
       "bytes that wait for backward after forward and loss; at: plain, checkpointed"},
      {"checkpointing.saved_ratio", "1", Better::lower, information, "checkpointed / plain of these"},
      {"checkpointing.peak_bytes", "B", Better::lower, information,
       "most bytes of tensors at one instant of a step, without scratch and padding; at: plain, checkpointed"},
      {"checkpointing.peak_ratio", "1", Better::lower, information, "checkpointed / plain of these"},
      {"checkpointing.added_flops", "1", Better::lower, information,
       "operations of the second forward / operations of a plain step (three times its forward)"},
      {"checkpointing.activations_equal", "1", Better::higher, information,
       "share of the recomputed activations that are bit-equal to those of the first forward; at other_random_numbers: "
       "as if "
       "dropout drew anew; at other_cast_rules: as if autocast were off in the second forward (controls, computed "
       "without "
       "checkpointing; absent where the network or the policy has neither)"},
      {"checkpointing.activations", "1", Better::neither, information, "activations that were compared"},
      {"checkpointing.gradients_equal", "1", Better::higher, information,
       "share of the gradients of parameters, as stored, that are bit-equal to those of the plain network"},
      {"checkpointing.gradients", "1", Better::neither, information, "gradients that were compared"},
      {"checkpointing.loss_equal", "1", Better::higher, information, "1: the loss of the first forward is bit-equal"},
      {"checkpointing.statistics_equal", "1", Better::higher, information,
       "share of the running statistics that are bit-equal after the step; the second forward updates them again"},
      {"checkpointing.statistics_difference", "1", Better::lower, information,
       "||running statistics - plain ones|| / ||plain ones||"},
  };
  return rows;
}

// The names of layers that read what another layer of the same list leaves, or that leave it.
void add_names(const LayerSpec& spec, const std::string& kind, std::set<std::string>& names) {
  if (spec.kind == kind) {
    const auto of = spec.arguments.find("of");
    names.insert(kind == "join" && of != spec.arguments.end() ? std::get<std::string>(of->second) : spec.name);
  }
  for (const auto& branch : spec.branches)
    for (const LayerSpec& inner : branch) add_names(inner, kind, names);
}

// Places after which the list may be cut: no side branch waits there for its join.
std::vector<size_t> cuts_of(const std::vector<LayerSpec>& layers, size_t count) {
  std::vector<size_t> cuts;
  std::set<std::string> waiting;
  for (size_t i = 0; i < count; ++i) {
    std::set<std::string> left, taken;
    add_names(layers[i], "side", left), add_names(layers[i], "join", taken);
    waiting.insert(left.begin(), left.end());
    for (const std::string& name : taken) waiting.erase(name);
    if (waiting.empty()) cuts.push_back(i + 1);
  }
  return cuts;
}

double forward_flops_of(const Network& network, const Shape& input) {
  double sum = 0;
  for (const LayerFacts& facts : layer_facts(network, input)) sum += facts.forward_flops;
  return sum;
}

using Seen = std::map<std::string, std::vector<double>>;
Tap keeping(Seen& seen) {
  return [&seen](const std::string& name, const Tensor& tensor) {
    if (!name.starts_with("activation/")) return;
    std::vector<double>& values = seen[name];  // a layer that runs again appends
    const std::vector<double> own = tensor.values();
    values.insert(values.end(), own.begin(), own.end());
  };
}

struct Comparison {
  double equal = 0, count = 0;
  void add(const std::vector<double>& a, const std::vector<double>& b) {
    equal += share_of_equal_values(a, b) * static_cast<double>(a.size()), count += static_cast<double>(a.size());
  }
  double share() const { return count > 0 ? equal / count : 1; }
};

// Of the activations in both.
Comparison compare_seen(const Seen& again, const Seen& first) {
  Comparison found;
  for (const auto& [name, values] : again) {
    const auto of_first = first.find(name);
    HM_CHECK(of_first != first.end(), "checkpointing: " + name + " is computed in the second forward only");
    found.add(values, of_first->second);
  }
  return found;
}

struct StepOfNetwork {
  Seen first, again;
  std::vector<std::vector<double>> gradients;
  ModelValues values;
  double loss = 0, saved = 0, peak = 0;
};

StepOfNetwork run_step(const TrialSpec& given) {
  StepOfNetwork result;
  {
    Trial trial(given);
    trial.set_tap(keeping(result.first));
    trial.set_recomputed_tap(keeping(result.again));
    trial.load_batch(0);
    trial.forward();
    result.loss = trial.loss();
    trial.set_tap({});
    trial.backward();
    for (const Param* param : trial.params()) result.gradients.push_back(param->grad.values());
    result.values = values_of(trial);
  }
  // A device of its own, because what other cases left there must not be counted; the first step allocates the state.
  TrialSpec spec = given;
  spec.device = open_device(given.device->name());
  MemoryLedger& ledger = spec.device->memory();
  Trial trial(spec);
  trial.train_step(0);
  trial.load_batch(1);
  ledger.reset_peak();
  trial.forward();
  result.saved = static_cast<double>(ledger.live().by_purpose[static_cast<size_t>(Purpose::saved)]);
  trial.backward();
  result.peak = static_cast<double>(ledger.tensor_peak().total);
  trial.update();
  return result;
}

// The activations of a forward on batch 0 whose random numbers are those of another step.
Seen with_other_random_numbers(const TrialSpec& spec) {
  Trial trial(spec);
  Seen seen;
  trial.load_batch(0);
  const std::vector<double> x = trial.input().values();
  trial.load_batch(1);
  Tensor input = trial.input();
  input.set_values(x);
  trial.set_tap(keeping(seen));
  trial.forward();
  return seen;
}

// The activations of a forward from the same parameters without the policy's cast rules.
Seen without_autocast(const TrialSpec& spec) {
  Policy plain = *spec.policy;
  plain.rules = nullptr;
  Trial trial(spec.under(plain));
  Seen seen;
  trial.load_batch(0);
  trial.set_tap(keeping(seen));
  trial.forward();
  return seen;
}

bool has_kind(const std::vector<LayerSpec>& layers, std::string_view kind) {
  return std::any_of(layers.begin(), layers.end(), [&](const LayerSpec& layer) {
    return layer.kind == kind || std::any_of(layer.branches.begin(), layer.branches.end(),
                                             [&](const auto& branch) { return has_kind(branch, kind); });
  });
}

Findings measure_checkpointing(const TrialSpec& spec) {
  const std::string wanted = axis_value(checkpointing_harness(), spec, "segments");
  CheckpointedNetwork made = with_checkpoints(*spec.subject, wanted == "sqrt" ? 0 : std::stoul(wanted));
  const double step_flops = 3 * forward_flops_of(*spec.subject->network, spec.subject->input);
  const Subject subject = with_network(*spec.subject, std::move(made.network), "checkpointed");
  TrialSpec checkpointed_spec = spec;
  checkpointed_spec.subject = &subject;
  const StepOfNetwork plain = run_step(spec), checkpointed = run_step(checkpointed_spec);

  FindingsWriter out(checkpointing_table());
  out.number("checkpointing.segments", "", static_cast<double>(made.segments));
  for (const auto& [at, step] : {std::pair{"plain", &plain}, {"checkpointed", &checkpointed}}) {
    out.number("checkpointing.saved_bytes", at, step->saved);
    out.number("checkpointing.peak_bytes", at, step->peak);
  }
  out.number("checkpointing.saved_ratio", "", checkpointed.saved / plain.saved);
  out.number("checkpointing.peak_ratio", "", checkpointed.peak / plain.peak);
  out.number("checkpointing.added_flops", "", made.added_flops / step_flops);

  HM_CHECK(!checkpointed.again.empty(), "checkpointing: no layer computed its forward again");
  const Comparison again = compare_seen(checkpointed.again, plain.first);
  out.number("checkpointing.activations_equal", "", again.share());
  out.number("checkpointing.activations", "", again.count);
  if (has_kind(spec.subject->network->layers, "dropout"))
    out.number("checkpointing.activations_equal", "other_random_numbers",
               compare_seen(with_other_random_numbers(spec), plain.first).share());
  if (spec.policy->rules)
    out.number("checkpointing.activations_equal", "other_cast_rules",
               compare_seen(without_autocast(spec), plain.first).share());
  Comparison gradients;
  for (size_t i = 0; i < plain.gradients.size(); ++i) gradients.add(checkpointed.gradients[i], plain.gradients[i]);
  out.number("checkpointing.gradients_equal", "", gradients.share());
  out.number("checkpointing.gradients", "", gradients.count);
  out.number("checkpointing.loss_equal", "", share_of_equal_values({checkpointed.loss}, {plain.loss}));
  if (!plain.values.states.empty()) {
    Comparison statistics;
    std::vector<double> a, b;
    for (size_t i = 0; i < plain.values.states.size(); ++i) {
      statistics.add(checkpointed.values.states[i], plain.values.states[i]);
      a.insert(a.end(), checkpointed.values.states[i].begin(), checkpointed.values.states[i].end());
      b.insert(b.end(), plain.values.states[i].begin(), plain.values.states[i].end());
    }
    out.number("checkpointing.statistics_equal", "", statistics.share());
    out.number("checkpointing.statistics_difference", "", relative_distance(a, b));
  }
  return out.take();
}

std::optional<std::string> refuses_checkpointing(const TrialSpec& spec) {
  const std::string id = spec.subject->id();
  if (!spec.subject->network) return "only a function of a program knows the network of " + id;
  if (with_checkpoints(*spec.subject, 0).segments == 0) return id + " has no layer before its last";
  if (has_kind(spec.subject->network->layers, "checkpoint")) return id + " has checkpoint layers already";
  return {};
}

}  // namespace

CheckpointedNetwork with_checkpoints(const Subject& subject, size_t segments) {
  const std::vector<LayerSpec>& layers = subject.network->layers;
  CheckpointedNetwork made;
  // The input of an embedding has no gradient, and its table is cheap to keep: it stays outside.
  size_t first = 0;
  while (first < layers.size() && layers[first].kind == "embedding") ++first;
  const size_t end = layers.size() > first + 1 ? layers.size() - 1 : first, count = end - first;
  if (segments == 0) segments = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  made.network.layers.assign(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(first));
  size_t begin = first;
  for (const size_t cut : cuts_of(layers, end)) {
    if (cut <= begin) continue;
    const size_t wanted = first + (made.segments + 1) * count / std::max<size_t>(segments, 1);
    if (cut < wanted && cut != end) continue;
    LayerSpec segment{.kind = "checkpoint", .name = "checkpoint" + std::to_string(made.segments + 1)};
    segment.branches.emplace_back(layers.begin() + static_cast<std::ptrdiff_t>(begin),
                                  layers.begin() + static_cast<std::ptrdiff_t>(cut));
    made.network.layers.push_back(std::move(segment));
    ++made.segments, begin = cut;
  }
  made.network.layers.insert(made.network.layers.end(), layers.begin() + static_cast<std::ptrdiff_t>(begin),
                             layers.end());
  // Facts of branches come before those of the layer around them; layers outside the checkpoints run once.
  double inside = 0;
  for (const LayerFacts& facts : layer_facts(made.network, subject.input)) {
    if (facts.depth > 0) inside += facts.forward_flops;
    if (facts.depth > 0) continue;
    if (facts.layer->kind == "checkpoint") made.added_flops += inside;
    inside = 0;
  }
  return made;
}

Harness checkpointing_harness() {
  return {.name = "checkpointing",
          .about = "a training step with gradient checkpointing: bytes, added work, bits of what is computed again",
          .axes = {{"segments",
                    {"sqrt"},
                    AxisNumbers{1, 1000, true},
                    "checkpointed segments, at most; sqrt: root of the number of layers that can be in one"}},
          .metrics = checkpointing_table(),
          .refuses = refuses_checkpointing,
          .measure = measure_checkpointing};
}

}  // namespace halfmark::accuracy
