#include "accuracy/lint_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "accuracy/lint_copies.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

// A wrong scale is off by a factor of 2 or more where loss scales are powers of two, as the frameworks' are.
constexpr double kScaleLimit = 1.4142135623730951;

// The limit is a factor: whether a ratio is nearer to 1 than to the least wrong scale.
bool is_near(double ratio, double factor, double limit) {
  return factor > 0 && ratio > 0 && ratio / factor <= limit && factor / ratio <= limit;
}

// The gradients of the first step that are not right, and which mistake they show. One cause gives one finding.
enum class GradientFault : uint8_t { none, not_unscaled, clipped_while_scaled, unscaled_twice, uneven, other_scale };

struct FaultyStep {
  GradientFault fault = GradientFault::none;
  const StepFacts* step = nullptr;
  double ratio = 1, least = 1, most = 1;
};

FaultyStep fault_of(const StepFacts& step, double limit) {
  const GradientFacts& g = *step.gradients;
  FaultyStep found{.step = &step};
  const auto [least, most] = std::minmax_element(g.weights.begin(), g.weights.end());
  found.least = *least, found.most = *most;
  for (const double weight : g.weights) found.ratio += weight;
  found.ratio = (found.ratio - 1) / static_cast<double>(g.weights.size());
  const bool is_scaled = !is_near(g.scale, 1, limit);
  if (!std::isnan(g.clipping_ratio) && !is_near(g.clipping_ratio, 1, limit)) {
    found.ratio = g.clipping_ratio;
    if (is_scaled && is_near(g.clipping_ratio, g.scale, limit))
      found.fault = is_near(g.at_optimizer * g.scale, g.left_by_clipping, limit) ? GradientFault::clipped_while_scaled
                                                                                 : GradientFault::not_unscaled;
    else if (is_scaled && is_near(g.clipping_ratio * g.scale, 1, limit))
      found.fault = GradientFault::unscaled_twice;
    if (found.fault != GradientFault::none) return found;
  }
  if (g.weights.size() > 1 && !(found.least > 0 && found.most / found.least <= limit * limit)) {
    found.fault = GradientFault::uneven;
    return found;
  }
  if (is_near(found.ratio, 1, limit)) return found;
  if (is_scaled && is_near(found.ratio, g.scale, limit))
    found.fault = GradientFault::not_unscaled;
  else if (is_scaled && is_near(found.ratio * g.scale, 1, limit))
    found.fault = GradientFault::unscaled_twice;
  // Gradients in another direction are of another function, or lost to underflow: their length tells nothing of a scale.
  else if (g.unexplained < 0.5)
    found.fault = GradientFault::other_scale;
  return found;
}

constexpr double kStaleLimit = 0.7071067811865476;
double towards_earlier(const OutputDirections& output) { return std::max(output.step_before, output.start); }

std::optional<FaultyStep> first_fault(const Observation& o, double limit) {
  std::optional<FaultyStep> first, last;
  for (const StepFacts& step : o.steps) {
    // A training whose statistics stand still computes another function than its twin.
    if (!step.gradients || step.statistics_moved != step.twin_statistics_moved) continue;
    last = fault_of(step, limit);
    if (!first) first = last;
    // Gradients of stale weights are right in the first step, and later those of another function.
    if (first->fault == GradientFault::none && o.output && towards_earlier(*o.output) > kStaleLimit) return first;
    if (last->fault != GradientFault::none) return last;
  }
  return last;
}

template <GradientFault fault>
std::optional<Judged> gradients(const Observation& o, double limit) {
  const std::optional<FaultyStep> found = first_fault(o, limit);
  if (!found) return {};
  if (fault == GradientFault::uneven && found->step->gradients->weights.size() < 2) return {};
  const double ratio = fault == GradientFault::uneven ? found->least / found->most : found->ratio;
  return Judged{
      found->fault == fault,
      {{fault == GradientFault::uneven ? "least weight of a micro-batch / largest" : "gradients / those of fp64",
        ratio},
       {"loss scale", found->step->scale},
       {"step", static_cast<double>(found->step->number)}}};
}

std::optional<Judged> stale_cast(const Observation& o, double limit) {
  if (!o.output) return {};
  // A training with wrong gradients may diverge, and then its outputs are wrong too.
  if (const auto found = first_fault(o, kScaleLimit); found && found->fault != GradientFault::none) return {};
  const double cosine = towards_earlier(*o.output);
  return Judged{cosine > limit,
                {{"cosine between the error of the output and the way back to earlier parameters", cosine},
                 {"error of the output", o.output->error}}};
}

std::optional<Judged> above(double value, double limit, const char* name) {
  if (std::isnan(value)) return {};
  return Judged{value > limit, {{name, value}}};
}

std::optional<Judged> half_update(const Observation& o, double limit) {
  return above(o.half_content, limit, "share of fp32 parameters that are half numbers");
}
std::optional<Judged> half_loss_sum(const Observation& o, double limit) {
  return above(o.loss_error, limit, "error of the loss in unit roundoffs of its type");
}
std::optional<Judged> adam_epsilon(const Observation& o, double limit) {
  return above(o.runaway_updates, limit, "share of updates that divide by a mean of squares of 0");
}

std::optional<Judged> masked_row(const Observation& o, double limit) {
  if (o.steps.empty() && !o.first_nonfinite) return {};
  if (!o.first_nonfinite) return Judged{false, {{"share of NaN", 0}}};
  const NonFiniteTensor& t = *o.first_nonfinite;
  return Judged{t.nan > limit && t.infinite == 0 && t.whole_rows && t.twin_is_finite,
                {{"share of NaN in " + t.name, t.nan}, {"share of infinities", t.infinite}}};
}

std::optional<Judged> half_statistics(const Observation& o, double limit) {
  auto judged = above(o.narrow_statistics, limit, "running statistics narrower than the parameters of their layer");
  if (judged) judged->evidence.push_back({"largest relative difference of a variance to fp64", o.statistics_drift});
  return judged;
}

bool has_statistics(const Observation& o) {
  return std::any_of(o.steps.begin(), o.steps.end(), [](const StepFacts& step) { return step.twin_statistics_moved; });
}

std::optional<Judged> frozen_statistics(const Observation& o, double limit) {
  if (!has_statistics(o)) return {};
  double streak = 0, longest = 0;
  for (const StepFacts& step : o.steps) {
    if (step.skipped || !step.twin_statistics_moved) continue;
    streak = step.statistics_moved ? 0 : streak + 1;
    longest = std::max(longest, streak);
  }
  return Judged{longest > limit, {{"steps in a row that left all running statistics as they were", longest}}};
}

std::optional<Judged> poisoned_statistics(const Observation& o, double limit) {
  if (!has_statistics(o)) return {};
  const StepFacts* worst = nullptr;
  for (const StepFacts& step : o.steps)
    if (step.skipped && (!worst || step.nonfinite_statistics > worst->nonfinite_statistics)) worst = &step;
  if (!worst) return {};
  return Judged{worst->nonfinite_statistics > limit,
                {{"share of running statistics that are not finite after a skipped step", worst->nonfinite_statistics},
                 {"step", static_cast<double>(worst->number)}}};
}

template <CopyFault fault>
std::optional<Judged> copies(const Observation& o, double limit) {
  std::optional<Judged> worst;
  for (const QuantizedCopy& copy : o.copies) {
    std::optional<std::vector<NamedNumber>> found = evidence_of(fault, copy);
    if (!found) continue;
    const double value = found->front().value;
    if (!worst || value > worst->evidence.front().value) worst = Judged{value > limit, std::move(*found)};
  }
  return worst;
}

std::optional<Judged> half_parameters(const Observation& o, double limit) {
  if (!o.scaler_checks) return {};
  return above(static_cast<double>(o.half_gradients), limit, "gradients in fp16 under a scaler that expects fp32");
}

constexpr size_t kFewestSteps = 4;  // a scale that starts too high by less than 2^4 skips fewer

std::optional<Judged> skip_streak(const Observation& o, double limit) {
  if (!o.scaler_checks || o.steps.empty()) return {};
  double streak = 0, longest = 0;
  for (const StepFacts& step : o.steps) streak = step.skipped ? streak + 1 : 0, longest = std::max(longest, streak);
  const bool are_all = longest == static_cast<double>(o.steps.size()) && o.steps.size() >= kFewestSteps;
  return Judged{longest >= limit || are_all,
                {{"skipped steps in a row", longest}, {"last loss scale", o.steps.back().scale}}};
}

std::optional<Judged> small_scale(const Observation& o, double limit) {
  if (o.steps.empty()) return {};
  double least = HUGE_VAL;
  for (const StepFacts& step : o.steps) least = std::min(least, step.scale);
  return Judged{least < limit, {{"least loss scale", least}}};
}

std::optional<Judged> unskipped_overflow(const Observation& o, double limit) {
  // Parameters are ruined for another reason.
  if (o.runaway_updates > 0) return {};
  if (const auto found = first_fault(o, kScaleLimit); found && found->fault == GradientFault::not_unscaled) return {};
  const StepFacts* worst = nullptr;
  for (const StepFacts& step : o.steps)
    if (step.scale > 1 && (!worst || step.nonfinite_gradients > worst->nonfinite_gradients)) worst = &step;
  if (!worst) return {};
  return Judged{worst->nonfinite_gradients > limit,
                {{"share of gradients that are not finite in a step that was not skipped", worst->nonfinite_gradients},
                 {"step", static_cast<double>(worst->number)},
                 {"loss scale", worst->scale}}};
}

constexpr std::string_view kScaleWhy =
    "a wrong power of two is off by a factor of 2 or more, rounding in 8 bits by less than 1 + 2^-7: the limit is the "
    "geometric mean of 1 and 2";

constexpr LintRule kLintRules[] = {
    {"not_unscaled", "gradients of the optimizer, loss scale, gradients of the twin",
     "the ratio to the twin is within the limit of the loss scale", kScaleLimit, kScaleWhy,
     "Divide the gradients by the loss scale before the step: scaler.step(optimizer) and scaler.update() in place of "
     "optimizer.step(). Adam hides this mistake until epsilon, clipping or weight decay matter.",
     "torch.amp.GradScaler; seed article S0-10", gradients<GradientFault::not_unscaled>},
    {"clipped_while_scaled", "norm that clipping saw and left, gradients of the optimizer, gradients of the twin",
     "the norm that clipping saw is the twin's times the loss scale, and the gradients were divided after it",
     kScaleLimit, kScaleWhy,
     "Call scaler.unscale_(optimizer) before clip_grad_norm_: the limit is meant for unscaled gradients.",
     "Lightning-AI/pytorch-lightning#9599", gradients<GradientFault::clipped_while_scaled>},
    {"unscaled_twice", "gradients of the optimizer, loss scale, gradients of the twin",
     "the ratio to the twin is within the limit of 1 / loss scale", kScaleLimit, kScaleWhy,
     "Unscale once for each step: after scaler.unscale_(optimizer), scaler.step(optimizer) does not do it again, other "
     "code may.",
     "THUDM/slime#1842", gradients<GradientFault::unscaled_twice>},
    {"uneven_micro_batches", "gradients of the optimizer as a sum of the twin's gradients of each micro-batch",
     "the least weight is not positive, or the largest weight / the least is above the limit squared", kScaleLimit,
     kScaleWhy,
     "Keep one loss scale for all micro-batches of a step; unscale once, after the last one; update the scaler once.",
     "PyTorch, Automatic Mixed Precision examples: gradient accumulation", gradients<GradientFault::uneven>},
    {"other_scale", "gradients of the optimizer, gradients of the twin",
     "the ratio to the twin is beyond the limit, and is neither the loss scale nor its inverse", kScaleLimit, kScaleWhy,
     "Divide by the scale that multiplied the loss of this step: update the scaler after the step, not before "
     "unscaling.",
     "deepspeedai/DeepSpeed#8588", gradients<GradientFault::other_scale>},
    {"stale_cast",
     "outputs of the steps, outputs of the twin with the parameters of now, of the step before and of the start",
     "median cosine between the error of the output and the difference to the output with earlier parameters: above "
     "the limit",
     kStaleLimit,
     "rounding does not point to where the parameters were: with 12 outputs its cosine is above the limit in 1 of 200 "
     "steps; "
     "above (1/2)^(1/2), earlier parameters explain more than half of the squared error",
     "Cast the weights again after each update: leave the autocast context at the end of each step, or clear its "
     "cache.",
     "pytorch/pytorch#48049, #112583; aten/src/ATen/autocast_mode.cpp", stale_cast},
    {"half_update", "parameters that are stored in fp32", "the share that are fp16 or bf16 numbers is above the limit",
     0.5,
     "of fp32 numbers in range, 2^-13 are fp16 and 2^-16 bf16 numbers; after an update in half all are: the limit is "
     "between",
     "Call optimizer.step() outside autocast, on fp32 parameters or fp32 master copies.", "pytorch/pytorch#120376",
     half_update},
    {"half_loss_sum", "cross-entropy as reported, mean in fp64 of the losses of the stored output",
     "the difference is above the limit, in unit roundoffs of the loss's dtype", 128,
     "a sum in fp32 or wider errs by a few units; in fp16 by up to 2^12 of fp32's, and by less than 2^7 in one step of "
     "32 "
     "only by chance",
     "Sum losses in fp32: losses.float().sum(). In fp16 a sum beyond 65504 is infinite.",
     "huggingface/transformers#10815", half_loss_sum},
    {"masked_row", "first tensor of a forward pass on finite input that is not finite, the same tensor of the twin",
     "it holds NaN in whole rows, no infinity, and the twin's is finite; share of NaN above the limit", 0,
     "a softmax over -infinity alone is NaN in all of its row; an overflow gives infinities first",
     "Mask with booleans or with a number that the format holds, and give rows without any position a result of their "
     "own: "
     "-1e9 is -infinity in fp16.",
     "huggingface/transformers#17306", masked_row},
    {"adam_epsilon", "state of Adam, gradients, parameters before and after, update of the twin",
     "above the limit: share of elements whose mean of squares is 0, whose gradient is not, and whose update is more "
     "than "
     "10^(1/2) times the twin's largest",
     0,
     "an update of Adam is at most rate (1 - beta1) / (1 - beta2)^(1/2) = 10^(1/2) rate (Kingma and Ba 2015, 2.1), so "
     "a larger "
     "one divides by what was lost; one such parameter spoils the next forward pass",
     "Keep Adam's state in fp32 (fp32 parameters or master copies), or take an epsilon that fp16 holds and that is "
     "large "
     "beside lost squares, such as 1e-2.",
     "pytorch/pytorch#147437, google-deepmind/optax#1754", adam_epsilon},
    {"half_statistics", "dtypes of running statistics and of the parameters of the same layer",
     "statistics that are narrower: more than the limit", 0, "a count",
     "Keep running mean and variance in fp32: in half they stall once momentum x difference is below half an ulp, and "
     "a "
     "variance above 65504 is infinite.",
     "NVIDIA/apex#144", half_statistics},
    {"frozen_statistics", "running statistics before and after each step, those of the twin",
     "steps in a row after which no statistic has changed, though the twin's have: more than the limit", 1,
     "one step may leave all statistics of a narrow type as they were; two of another batch each do not",
     "Call model.train() after each evaluation.", "pytorch/pytorch#5406; seed article S0-11", frozen_statistics},
    {"poisoned_statistics", "running statistics after skipped steps", "share that is not finite: above the limit", 0,
     "running statistics of finite batches are finite",
     "Restore running statistics when a step is skipped, or check a batch before its forward pass: the scaler skips "
     "the "
     "optimizer only.",
     "pytorch/pytorch#90342, #115500", poisoned_statistics},
    {"stochastic_zeros", "codes that were rounded at random, the numbers they stand for",
     "share of zeros among those of at least the smallest number of the format: above the limit", 0,
     "rounding at random takes one of the two neighbours, and neither is 0",
     "Check the instruction or the kernel of stochastic rounding on known numbers: some returned 0 for all.",
     "NVIDIA/TransformerEngine#3281", copies<CopyFault::stochastic_zeros>},
    {"stale_amax", "scale of a quantised tensor whose recipe is current scaling, the largest magnitude of the tensor",
     "relative difference of scale x magnitude to the largest number of the format: above the limit", 0x1p-21,
     "the quotient is rounded once or twice to fp32: 2^-23",
     "Take the scale from the largest magnitude of the tensor that is quantised now. A scale from earlier steps is "
     "delayed "
     "scaling, which needs a history of magnitudes and a margin.",
     "NVIDIA/TransformerEngine, Float8CurrentScaling", copies<CopyFault::stale_amax>},
    {"columnwise_from_rowwise", "scales and codes of a columnwise copy, the numbers they stand for",
     "share of tiles whose scale is not that of their own largest magnitude, or of numbers beyond half a step: above "
     "the limit",
     0, "exact: a scale is a power of two, and a code rounds to nearest",
     "Quantise the columnwise copy from the high-precision tensor: its tiles have other scales.",
     "OCP MX 1.0; NVIDIA/TransformerEngine, MXFP8BlockScaling", copies<CopyFault::foreign_tiles>},
    {"half_parameters", "dtype of the gradients that a dynamic scaler gets", "gradients in fp16: more than the limit",
     0, "a count",
     "Keep parameters in fp32 under autocast with a scaler, or use fp32 master copies: do not call model.half() as "
     "well.",
     "Lightning-AI/pytorch-lightning#5140: Attempting to unscale FP16 gradients", half_parameters},
    {"skip_streak", "steps that the scaler skipped", "in a row: at least the limit, or all of four or more", 10,
     "a scale that starts 2^9 too high takes 9 skips; a new scale that is too high by one doubling takes one",
     "Let the scale start lower. If steps are skipped at a small scale too, look for NaN or infinity in the forward "
     "pass, which no loss scale cures.",
     "pytorch/pytorch#40497, NVIDIA/apex#318", skip_streak},
    {"small_scale", "loss scale over the steps", "below the limit", 1,
     "a scale below 1 makes gradients smaller: it overflows where no scale at all would not",
     "A dynamic loss scale: look for the operation whose gradient overflows, and set a floor of the scale. A static "
     "one: "
     "take at least 1.",
     "pytorch/pytorch#99640", small_scale},
    {"unskipped_overflow", "loss, loss scale, gradients, parameters after each step that was not skipped",
     "the loss is finite and its scale above 1, the share of gradients that are not finite is above the limit, and "
     "parameters after the step are not finite",
     0,
     "a scaler that checks skips a step with one such gradient; with a loss that is not finite, or a scale of 1, the "
     "scale is not the cause",
     "A static loss scale: lower it, or use a dynamic one, which skips such a step and lowers the scale. A dynamic "
     "one: "
     "update by scaler.step(optimizer), which checks the gradients; optimizer.step() does not.",
     "Micikevicius et al. 2018, arXiv:1710.03740, 3.2: skip the update when an overflow is detected",
     unskipped_overflow},
};

}  // namespace

std::span<const LintRule> lint_rules() { return kLintRules; }

const LintRule& lint_rule_named(std::string_view id) {
  for (const LintRule& rule : kLintRules)
    if (rule.id == id) return rule;
  throw Error("the linter has no rule '" + std::string(id) + "'");
}

namespace {
LintFinding finding_of(const LintRule& rule, const Judged& judged) {
  return {std::string(rule.id), judged.evidence, std::string(rule.remedy), std::string(rule.reference)};
}
}  // namespace

std::vector<LintFinding> findings_of(const Observation& observation) {
  std::vector<LintFinding> findings;
  for (const LintRule& rule : kLintRules)
    if (const auto judged = rule.judge(observation, rule.limit); judged && judged->is_found)
      findings.push_back(finding_of(rule, *judged));
  return findings;
}

std::vector<MetricRow> with_lint_rows(std::vector<MetricRow> rows) {
  rows.insert(rows.end(),
              {{"lint.findings", "1", Better::lower, Kind::exact, "rules of the linter that found a mistake"},
               {"lint.finding", "1", Better::lower, Kind::exact,
                "1 if this rule found its mistake; a rule that has nothing to look at is left out"},
               {"lint.evidence", "1", Better::neither, Kind::information, "the number that this rule judges"}});
  return rows;
}

void write_lint(const Observation& observation, FindingsWriter& out) {
  double count = 0;
  for (const LintRule& rule : kLintRules) {
    const auto judged = rule.judge(observation, rule.limit);
    if (!judged) continue;
    out.number("lint.finding", std::string(rule.id), judged->is_found);
    out.number("lint.evidence", std::string(rule.id), judged->evidence.front().value);
    count += judged->is_found;
    if (judged->is_found) out.lint(finding_of(rule, *judged));
  }
  out.number("lint.findings", "", count);
}

}  // namespace halfmark::accuracy
