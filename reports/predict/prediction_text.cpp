#include "reports/predict/prediction_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "reports/record/shell.h"
#include "reports/text/summary.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kLegend =
    "At best: the least time of a training step that published peaks allow, the larger of FLOP / peak of the operands "
    "and bytes / memory bandwidth, both of the whole step. Launches of kernels are not in it, so a real step takes "
    "longer. Caches are not in it: operands that stay in one, as all of a small model do, need no bandwidth. The gain "
    "over fp32 is a ratio of two such times and no bound. Nothing here was measured, and nothing above is compared "
    "with "
    "it.";

// Rates as data sheets state them: in powers of 1000, with their digits.
std::string tera(double flops) { return fmt::format("{:.5g} TFLOP/s", flops / 1e12); }

std::string stated(const PublishedFigure& figure) {
  return figure.note.empty() ? fmt::format("({})", figure.row) : fmt::format("({}; {})", figure.row, figure.note);
}

std::string steps_text(const PredictedSteps& group, const TextOptions& options) {
  const bool any_error =
      std::ranges::any_of(group.steps, [](const PredictedStep& step) { return step.error.has_value(); });
  const bool any_reorder = std::ranges::any_of(group.steps, &PredictedStep::has_reorders);
  std::vector<std::string> titles = {"GPU", "policy", "least step", "gain", "limited by", "FLOP", "bytes"};
  if (any_error) titles.insert(titles.begin() + 4, "output NMSE");
  Table table(titles, 2);
  for (const PredictedStep& step : group.steps) {
    std::vector<Cell> row = {{step.gpu->name + " predicted", Tone::strong},
                             {step.policy},
                             {human(step.seconds, "s")},
                             {step.gain ? human_ratio(*step.gain) : "-"},
                             {step.by_bandwidth ? "bandwidth" : step.operands + " peak"},
                             {step.flops > 0 ? human(step.flops, "FLOP") : "-"},
                             {human(step.bytes, "B")}};
    if (any_error) row.insert(row.begin() + 4, Cell{step.error ? human(*step.error, "1") : "-"});
    table.add(std::move(row));
  }
  return fmt::format(
      "\n{}\n{}{}", toned(printable(group.subject), Tone::strong, options.colour),
      wrapped("",
              fmt::format("FLOP and bytes: of the records {}/{}/POLICY/throughput in {}{}", group.subject, group.device,
                          group.report,
                          any_reorder ? "; the bytes include changes of layout (reorder) on that device, "
                                        "which a GPU need not make"
                                      : ""),
              options.width),
      table.text(options));
}

// The peaks that decide the rows of a GPU, with their sources.
std::string peaks_text(const PublishedGpu& gpu, const std::set<std::string>& types, size_t width) {
  std::map<std::string, std::vector<std::string>> by_source;
  for (const std::string& type : types)
    if (const auto figure = gpu.flops.find(type); figure != gpu.flops.end())
      by_source[figure->second.source].push_back(
          fmt::format("{} {} {}", type, tera(figure->second.value), stated(figure->second)));
  by_source[gpu.bandwidth.source].push_back(
      fmt::format("memory {:.5g} GB/s {}", gpu.bandwidth.value / 1e9, stated(gpu.bandwidth)));
  std::vector<std::string> parts;
  for (const auto& [source, figures] : by_source)
    parts.push_back(fmt::format("{}: {}", fmt::join(figures, ", "), source));
  return wrapped(gpu.name + ": ", fmt::format("{}. {}", gpu.board, fmt::join(parts, ". ")), width);
}

// What the rows of each architecture need for an error.
struct WithoutError {
  std::vector<std::string> subjects, policies;
  void add(const std::string& subject, const std::string& policy) {
    if (std::ranges::find(subjects, subject) == subjects.end()) subjects.push_back(subject);
    if (std::ranges::find(policies, policy) == policies.end()) policies.push_back(policy);
  }
};

std::string bases_text(const Predictions& predictions, size_t width) {
  std::vector<const PublishedGpu*> gpus;
  std::map<const PublishedGpu*, std::set<std::string>> types;
  std::set<std::string> errors;
  std::map<std::string, WithoutError> without;  // by architecture
  for (const PredictedSteps& group : predictions.groups)
    for (const PredictedStep& step : group.steps) {
      if (std::ranges::find(gpus, step.gpu) == gpus.end()) gpus.push_back(step.gpu);
      if (!step.operands.empty()) types[step.gpu].insert(step.operands);
      if (step.error)
        errors.insert(step.error_from);
      else
        without[step.gpu->architecture].add(group.subject, step.policy.substr(0, step.policy.find(' ')));
    }
  std::string text = "\nwhat the predictions rest on\n";
  text += wrapped("", kLegend, width);
  for (const PublishedGpu* gpu : gpus) text += peaks_text(*gpu, types[gpu], width);
  if (!errors.empty())
    text += wrapped(
        "output NMSE: ",
        fmt::format("{}: computed by a simulator of the architecture, measured on no GPU", fmt::join(errors, ", ")),
        width);
  for (const auto& [architecture, missing] : without) {
    std::vector<std::string> words;
    for (const std::string& subject : missing.subjects) words.push_back(shell_word(subject));
    std::vector<std::string> policies;
    for (const std::string& policy : missing.policies) policies.push_back(shell_word(policy));
    text += wrapped("no error: ",
                    fmt::format("compare also reads those of a simulator: halfmark run {} error --policy {} --device "
                                "sim:{} -o sim-{}.json",
                                fmt::join(words, " "), fmt::join(policies, ","), architecture, architecture),
                    width);
  }
  return text;
}

}  // namespace

std::string predictions_text(const Predictions& predictions, const TextOptions& options) {
  std::string text = "\n" + toned("predicted, not measured", Tone::strong, options.colour) + "\n";
  for (const PredictedSteps& group : predictions.groups) text += steps_text(group, options);
  if (!predictions.groups.empty()) text += bases_text(predictions, options.width);
  for (const std::string& line : predictions.measured) text += wrapped("not predicted: ", line, options.width);
  for (const auto& [reason, records] : predictions.impossible)
    text += wrapped("not predicted: ", records.empty() ? reason : fmt::format("{}: {}", reason, some_of(records)),
                    options.width, true);
  return text;
}

}  // namespace halfmark::reports
