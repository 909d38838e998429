#include "bench/run/work.h"

#include <map>
#include <string>
#include <utility>

#include "kernels/devices.h"
#include "models/data_kinds.h"
#include "models/index_storage.h"

namespace halfmark::bench {

const std::vector<MetricRow>& work_table() {
  static const std::vector<MetricRow> rows = {
      {"work.parameters", "1", Better::neither, Kind::information, "trained numbers of the subject"},
      {"work.input", "1", Better::neither, Kind::information, "elements of the input, the batch included"},
      {"work.output", "1", Better::neither, Kind::information, "elements of the output, the batch included"},
      {"work.flops", "FLOP", Better::neither, Kind::information,
       "of matmul and convolution, a multiply-add is two; at forward: of one forward pass; at train: of a training "
       "step, three times as many; absent where the subject has neither"},
      {"work.bytes", "B", Better::neither, Kind::information,
       "at forward: least traffic of a forward pass = parameters as stored + input as stored + output in the "
       "policy's low type, each once"},
  };
  return rows;
}

Work work_of(const Subject& subject) {
  static std::map<std::string, Work> known;
  if (const auto found = known.find(subject.id()); found != known.end()) return found->second;
  const auto device = open_device("cpu");
  const LayerPtr model = make_model(subject, {*device, policy_named("fp32"), RandomKey(0)}, Settings());
  Work work;
  for (const Param* param : model->params()) work.parameters += static_cast<double>(param->value.shape().elements());
  work.forward_flops = model->forward_flops(subject.input);
  work.step_flops = 3 * work.forward_flops;  // backward: once for the input's gradient, once for the weights'
  work.input = subject.input, work.output = model->output_shape(subject.input);
  return known.emplace(subject.id(), work).first->second;
}

namespace {

// Bytes of the parameters as stored: normalisation layers may store theirs in another dtype.
double parameter_bytes(const Subject& subject, const Policy& policy) {
  static std::map<std::pair<std::string, const Policy*>, double> known;
  const std::pair key(subject.id(), &policy);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto device = open_device("cpu");
  const LayerPtr model = make_model(subject, {*device, policy, RandomKey(0)}, Settings());
  double bytes = 0;
  for (const Param* param : model->params())
    bytes += static_cast<double>(param->value.shape().elements()) * static_cast<double>(size_of(param->value.dtype()));
  return known.emplace(key, bytes).first->second;
}

}  // namespace

double least_forward_bytes(const Subject& subject, const Policy& policy, const Settings& settings) {
  const Work work = work_of(subject);
  const size_t input = models::row_of(subject.data).has_indices ? models::bytes_of_index(settings.indices)
                                                                : size_of(subject.input_dtype(policy));
  return parameter_bytes(subject, policy) + static_cast<double>(work.input.elements()) * static_cast<double>(input) +
         static_cast<double>(work.output.elements()) * static_cast<double>(size_of(policy.low));
}

void add_work(const TrialSpec& spec, Record& record) {
  const Work work = work_of(*spec.subject);
  FindingsWriter out(work_table());
  out.number("work.parameters", "", work.parameters);
  out.number("work.input", "", static_cast<double>(work.input.elements()));
  out.number("work.output", "", static_cast<double>(work.output.elements()));
  if (work.forward_flops > 0) {
    out.number("work.flops", "forward", work.forward_flops);
    out.number("work.flops", "train", work.step_flops);
  }
  out.number("work.bytes", "forward", least_forward_bytes(*spec.subject, *spec.policy, spec.settings));
  for (Measurement& one : out.take().measurements) record.measurements.push_back(std::move(one));
}

}  // namespace halfmark::bench
