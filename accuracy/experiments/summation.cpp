// The summation experiment: how the device's matmul adds at the size of this layer, found by the probe. Libraries choose
// kernels by size, so each size is a case of its own: a list of sizes shows where a new version of a library adds in another way.
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/probe/linear_matmul.h"
#include "accuracy/probe/probe.h"
#include "models/policy.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& summation_table() {
  static const std::vector<MetricRow> rows = {
      {"summation.partial_sums", "1", Better::neither, Kind::exact,
       "contiguous parts of K with a sum of their own, which are added at the end; 1: K is not split"},
      {"summation.products_per_block", "1", Better::neither, Kind::exact,
       "products that are added at once, in one fused sum; 1: a chain"},
      {"summation.kept_bits", "1", Better::neither, Kind::exact,
       "fraction bits that a block keeps below its largest exponent; 90: none is cut"},
      {"summation.elements_alike", "1", Better::neither, Kind::exact,
       "1: all elements of the result are added in the same way; 0: others than element 0,0 are not"},
      {"summation.described", "1", Better::higher, Kind::exact,
       "1: a tree of sums describes the order of addition; 0: none does, and only the fingerprint is known"},
      {"summation.fingerprint", "1", Better::neither, Kind::exact,
       "the upper 52 bits of a hash of everything that the probe found, and of the results of fixed products"},
  };
  return rows;
}

probe::MatmulTypes types_of(const TrialSpec& spec) {
  const DType low = spec.policy->low;
  return {std::string(name_of(low)), low, low, low, spec.policy->math, true};
}

Findings measure_summation(const TrialSpec& spec) {
  probe::RecordingBox recorder(probe::matmul_box(*spec.device, types_of(spec), probe::matmul_of(*spec.subject)));
  const std::string elements = recorder.box().elements;
  probe::Options options;
  options.replays = 0, options.match = false;
  const probe::Report report = probe::examine(recorder, options);
  FindingsWriter out(summation_table());
  if (report.model) {
    const probe::SumTree& tree = report.model->tree;
    out.number("summation.partial_sums", "", static_cast<double>(probe::slices_of(tree)));
    out.number("summation.products_per_block", "", static_cast<double>(probe::products_per_block(tree)));
    out.number("summation.kept_bits", "", report.model->block.kept_bits);
  }
  out.number("summation.elements_alike", "", elements == probe::kAlike ? 1 : 0);
  out.number("summation.described", "", report.model ? 1 : 0);
  out.number("summation.fingerprint", "", static_cast<double>(std::stoull(report.hash, nullptr, 16) >> 12));
  return out.take();
}

std::optional<std::string> refuses_summation(const TrialSpec& spec) {
  if (spec.subject->name != "linear") return "examines one matmul and needs a linear layer";
  if (models::quantizes_products(*spec.policy))
    return "examines products of numbers as they are stored, and " + std::string(spec.policy->name) + " quantises them";
  if (probe::matmul_of(*spec.subject).k < 2) return "needs two products to add: i of 2 or more";
  return {};
}

}  // namespace

Harness summation_harness() {
  return {.name = "summation",
          .about = "how the device's matmul adds at this size: blocks, partial sums, fingerprint",
          .axes = {},
          .metrics = summation_table(),
          .refuses = refuses_summation,
          .measure = measure_summation};
}

}  // namespace halfmark::accuracy
