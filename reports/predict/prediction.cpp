#include "reports/predict/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "reports/record/glob.h"
#include "reports/record/subject_facts.h"
#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kProducts[] = {
    "matmul",           "batched_matmul",           "scaled_matmul",        "conv2d",
    "attention",        "attention_backward",       "conv2d_backward_data", "conv2d_backward_weights",
    "packed_attention", "packed_attention_backward"};

// The types of the operands of the record's matrix products, of training only: "f16", "fp8". A dtype says how a number is
// stored. That f32 operands are multiplied in tf32, or that sums are in fp16, is only in the name of the policy.
std::set<std::string> operand_types(const Record& record) {
  const auto type_of = [&](const std::string& dtype) -> std::string {
    if (dtype == "e4m3" || dtype == "e5m2") return "fp8";
    if (dtype == "e2m1") return "fp4";
    if (dtype == "f32" && record.policy.find("tf32") != std::string::npos) return "tf32";
    if (dtype == "f16" && record.policy.find("sum16") != std::string::npos) return "f16-sum16";
    return dtype;
  };
  std::set<std::string> types;
  for (const KernelUse& use : record.kernels) {
    if (!is_matrix_product(use.operation) || use.phase == "evaluation") continue;
    const std::string operands = use.dtypes.substr(0, use.dtypes.find("->"));
    const size_t first = operands.find(',');
    types.insert(type_of(operands.substr(0, first)));
    // Packed attention has q, k and v in one operand, behind which its mask comes.
    if (first != operands.npos && !use.operation.starts_with("packed_"))
      types.insert(type_of(operands.substr(first + 1, operands.find(',', first + 1) - first - 1)));
  }
  return types;
}

std::string in_capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// A positive number of the record; else 0.
double positive_number(const Record& record, std::string_view metric, std::string_view at) {
  const Measurement* one = find(record, metric, at);
  return one && std::isfinite(one->value) && one->value > 0 ? one->value : 0;
}

// Why a record has no prediction on any GPU; empty if it can have one.
std::string obstacle_of(const Record& record, const std::set<std::string>& types) {
  if (record.status != Status::ok && record.status != Status::suspect)
    return fmt::format("{}: {}", name_of(record.status), record.reason);
  if (!record.numerics.empty()) return "measured on no real device";
  if (positive_number(record, "roofline.bytes", "hot") == 0)
    return "has no roofline.bytes: measured by an older halfmark";
  if (positive_number(record, "work.flops", "train") > 0 && types.empty())
    return "has work.flops, but names no kernel of a matrix product or convolution";
  return {};
}

// Why this GPU has no prediction for products of these operands; empty if it has one.
std::string obstacle_of(const PublishedGpu& gpu, const std::set<std::string>& types) {
  for (const std::string& type : types) {
    if (gpu.without.contains(type))
      return fmt::format("{} has no {} matrix instruction", in_capitals(gpu.name), in_capitals(type));
    if (!gpu.flops.contains(type)) return fmt::format("peaks.json has no {} peak of {}", type, gpu.name);
  }
  return {};
}

// The report and device that this GPU was measured on, "cuda:0 in base.json"; empty if none.
std::string measured_on(const std::vector<NamedReport>& reports, const PublishedGpu& gpu) {
  for (const NamedReport& named : reports) {
    const auto devices = named.report.environment.find("devices");
    if (devices == named.report.environment.end() || !devices->is_object()) continue;
    for (const auto& [key, facts] : devices->items()) {
      const std::string& device = key;  // clang cannot capture a structured binding
      if (!facts.is_object() || !facts.contains("name") || !facts["name"].is_string()) continue;
      const std::string name = facts["name"].get<std::string>();
      if (std::ranges::none_of(gpu.devices, [&](const std::string& one) { return glob_matches(one, name); })) continue;
      // Not a software GPU under the name of a real one.
      if (std::ranges::any_of(named.report.records, [&](const Record& record) {
            return record.device == device && record.numerics.empty() && record.status != Status::skipped;
          }))
        return fmt::format("{} in {}", device, named.name);
    }
  }
  return {};
}

class Predictor {
 public:
  Predictor(const std::vector<NamedReport>& reports, const std::vector<const PublishedGpu*>& gpus) : reports_(reports) {
    for (const PublishedGpu* gpu : gpus) {
      const std::string place = measured_on(reports, *gpu);
      if (place.empty())
        gpus_.push_back(gpu);
      else
        found_.measured.push_back(fmt::format("{}: measured on {}", gpu->name, place));
    }
  }

  Predictions all() {
    for (const NamedReport& named : reports_) {
      bool any = false;
      for (const Record& record : named.report.records) {
        if (record.harness != "throughput") continue;
        any = true;
        add(named, record);
      }
      if (!any && !named.report.records.empty() && !is_simulation(named.report))
        add_obstacle(fmt::format("{} has no record of the harness throughput", named.name), "");
    }
    for (PredictedSteps& group : found_.groups) {
      std::ranges::stable_sort(group.steps, {}, [&](const PredictedStep& step) { return place_of(step.gpu); });
      add_gains(group);
    }
    return std::move(found_);
  }

 private:
  // Its records give the errors of predictions; no speed is expected of them.
  static bool is_simulation(const Report& report) {
    return std::ranges::all_of(report.records, [](const Record& one) { return one.device.starts_with("sim:"); });
  }

  size_t place_of(const PublishedGpu* gpu) const {
    return static_cast<size_t>(std::ranges::find(gpus_, gpu) - gpus_.begin());
  }

  void add_obstacle(const std::string& reason, const std::string& id) {
    auto place = std::ranges::find(found_.impossible, reason, &std::pair<std::string, std::vector<std::string>>::first);
    if (place == found_.impossible.end()) place = found_.impossible.insert(place, {reason, std::vector<std::string>()});
    if (!id.empty()) place->second.push_back(id);
  }

  void add(const NamedReport& named, const Record& record) {
    const std::set<std::string> types = operand_types(record);
    if (const std::string why = obstacle_of(record, types); !why.empty()) return add_obstacle(why, record.id);
    for (const PublishedGpu* gpu : gpus_) {
      if (const std::string why = obstacle_of(*gpu, types); !why.empty()) {
        add_obstacle(why, record.id);
        continue;
      }
      if (const double tensors = tensors_of(named.report, record); tensors > gpu->memory.value) {
        add_obstacle(fmt::format("{} has {:.4g} GB of memory, the tensors of a step need {:.4g} GB", gpu->name,
                                 gpu->memory.value / 1e9, tensors / 1e9),
                     record.id);
        continue;
      }
      group_of(named, record).steps.push_back(step_on(*gpu, record, types));
    }
  }

  PredictedSteps& group_of(const NamedReport& named, const Record& record) {
    for (PredictedSteps& group : found_.groups)
      if (group.report == named.name && group.device == record.device && group.subject == record.subject) return group;
    return found_.groups.emplace_back(PredictedSteps{named.name, record.device, record.subject, {}});
  }

  static double tensors_of(const Report& report, const Record& step) {
    for (const Record& record : report.records)
      if (record.harness == "memory" && record.subject == step.subject && record.device == step.device &&
          record.policy == step.policy)
        return positive_number(record, "memory.tensors", "train");
    return 0;
  }

  PredictedStep step_on(const PublishedGpu& gpu, const Record& record, const std::set<std::string>& types) const {
    PredictedStep step;
    step.gpu = &gpu;
    step.policy = record.policy;
    for (const auto& [axis, setting] : record.axes) step.policy += fmt::format(" {}={}", axis, setting);
    step.has_reorders = std::ranges::any_of(
        record.kernels, [](const KernelUse& use) { return use.operation == "reorder" && use.phase != "evaluation"; });
    step.flops = positive_number(record, "work.flops", "train");
    step.bytes = positive_number(record, "roofline.bytes", "hot");
    // How the work divides among several types is not recorded: the fastest gives the least time.
    double peak = 0;
    for (const std::string& type : types)
      if (const double flops = gpu.flops.at(type).value; flops > peak) peak = flops, step.operands = type;
    const double by_flops = step.flops > 0 ? step.flops / peak : 0, by_bytes = step.bytes / gpu.bandwidth.value;
    step.by_bandwidth = by_bytes >= by_flops;
    step.seconds = std::max(by_flops, by_bytes);
    add_error(step, record);
    return step;
  }

  // The worst error of the output that the simulator of the architecture has for this subject and policy.
  void add_error(PredictedStep& step, const Record& record) const {
    const std::string device = "sim:" + step.gpu->architecture;
    const SubjectFacts facts = subject_facts(record);
    for (const NamedReport& named : reports_)
      for (const Record& one : named.report.records) {
        if (one.device != device || one.harness != "error" || one.subject != record.subject ||
            one.policy != record.policy || one.status != Status::ok ||
            !difference_of(facts, subject_facts(one)).empty())
          continue;
        const Measurement* error = find(one, "error.nmse", "output");
        if (!error || (step.error && (std::isnan(*step.error) || *step.error >= error->value))) continue;
        step.error = error->value;
        step.error_from = fmt::format("{} of {}", device, named.name);
      }
  }

  // Over the prediction of fp32 on the same GPU, with the same settings, from the same report and device.
  static void add_gains(PredictedSteps& group) {
    for (PredictedStep& step : group.steps) {
      const size_t settings = std::min(step.policy.find(' '), step.policy.size());
      const std::string baseline = std::string(kBaseline) + step.policy.substr(settings);
      for (const PredictedStep& other : group.steps)
        if (other.gpu == step.gpu && other.policy == baseline && &other != &step)
          step.gain = other.seconds / step.seconds;
    }
  }

  const std::vector<NamedReport>& reports_;
  std::vector<const PublishedGpu*> gpus_;
  Predictions found_;
};

}  // namespace

bool is_matrix_product(std::string_view operation) {
  return std::ranges::find(kProducts, operation) != std::end(kProducts);
}

Predictions predict(const std::vector<NamedReport>& reports, const std::vector<const PublishedGpu*>& gpus) {
  return Predictor(reports, gpus).all();
}

}  // namespace halfmark::reports
