// Builds the report: summation tree, adders, ranges, a replay
// that verifies them, and the simulated rows with equal answers.
#include "accuracy/probe/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

uint64_t hash_of(uint64_t hash, std::string_view bytes) {  // FNV-1a
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}
// All NaNs are equal here: their bits have separate findings.
bool same(DType dtype, uint64_t x, uint64_t y) {
  return x == y || (std::isnan(decode(dtype, x)) && std::isnan(decode(dtype, y)));
}

constexpr uint64_t kHashStart = 0xCBF29CE484222325u;

// A box and a row are compared only when these types agree.
bool comparable(const BlackBox& row, const BlackBox& box) {
  return row.a == box.a && row.b == box.b && row.c == box.c && row.d == box.d;
}

// A row whose result is wider than that of the box: a matmul may round it once more.
bool comparable_rounded(const BlackBox& row, const BlackBox& box) {
  return row.a == box.a && row.b == box.b && row.c == row.d && row.d.fraction_bits > box.d.fraction_bits &&
         row.d.exponent_bits >= box.d.exponent_bits && row.d.fraction_bits >= box.c.fraction_bits &&
         row.d.exponent_bits >= box.c.exponent_bits;
}

// The accumulator by its usual name.
void add_accumulator_finding(const BlackBox& box, const Model& model, std::vector<Finding>& findings) {
  const Finding* bits = nullptr;
  for (const Finding& finding : findings)
    if (finding.parameter == "bits of sums") bits = &finding;
  if (!bits || bits->value == kNotObservable) return;
  const int seen = model.block.out.fraction_bits;
  const std::string name = seen == 52   ? "fp64"
                           : seen == 23 ? "fp32"
                           : seen == 10 ? (box.d == kFp16 ? "fp16" : "10 fraction bits")
                           : seen == 7  ? "bf16"
                                        : fmt::format("{} fraction bits", seen);
  findings.push_back({"accumulator", name, bits->evidence});
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

const Finding* Report::find(std::string_view parameter) const {
  for (const Finding& finding : findings)
    if (finding.parameter == parameter) return &finding;
  return nullptr;
}

Report examine(RecordingBox& recorder, const Options& options) {
  const BlackBox box = recorder.box();
  Report report{box.device, box.types, box.way, {}, {}, 0, 0, {}, {}, {}, {}};
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
  report.hash = fmt::format("{:016x}", hash_of(hash_of(kHashStart, report.fingerprint), answers));

  // Fresh questions for the replay; their answers also distinguish the simulated rows. Long sums get fewer questions:
  // 2^22 numbers per operand are 32 MiB.
  const size_t replays = std::min(options.replays, (size_t{1} << 22) / box.k);
  const std::vector<Question> fresh = random_questions(box, replays, options.seed);
  const std::vector<uint64_t> codes = recorder.codes(fresh);
  if (found.tree) {
    report.model = model;
    report.replays = fresh.size();
    for (size_t i = 0; i < fresh.size(); ++i)
      report.replayed += same(box.d_type, replay(model, fresh[i]), codes[i]) ? 1 : 0;
  }
  if (!options.match) return report;
  std::vector<Candidate> candidates = compare_with_rows(box, recorder.answers());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.alike > y.alike; });
  for (const Candidate& candidate : candidates) {
    if (candidate.alike == candidate.asked)
      report.matches.push_back(candidate.row);
    else if (candidate.alike > 0 && report.near.size() < 2)
      report.near.push_back(fmt::format("{}: {} of {}", candidate.row, candidate.alike, candidate.asked));
  }
  return report;
}

std::optional<std::string> fingerprint_of(Device& device, std::string_view types) {
  // Two blocks of the largest instruction, and large enough that libraries choose their usual kernels.
  constexpr MatmulShape kShape{32, 32, 64};
  Options options;
  options.replays = 0, options.match = false;
  try {
    RecordingBox recorder(matmul_box(device, matmul_types_named(types), kShape));
    const Report report = examine(recorder, options);
    return fmt::format("{}: {}", report.hash, report.fingerprint);
  } catch (const Unsupported&) {
    return {};
  }
}

std::vector<Candidate> compare_with_rows(const BlackBox& box, std::span<const RecordingBox::Answer> answers) {
  std::vector<Candidate> candidates;
  for (const DeviceRow& row : known_devices()) {
    if (!row.name.starts_with("sim:") || !row.absent.empty()) continue;
    const auto device = open_device(row.name);
    for (const DotChoice& choice : dot_choices(*device)) {
      const BlackBox own = dot_box(*device, choice, box.k);
      const bool rounds = !comparable(own, box);
      if (rounds && !comparable_rounded(own, box)) continue;
      if (box.k % least_depth(choice) != 0) continue;
      // The random questions at the end distinguish most rows; the comparison stops at the first difference.
      constexpr size_t kAtOnce = 512;
      Candidate candidate{fmt::format("{} {}{}", row.name, choice.name(),
                                      rounds ? fmt::format(", then rounded to {}", box.d.name) : ""),
                          0, 0};
      for (size_t left = answers.size(); left > 0 && candidate.alike == candidate.asked;) {
        const size_t count = std::min(left, kAtOnce);
        left -= count;
        std::vector<Question> questions;
        for (size_t i = left; i < left + count; ++i) questions.push_back(answers[i].question);
        std::vector<uint64_t> codes = own.answers(questions);
        if (rounds)
          for (uint64_t& code : codes) code = encode(box.d_type, decode(own.d_type, code));
        for (size_t i = 0; i < count; ++i) candidate.alike += codes[i] == answers[left + i].code ? 1 : 0;
        candidate.asked += count;
      }
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
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
