#include "bench/commands/subject_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/work.h"
#include "kernels/number/error.h"
#include "models/memory_prediction.h"
#include "models/network/layer_kinds.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

// The bytes of each purpose as a cell; "-" for none.
std::string bytes_text(size_t bytes) { return bytes ? human(static_cast<double>(bytes), "B") : "-"; }

// The memory of a training step under every policy.
std::string predicted_memory_text(const Subject& subject, const TextOptions& options) {
  std::vector<std::pair<std::string_view, MemoryPrediction>> rows;
  std::string refused;
  for (const Policy& policy : policies()) {
    try {
      rows.emplace_back(policy.name, predict_memory(subject, policy, subject.settings));
    } catch (const Unsupported& reason) {
      refused += fmt::format("{}: {}\n", policy.name, reason.what());
    }
  }
  std::vector<Purpose> purposes;
  for (size_t i = 0; i < kPurposes; ++i)
    if (std::ranges::any_of(rows, [&](const auto& row) { return row.second.peak.by_purpose[i] > 0; }))
      purposes.push_back(static_cast<Purpose>(i));
  std::vector<std::string> titles = {"policy", "tensors", "vs fp32"};
  for (const Purpose purpose : purposes) titles.emplace_back(name_of(purpose));
  titles.emplace_back("kept for backward");
  Table table(titles, 1);
  for (const auto& [name, predicted] : rows) {
    const auto base = std::ranges::find(rows, "fp32", [](const auto& row) { return row.first; });
    std::vector<Cell> cells = {{std::string(name)}, {bytes_text(predicted.peak.total)}};
    cells.push_back({base == rows.end() ? "-"
                                        : fmt::format("{:.2f}x", static_cast<double>(predicted.peak.total) /
                                                                     static_cast<double>(base->second.peak.total))});
    for (const Purpose purpose : purposes)
      cells.push_back({bytes_text(predicted.peak.by_purpose[static_cast<size_t>(purpose)])});
    cells.push_back({bytes_text(predicted.saved)});
    table.add(std::move(cells));
  }
  return "Memory of a training step, predicted and not measured:\n" + table.text(options) + refused +
         wrapped("",
                 "tensors: the most that exist at one instant, split by purpose at that instant, without scratch of "
                 "kernels and padding of layouts. kept for backward: after forward and loss. The harness memory "
                 "measures them and writes both.",
                 options.width);
}

// The layers of one subject.
std::string layers_text(const Subject& subject, const TextOptions& options) {
  Table table({"layer", "kind and arguments", "output", "parameters", "forward FLOP", "keeps fp32", "keeps amp-fp16"},
              3);
  const auto kept = [&](std::string_view policy) -> std::vector<KeptByLayer> {
    try {
      return predict_memory(subject, policy_named(policy), subject.settings).layers;
    } catch (const Unsupported&) {  // the table below has the reason
      return {};
    }
  };
  const std::vector<KeptByLayer> single = kept("fp32"), half = kept("amp-fp16");
  const auto kept_text = [](const std::vector<KeptByLayer>& layers, size_t i) {
    return i < layers.size() ? bytes_text(layers[i].bytes) : "?";
  };
  size_t number = 0;
  double parameters = 0, flops = 0;
  for (const LayerFacts& facts : layer_facts(*subject.network, subject.input)) {
    const LayerSpec& layer = *facts.layer;
    std::string kind = layer.kind;
    for (const auto& [name, value] : checked(layer_kind_named(layer.kind).arguments, layer.arguments))
      kind += fmt::format(" {}={}", name, text_of(value));
    table.add({{std::string(2 * static_cast<size_t>(facts.depth), ' ') + layer.name},
               {kind},
               {facts.output.text()},
               {facts.parameters > 0 ? std::to_string(facts.parameters) : "-"},
               {facts.forward_flops > 0 ? human(facts.forward_flops, "FLOP") : "-"},
               {kept_text(single, number)},
               {kept_text(half, number)}});
    ++number;
    parameters += static_cast<double>(facts.parameters), flops += facts.forward_flops;
  }
  return toned(subject.id(), Tone::strong, options.colour) +
         fmt::format(": input {}, {:.0f} parameters, {} forward\n", subject.input.text(), parameters,
                     human(flops, "FLOP")) +
         table.text(options);
}

}  // namespace

std::string subject_text(const Subject& subject, const TextOptions& options) {
  HM_CHECK(subject.network, "subject " + subject.id() + " is a function of a program; its layers are not known");
  return layers_text(subject, options) + "\n" + predicted_memory_text(subject, options);
}

}  // namespace halfmark::bench
