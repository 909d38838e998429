// Builds the report of an all-reduce: in which order each part of the buffer is added, how one addition rounds, whether all
// devices and all runs get the same bits; a replay verifies it.
#include "accuracy/probe/all_reduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Of one order: the tree, and how its nodes add.
struct Examined {
  OrderReport report;
  std::vector<Finding> findings;
  std::optional<Model> model;
};

// Where all is added at once, the result does not show whether the sum was wider before it was rounded.
std::string format_of_sums(const BlackBox& box, const Model& model) {
  const int bits = model.block.out.fraction_bits;
  const std::string name = bits == box.d.fraction_bits ? std::string(box.d.name) : name_of_sums(box, bits);
  const bool is_single = model.tree.nodes.size() == model.tree.k + 1;
  return is_single && bits == box.d.fraction_bits ? name + ", or wider and rounded once" : name;
}

Model model_of(const BlackBox& box) {
  Model model;
  model.a = box.a, model.b = box.b, model.d = box.d_type;
  return model;
}

Examined examined(AllReduceRunner& runner, const EqualOrder& elements) {
  RecordingBox recorder(all_reduce_box(runner, elements));
  const BlackBox& box = recorder.box();
  Examined found;
  found.report.elements = elements.text(), found.report.count = elements.count();
  Model model = model_of(box);
  find_operands(recorder, model, found.findings);
  if (model.operand.fraction_bits < box.a.fraction_bits) recorder.narrow_operands(model.operand.fraction_bits);
  const TreeFinding tree = find_tree(recorder);
  found.report.order = tree.tree ? text_of(*tree.tree) : std::string(kNotObservable);
  found.report.evidence = tree.evidence;
  if (tree.tree) {
    model.tree = *tree.tree;
    find_adders(recorder, model, found.findings);
    for (const Finding& finding : found.findings)
      if (finding.parameter == "bits of sums" && finding.value != kNotObservable) {
        found.findings.push_back({"format of sums", format_of_sums(box, model), finding.evidence});
        break;
      }
  }
  find_term_ranges(recorder, model, found.findings);
  if (tree.tree) found.model = model;
  return found;
}

// Fresh random questions to the elements of one order, answered by the model.
void replay_order(AllReduceRunner& runner, const EqualOrder& elements, const Model& model, const Options& options,
                  OrderReport& report) {
  const BlackBox box = all_reduce_box(runner, elements);
  const std::vector<Question> questions = random_questions(box, options.replays, options.seed);
  if (questions.empty()) return;
  const std::vector<uint64_t> codes = box.answers(questions);
  report.replays = questions.size(), report.replayed = 0;
  for (size_t i = 0; i < questions.size(); ++i)
    report.replayed += same_number(box.d_type, replay(model, questions[i]), codes[i]) ? 1 : 0;
}

// The numbers of random questions in all elements: one of them everywhere, or another one in each.
std::vector<std::vector<double>> numbers_of(const AllReduceRunner& runner, const std::vector<Question>& questions) {
  const auto size = static_cast<size_t>(runner.elements());
  std::vector<std::vector<double>> numbers(runner.ranks(), std::vector<double>(size));
  for (size_t r = 0; r < numbers.size(); ++r)
    for (size_t e = 0; e < size; ++e) numbers[r][e] = questions[e % questions.size()].a[r];
  return numbers;
}

// Whether the elements of one order add alike in all else: the same questions in all of them.
Finding elements_finding(AllReduceRunner& runner, const std::vector<EqualOrder>& orders) {
  constexpr size_t kQuestions = 40;
  for (const Question& question : random_questions(all_reduce_box(runner, orders[0]), kQuestions, 5)) {
    const std::vector<uint64_t> codes = runner.codes(numbers_of(runner, {question}));
    for (const EqualOrder& order : orders)
      for (const ElementRange& range : order.ranges)
        for (int64_t e = range.first; e <= range.last; ++e)
          if (const int64_t first = order.ranges[0].first;
              codes[static_cast<size_t>(e)] != codes[static_cast<size_t>(first)])
            return {"elements", "add differently",
                    fmt::format("element {} differs from element {}, which is added in the same order", e, first)};
  }
  return {"elements", std::string(kAlike), "the same questions in all elements of one order"};
}

constexpr std::string_view kRepeats = "the same bits";

Finding runs_finding(AllReduceRunner& runner) {
  constexpr int kRuns = 20;
  const EqualOrder all{{{0, runner.elements() - 1}}};
  const auto numbers = numbers_of(runner, random_questions(all_reduce_box(runner, all), 1021, 77));
  const std::vector<uint64_t> first = runner.codes(numbers);
  int alike = 0;
  for (int run = 0; run < kRuns; ++run) alike += runner.codes(numbers) == first ? 1 : 0;
  return {"run to run", alike == kRuns ? std::string(kRepeats) : "differs",
          fmt::format("{} of {} further runs", alike, kRuns)};
}

// An average scales each number before the sum, which loses small numbers, or the sum, which overflows before. In a wider
// range neither happens.
Finding average_finding(AllReduceRunner& runner) {
  const Format& format = format_of(runner.dtype());
  const auto average_of = [&](double x) {
    const std::vector<double> all(static_cast<size_t>(runner.elements()), x);
    return decode(runner.dtype(),
                  runner.codes(std::vector<std::vector<double>>(runner.ranks(), all), ReduceOp::average)[0]);
  };
  try {
    const double largest = format.max_finite(), smallest = std::ldexp(1.0, format.min_subnormal_exponent());
    const double large = average_of(largest), small = average_of(smallest);
    const bool is_kept = std::fabs(large / largest - 1) < 0.25, is_lost = small == 0;
    const std::string how = is_kept && is_lost     ? "each number is scaled first"
                            : !is_kept && !is_lost ? "the sum is scaled"
                            : is_kept              ? "in a wider range; what is scaled is not observable"
                                                   : "in an unknown way";
    return {"average", how, fmt::format("of {} from every device {}, of {} {}", largest, large, smallest, small)};
  } catch (const Unsupported& reason) {
    return {"average", "refused", reason.what()};
  }
}

// Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md): what each GPU must send at least, 2 (n - 1) / n of the
// buffer, by the time.
std::optional<Finding> bandwidth_finding(AllReduceRunner& runner) {
  const std::optional<double> seconds = runner.seconds();
  if (!seconds) return {};
  const auto n = static_cast<double>(runner.ranks());
  const auto bytes = static_cast<double>(bytes_for(runner.dtype(), static_cast<size_t>(runner.elements())));
  return Finding{"bus bandwidth", fmt::format("{:.3g} GB/s", bytes / *seconds * 2 * (n - 1) / n * 1e-9),
                 fmt::format("{} in {:.3g} us, x 2 (n - 1) / n; whether the GPUs did other work is not known",
                             counted(static_cast<int64_t>(bytes), "byte"), *seconds * 1e6)};
}

// The ranges of all orders; a text of them can have thousands.
std::string hash_of_ranges(const std::vector<EqualOrder>& orders) {
  std::string hash;
  for (const EqualOrder& order : orders) {
    for (const ElementRange& range : order.ranges)
      hash = hash_text(hash, fmt::format("{}-{},", range.first, range.last));
    hash = hash_text(hash, ";");
  }
  return hash;
}

bool is_equal(const Finding& a, const Finding& b) { return a.parameter == b.parameter && a.value == b.value; }

}  // namespace

const Finding* AllReduceReport::find(std::string_view parameter) const {
  for (const Finding& finding : findings)
    if (finding.parameter == parameter) return &finding;
  return nullptr;
}

AllReduceReport examine_all_reduce(std::span<const std::shared_ptr<Device>> devices, AllReduceGroup& group, DType dtype,
                                   int64_t elements, const Options& options) {
  AllReduceReport report;
  std::vector<std::string> names;
  for (const std::shared_ptr<Device>& device : devices) names.push_back(device->name());
  report.devices = fmt::format("{}", fmt::join(names, ",")), report.dtype = name_of(dtype);
  report.library = group.library(), report.settings = group.settings(), report.elements = elements;
  AllReduceRunner runner(devices, group, dtype, elements);
  constexpr size_t kMostOrders = 64;
  std::vector<EqualOrder> orders = runner.orders();
  const size_t found_orders = orders.size();
  const std::string ranges = hash_of_ranges(orders);
  if (found_orders > kMostOrders) orders.resize(kMostOrders);
  const int64_t mask_runs = runner.runs();
  const Finding runs = runs_finding(runner);
  const auto add_ranks = [&] {
    report.findings.push_back(
        {"ranks", runner.difference().empty() ? "the same bits" : "get different bits",
         runner.difference().empty() ? "in " + counted(runner.runs(), "run") : runner.difference()});
  };
  if (runs.value != kRepeats) {  // what one run shows is no property
    report.findings.push_back({"orders of addition", std::string(kNotObservable), "the bits differ from run to run"});
    report.findings.push_back(runs);
    add_ranks();
    report.fingerprint = "run to run: differs", report.hash = hash_text(report.fingerprint, "");
    return report;
  }
  report.findings.push_back({"orders of addition",
                             found_orders == 1 ? "one in the whole buffer" : fmt::format("{}", found_orders),
                             fmt::format("masks and units in every element, {}{}", counted(mask_runs, "run"),
                                         found_orders == orders.size() ? "" : "; only the first 64 are examined")});

  const Examined first = examined(runner, orders[0]);
  report.orders.push_back(first.report);
  report.findings.insert(report.findings.end(), first.findings.begin(), first.findings.end());
  if (first.model) replay_order(runner, orders[0], *first.model, options, report.orders[0]);
  // In another order the nodes add in the same way, unless the replay shows that they do not.
  for (size_t i = 1; i < orders.size(); ++i) {
    RecordingBox recorder(all_reduce_box(runner, orders[i]));
    const TreeFinding tree = find_tree(recorder);
    OrderReport one{orders[i].text(),
                    tree.tree ? text_of(*tree.tree) : std::string(kNotObservable),
                    tree.evidence,
                    orders[i].count(),
                    {},
                    0,
                    0};
    if (first.model && tree.tree) {
      Model model = *first.model;
      model.tree = *tree.tree;
      replay_order(runner, orders[i], model, options, one);
    }
    if (!first.model || !tree.tree || one.replayed < one.replays) {
      const Examined own = examined(runner, orders[i]);
      if (own.model) replay_order(runner, orders[i], *own.model, options, one);
      for (const Finding& finding : own.findings)
        if (std::none_of(first.findings.begin(), first.findings.end(),
                         [&](const Finding& other) { return is_equal(finding, other); }))
          one.findings.push_back(finding);
    }
    report.orders.push_back(std::move(one));
  }
  report.findings.push_back(elements_finding(runner, orders));
  report.findings.push_back(runs);
  if (orders.size() == 1 && report.orders[0].order == kNotObservable)
    report.findings[0].value = kNotObservable, report.findings[0].evidence += ", which tell no elements apart";

  std::string answers;
  for (const EqualOrder& order : orders) {
    const BlackBox box = all_reduce_box(runner, order);
    for (const uint64_t code : box.answers(random_questions(box, 64, 0))) answers += fmt::format("{:x},", code);
  }
  add_ranks();
  const std::optional<Finding> bandwidth = bandwidth_finding(runner);
  report.findings.push_back(average_finding(runner));
  for (const OrderReport& order : report.orders) {
    report.fingerprint += fmt::format("{}{}: {}", report.fingerprint.empty() ? "" : "; ", order.elements, order.order);
    for (const Finding& finding : order.findings)
      report.fingerprint += fmt::format(", {}={}", finding.parameter, finding.value);
  }
  for (const Finding& finding : report.findings)
    report.fingerprint += fmt::format("; {}={}", finding.parameter, finding.value);
  report.fingerprint += "; ranges=" + ranges;
  report.hash = hash_text(report.fingerprint, answers);
  if (bandwidth) report.findings.push_back(*bandwidth);
  return report;
}

}  // namespace halfmark::accuracy::probe
