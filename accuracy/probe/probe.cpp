// Builds the report: summation tree, adders, ranges, a replay
// that verifies them, and the simulated rows with equal answers.
#include "accuracy/probe/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

uint64_t hash_of(uint64_t hash, std::string_view bytes) {  // FNV-1a
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

constexpr uint64_t kHashStart = 0xCBF29CE484222325u;

// The accumulator by its usual name.
void add_accumulator_finding(const BlackBox& box, const Model& model, std::vector<Finding>& findings) {
  const Finding* bits = nullptr;
  for (const Finding& finding : findings)
    if (finding.parameter == "bits of sums") bits = &finding;
  if (!bits || bits->value == kNotObservable) return;
  findings.push_back({"accumulator", name_of_sums(box, model.block.out.fraction_bits), bits->evidence});
}

void add_tree_findings(const SumTree& tree, const TreeFinding& found, std::vector<Finding>& findings) {
  findings.push_back({"summation tree", text_of(tree), found.evidence});
  const size_t products = products_per_block(tree);
  findings.push_back({"products per block", fmt::format("{}", products),
                      products > 1 ? "added in one node" : "a chain of single additions"});
  findings.push_back({"order", order_of(tree), "from the tree"});
  findings.push_back({"c", tree.with_c ? place_of_c(tree) : std::string(kNotObservable),
                      tree.with_c ? "from the tree" : "the box takes no addend"});
  const size_t slices = slices_of(tree);
  findings.push_back({"slices of K", slices > 1 ? fmt::format("{}", slices) : "1",
                      slices > 1 ? "contiguous parts, added at the end" : "no split"});
}

}  // namespace

std::string hash_text(std::string_view fingerprint, std::string_view answers) {
  return fmt::format("{:016x}", hash_of(hash_of(kHashStart, fingerprint), answers));
}

bool same_number(DType dtype, uint64_t x, uint64_t y) {
  return x == y || (std::isnan(decode(dtype, x)) && std::isnan(decode(dtype, y)));
}

std::string name_of_sums(const BlackBox& box, int fraction_bits) {
  return fraction_bits == 52                     ? "fp64"
         : fraction_bits == 23                   ? "fp32"
         : fraction_bits == 10 && box.d == kFp16 ? "fp16"
         : fraction_bits == 7                    ? "bf16"
                                                 : fmt::format("{} fraction bits", fraction_bits);
}

const Finding* Report::find(std::string_view parameter) const {
  for (const Finding& finding : findings)
    if (finding.parameter == parameter) return &finding;
  return nullptr;
}

Report examine(RecordingBox& recorder, const Options& options) {
  const BlackBox box = recorder.box();
  Report report{box.device, box.types, box.way, {}, {}, 0, 0, {}, {}, {}, {}};
  report.transpose_b = box.transpose_b;
  Model model;
  model.a = box.a, model.b = box.b, model.d = box.d_type;
  find_operands(recorder, model, report.findings);
  if (model.operand.fraction_bits < box.a.fraction_bits) recorder.narrow_operands(model.operand.fraction_bits);
  const TreeFinding found = find_tree(recorder);
  if (found.tree) {
    model.tree = *found.tree;
    add_tree_findings(model.tree, found, report.findings);
    find_adders(recorder, model, report.findings);
    add_accumulator_finding(box, model, report.findings);
  } else {
    report.findings.push_back({"summation tree", std::string(kNotObservable), found.evidence});
  }
  find_ranges(recorder, model, report.findings);
  if (box.elements == kAlike)
    report.findings.push_back({"elements", box.elements, "the same questions at every element of the result"});
  else if (!box.elements.empty())
    report.findings.push_back(
        {"elements", "add differently", fmt::format("element {} differs from element 0,0", box.elements)});
  const auto follows_from_others = [](const Finding& finding) {
    return finding.parameter == "order" || finding.parameter == "accumulator" || finding.value == kAlike;
  };
  for (const Finding& finding : report.findings)
    if (!follows_from_others(finding))
      report.fingerprint +=
          fmt::format("{}{}={}", report.fingerprint.empty() ? "" : "; ", finding.parameter, finding.value);

  // The hash includes the answers to fixed questions, which do not depend on the findings.
  std::string answers;
  for (const uint64_t code : recorder.codes(random_questions(box, 256, 0))) answers += fmt::format("{:x},", code);
  report.hash = hash_text(report.fingerprint, answers);

  // Fresh questions for the replay; their answers also distinguish the simulated rows. Long sums get fewer questions:
  // 2^22 numbers per operand are 32 MiB.
  const size_t replays = std::min(options.replays, (size_t{1} << 22) / box.k);
  const std::vector<Question> fresh = random_questions(box, replays, options.seed);
  const std::vector<uint64_t> codes = recorder.codes(fresh);
  if (found.tree) {
    report.model = model;
    report.replays = fresh.size();
    for (size_t i = 0; i < fresh.size(); ++i)
      report.replayed += same_number(box.d_type, replay(model, fresh[i]), codes[i]) ? 1 : 0;
  }
  if (!options.match) return report;
  std::vector<Candidate> candidates = compare_with_rows(box, recorder.answers(), report.model);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.alike > y.alike; });
  for (const Candidate& candidate : candidates) {
    if (candidate.agrees() && candidate.steps.empty()) {
      report.matches.push_back(candidate.row);
    } else if (candidate.agrees()) {
      auto same_steps = std::find_if(report.around.begin(), report.around.end(),
                                     [&](const RowsWithSteps& one) { return one.steps == candidate.steps; });
      if (same_steps == report.around.end())
        same_steps = report.around.insert(same_steps, {{}, candidate.steps, candidate.asked});
      same_steps->rows.push_back(candidate.row);
    } else if (candidate.alike > 0 && report.near.size() < 2) {
      report.near.push_back(fmt::format("{}{}: {} of {}", candidate.row,
                                        candidate.steps.empty() ? "" : fmt::format(" ({})", candidate.steps),
                                        candidate.alike, candidate.asked));
    }
  }
  return report;
}

std::optional<std::string> fingerprint_of(Device& device, std::string_view types) {
  // Two blocks of the largest instruction, and large enough that libraries choose their usual kernels.
  constexpr MatmulShape kShape{32, 32, 64};
  Options options;
  options.replays = 0, options.match = false;
  try {
    RecordingBox recorder(matmul_box(device, in_form_of_real_speed(device, matmul_types_named(types), kShape), kShape));
    const Report report = examine(recorder, options);
    return fmt::format("{}: {}", report.hash, report.fingerprint);
  } catch (const Unsupported&) {
    return {};
  }
}

void find_repeatability(Device& device, const MatmulTypes& types, MatmulShape shape, std::vector<Finding>& findings) {
  const BlackBox box = matmul_box(device, types, shape);
  const std::vector<Question> questions =
      random_questions(box, static_cast<size_t>(std::min<int64_t>(shape.m, 16)) * 16, 77);
  const std::vector<uint64_t> first = box.answers(questions);
  constexpr int kRuns = 20;
  int alike = 0;
  for (int run = 0; run < kRuns; ++run) alike += box.answers(questions) == first ? 1 : 0;
  findings.push_back(
      {"run to run", alike == kRuns ? "the same bits" : "differs", fmt::format("{} of {} further runs", alike, kRuns)});
  // Asks the same questions in matmuls of other sizes: with one row, and with four times the rows.
  std::string same, other;
  for (const MatmulShape size : {MatmulShape{1, shape.n, shape.k}, MatmulShape{4 * shape.m, shape.n, shape.k}}) {
    if (size.m == shape.m) continue;
    const bool alike_bits = matmul_box(device, types, size).answers(questions) == first;
    (alike_bits ? same : other) += fmt::format(" m = {}", size.m);
  }
  findings.push_back({"batch", other.empty() ? "invariant" : "changes the bits",
                      fmt::format("compared with m = {}:{}{}{}{}", shape.m, same.empty() ? "" : " equal at", same,
                                  other.empty() ? "" : " other bits at", other)});
}

}  // namespace halfmark::accuracy::probe
