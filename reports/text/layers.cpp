#include "reports/text/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/record/printable.h"
#include "reports/record/provenance.h"
#include "reports/record/shell.h"
#include "reports/text/compare.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kHarness = "range";
constexpr double kThinHeadroom = 1;           // bits: one more doubling overflows
constexpr size_t kWorst = 8;                  // rows of the short table of a subject
constexpr std::string_view kCasts = "casts";  // "casts/weights/f32-f16"

// One tensor under one policy.
struct TensorRow {
  std::string policy, tensor, phase;
  std::optional<double> nonfinite{}, underflow{}, subnormal{}, headroom{}, nmse{};
  bool cancels = false;  // a gradient whose terms cancel: rounding noise, so nothing is relative to it
  bool is_cast = false;  // the casts of a pass from one dtype to another, of one kind of tensors

  bool overflows() const {
    return (nonfinite && *nonfinite > 0) || (headroom && (std::isnan(*headroom) || *headroom < 0));
  }
  bool loses() const {
    return overflows() || (underflow && *underflow > 0) || (subnormal && *subnormal > 0) ||
           (headroom && *headroom < kThinHeadroom);
  }
  // Worst first: overflowed, underflowed to zero, lost bits as subnormal, near overflow.
  auto badness() const {
    const auto share = [](const std::optional<double>& value) { return value ? *value : 0; };
    const double left = headroom && !std::isnan(*headroom) ? -*headroom : 0;
    return std::tuple(overflows(), share(nonfinite), share(underflow), share(subnormal), left);
  }
};

// "activation/conv1" is conv1 in forward, "gradient/conv1.weight" a gradient in backward. Sums over tensors have no
// slash and no phase.
std::optional<std::pair<std::string, std::string>> tensor_and_phase(const std::string& at) {
  const size_t slash = at.find('/');
  if (slash == at.npos) return std::nullopt;
  const std::string kind = at.substr(0, slash), name = at.substr(slash + 1);
  if (kind == "activation") return std::pair(name, std::string("forward"));
  if (kind == "gradient") return std::pair("d " + name, std::string("backward"));
  if (kind == kCasts) return std::pair("casts of " + name, std::string("cast"));
  return std::pair(at, std::string());
}

using Key = std::pair<std::string, std::string>;  // subject and device

struct LayerGroup {
  Key key;
  std::vector<TensorRow> rows;
};

std::vector<TensorRow> rows_of(const Record& record, const Record* errors) {
  std::vector<TensorRow> rows;
  std::map<std::string, size_t> place;
  for (const Measurement& one : record.measurements) {
    const auto named = tensor_and_phase(one.at);
    if (!named) continue;
    const auto [found, is_new] = place.try_emplace(one.at, rows.size());
    if (is_new) {
      rows.push_back({.policy = record.policy, .tensor = named->first, .phase = named->second});
      if (const Measurement* nmse = errors ? find(*errors, "error.nmse", one.at) : nullptr)
        rows.back().nmse = nmse->value;
      rows.back().cancels = errors && find(*errors, "error.cancelled", one.at);
      rows.back().is_cast = named->second == "cast";
    }
    TensorRow& row = rows[found->second];
    if (one.metric == "range.nonfinite" || one.metric == "range.cast_overflow") row.nonfinite = one.value;
    if (one.metric == "range.underflow" || one.metric == "range.cast_underflow") row.underflow = one.value;
    if (one.metric == "range.subnormal" || one.metric == "range.cast_subnormal") row.subnormal = one.value;
    if (one.metric == "range.headroom") row.headroom = one.value;
    if (one.metric == "range.cancelled") row.cancels = true;
  }
  return rows;
}

// The tensors of each subject on each device, worst first.
std::vector<LayerGroup> layer_groups_of(const Report& report) {
  std::map<std::tuple<std::string, std::string, std::string>, const Record*> errors;
  for (const Record& record : report.records)
    if (record.harness == "error" && record.axes.empty())
      errors[{record.subject, record.device, record.policy}] = &record;
  std::vector<LayerGroup> groups;
  for (const Record& record : report.records) {
    if (record.harness != kHarness || record.measurements.empty()) continue;
    const Key key(record.subject, record.device);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& one) { return one.key == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    const auto error = errors.find({record.subject, record.device, record.policy});
    for (TensorRow& row : rows_of(record, error == errors.end() ? nullptr : error->second))
      group->rows.push_back(std::move(row));
  }
  for (LayerGroup& group : groups)
    std::stable_sort(group.rows.begin(), group.rows.end(),
                     [](const TensorRow& a, const TensorRow& b) { return a.badness() > b.badness(); });
  return groups;
}

Cell share_cell(const std::optional<double>& share) {
  if (!share) return {"-", Tone::dim};
  return {human_share(*share), *share > 0 ? Tone::bad : Tone::plain};
}

Cell headroom_cell(const std::optional<double>& bits) {
  if (!bits) return {"-", Tone::dim};
  return {human(*bits, "bit"), *bits < kThinHeadroom ? Tone::bad : Tone::plain};
}

Cell error_cell(const TensorRow& row) {
  if (row.nmse) return {human(*row.nmse, "1")};
  return {row.cancels ? "cancels" : "-", Tone::dim};
}

std::string group_text(const LayerGroup& group, const TextOptions& options) {
  std::string text = toned(printable(group.key.first + " on " + group.key.second), Tone::strong, options.colour) + "\n";
  Table table({"policy", "tensor", "phase", "not finite", "underflow", "subnormal", "headroom", "NMSE"}, 3);
  std::map<std::string, size_t> unharmed, all;  // tensors
  std::vector<std::string> policies;
  for (const TensorRow& row : group.rows) {
    if (std::ranges::find(policies, row.policy) == policies.end()) policies.push_back(row.policy);
    if (!row.is_cast) ++all[row.policy];
    if (!row.loses() && !options.all) {
      if (!row.is_cast) ++unharmed[row.policy];
      continue;
    }
    table.add({{row.policy},
               {row.tensor},
               {row.phase},
               share_cell(row.nonfinite),
               share_cell(row.underflow),
               share_cell(row.subnormal),
               headroom_cell(row.headroom),
               error_cell(row)});
  }
  if (!table.empty()) text += table.text(options);
  for (const std::string& policy : policies)
    if (const size_t count = unharmed[policy]; count > 0)
      text += wrapped("", fmt::format("{}: {} of {} tensors lose nothing", policy, count, all[policy]), options.width);
  return text;
}

// A model has more than one layer, each with an output. The output of a single layer is in the main table.
bool is_model(const LayerGroup& group) {
  std::set<std::string> outputs;
  for (const TensorRow& row : group.rows)
    if (row.phase == "forward") outputs.insert(row.tensor);
  return outputs.size() > 1;
}

// Rows that read alike under several policies are one row.
std::string worst_text(const LayerGroup& group, const std::string& file, const TextOptions& options) {
  std::vector<std::vector<Cell>> rows;
  size_t tensors = 0, shown_tensors = 0;
  for (const TensorRow& row : group.rows) {
    if (!row.loses()) continue;
    ++tensors;
    std::vector<Cell> cells = {{row.policy},
                               {row.tensor},
                               share_cell(row.underflow),
                               share_cell(row.subnormal),
                               share_cell(row.nonfinite),
                               headroom_cell(row.headroom)};
    const auto alike = std::find_if(rows.begin(), rows.end(), [&](const std::vector<Cell>& other) {
      return std::equal(cells.begin() + 1, cells.end(), other.begin() + 1,
                        [](const Cell& a, const Cell& b) { return a.text == b.text; });
    });
    if (alike != rows.end()) {
      (*alike)[0].text += ", " + row.policy;
      ++shown_tensors;
    } else if (rows.size() < kWorst || options.all) {
      rows.push_back(std::move(cells));
      ++shown_tensors;
    }
  }
  if (rows.empty()) return {};
  Table table({"policy", "tensor", "underflow", "subnormal", "not finite", "headroom"}, 2);
  for (std::vector<Cell>& cells : rows) table.add(std::move(cells));
  std::string text = "where values are lost, worst first\n" + table.text(options);
  if (shown_tensors < tensors)
    text += wrapped("  ",
                    fmt::format("and {} more: halfmark show {} --layers {}", tensors - shown_tensors, shell_word(file),
                                shell_word(group.key.first)),
                    options.width);
  return text;
}

}  // namespace

std::map<std::pair<std::string, std::string>, std::string> worst_layers(const NamedReport& named,
                                                                        const TextOptions& options) {
  std::map<std::pair<std::string, std::string>, std::string> texts;
  for (const LayerGroup& group : layer_groups_of(named.report))
    if (is_model(group))
      if (std::string text = worst_text(group, named.name, options); !text.empty()) texts[group.key] = std::move(text);
  return texts;
}

std::string layer_columns_text() {
  return "Columns of --layers, worst first; tensors that lose nothing are only counted.\n"
         "The worst of them are below the table of each model:\n"
         "  tensor        output of a layer (forward); gradient of that output, d conv1,\n"
         "                or of a parameter, d conv1.weight (backward, with loss scale)\n"
         "                casts of weights/f32-f16: all casts of a step from f32 to f16\n"
         "                whose operands are weights; the shares are those of the numbers\n"
         "                that got infinite, 0 or subnormal by the cast\n"
         "  not finite    share of its elements that are infinite or NaN as stored\n"
         "  underflow     share of the fp64 reference's elements below half the least\n"
         "                subnormal of the format of the tensor, which become 0\n"
         "  subnormal     share that the format holds with fewer bits than usual\n"
         "  headroom      doublings (bits) left before the largest element overflows\n"
         "  NMSE          squared error / squared fp64 reference, where it was measured;\n"
         "                cancels: terms of this gradient cancel, what is left is rounding\n"
         "                noise: it has no error, underflow or subnormal\n";
}

std::string show_layers(const NamedReport& named, const TextOptions& options) {
  std::vector<LayerGroup> groups = layer_groups_of(named.report);
  if (groups.empty())
    throw ReportError(
        fmt::format("{}: no record of the harness range is selected; measure one: "
                    "halfmark run SUBJECT POLICY range error -o range.json",
                    named.name));
  std::string text = toned(printable(named.name), Tone::strong, options.colour) + "\n";
  if (const std::string partial = partial_text(named.report); !partial.empty())
    text += toned(wrapped("partial   ", partial, options.width), Tone::bad, options.colour);
  for (const std::string& line : substitutes(named.report))
    text += toned(wrapped("device    ", printable(line), options.width), Tone::bad, options.colour);
  for (const LayerGroup& group : groups) (text += '\n') += group_text(group, options);
  return text + "\n" +
         wrapped("", "show --help explains the columns; words select records: show FILE --layers convnet fp16",
                 options.width);
}

}  // namespace halfmark::reports
