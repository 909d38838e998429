#include "bench/run/tensor_dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/run/environment.h"
#include "bench/run/model_file.h"
#include "kernels/number/error.h"
#include "models/network/training_arguments.h"
#include "reports/record/file.h"
#include "reports/record/json_number.h"
#include "reports/record/report.h"

namespace halfmark::bench {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The temporary folder beside the wanted one; removed unless it is published.
class NewFolder {
 public:
  explicit NewFolder(const std::string& wanted) : wanted_(wanted) {
    std::error_code error;
    if (wanted.empty()) throw Error("the folder of the dump has no name");
    while (wanted_.has_relative_path() && wanted_.filename().empty()) wanted_ = wanted_.parent_path();
    if (fs::exists(wanted_, error)) {
      HM_CHECK(fs::is_directory(wanted_, error), wanted_.string() + " exists and is no folder; choose another");
      HM_CHECK(fs::is_empty(wanted_, error) && !error, wanted_.string() + " is not empty; choose a new folder");
    }
    work_ = reports::companion_of(wanted_, fmt::format("dump-{}", getpid()));
    HM_CHECK(fs::create_directory(work_, error) && !error,
             fmt::format("{}: cannot be created: {}", wanted_.string(),
                         error ? error.message() : work_.filename().string() + " exists beside it"));
  }
  ~NewFolder() {
    std::error_code ignored;
    if (!work_.empty()) fs::remove_all(work_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  void write(const std::string& name, std::string_view text) { reports::replace_file(work_ / name, text); }
  void publish() {
    std::error_code error;
    fs::rename(work_, wanted_, error);  // replaces an empty folder
    HM_CHECK(!error, fmt::format("{}: cannot be made: {}", wanted_.string(), error.message()));
    work_.clear();
  }

 private:
  fs::path wanted_, work_;
};

class Dump {
 public:
  Dump(NewFolder& folder, Json& tensors, bool wants_tensors)
      : folder_(folder), tensors_(tensors), wants_tensors_(wants_tensors) {}

  // `step` -1: before the first.
  void add(int64_t step, std::string_view role, const std::string& name, const Tensor& tensor) {
    if (tensor.empty() || !wants_tensors_) return;
    const std::string where = step < 0 ? "start" : fmt::format("step{}", step);
    std::string file = fmt::format("{}.{}{}{}.npy", where, role, name.empty() ? "" : ".", name);
    std::replace(file.begin(), file.end(), '/', '_');
    folder_.write(file, npy_text(tensor));
    Json one = {{"file", file}, {"role", role}, {"name", name}};
    if (step >= 0) one["step"] = step;
    one["shape"] = tensor.shape().extents();
    one["dtype"] = name_of(tensor.dtype());
    tensors_.push_back(std::move(one));
  }

 private:
  NewFolder& folder_;
  Json& tensors_;
  bool wants_tensors_;
};

Json policy_json(const Policy& policy) {
  const ScalerSpec& scaler = policy.scaler;
  return {{"name", policy.name},
          {"parameters", name_of(policy.param)},
          {"low", name_of(policy.low)},
          {"batch_norms", name_of(policy.batch_norm)},
          {"statistics", name_of(policy.state)},
          {"gradients", name_of(policy.grad)},
          {"master", policy.master},
          {"autocast", policy.rules ? std::string(policy.rules->name) : "none"},
          {"loss_scaling", scaler.kind == ScalerSpec::Kind::none
                               ? Json(nullptr)
                               : Json{{"dynamic", scaler.kind == ScalerSpec::Kind::dynamic},
                                      {"initial", scaler.initial},
                                      {"growth", scaler.growth},
                                      {"backoff", scaler.backoff},
                                      {"interval", scaler.interval},
                                      {"rule", models::text_of(scaler)}}}};
}

Json device_facts(Device& device) {
  Json facts = Json::object();
  for (const auto& [key, value] : device.describe()) facts[key] = value;
  if (!device.numerics().empty()) facts["numerics"] = device.numerics();
  return facts;
}

void add_state(Dump& dump, int64_t step, Trial& trial) {
  for (const Param* param : trial.params()) {
    dump.add(step, "parameter", param->name, param->value);
    dump.add(step, "master", param->name, param->master);
  }
  for (const State* state : trial.states()) dump.add(step, "state", state->name, state->value);
}

void add_dropouts(const std::vector<LayerSpec>& layers, RandomKey key, Json& seeds) {
  for (const LayerSpec& layer : layers) {
    if (layer.kind == "dropout") seeds[layer.name] = key.child(layer.name).value();
    for (const auto& branch : layer.branches) add_dropouts(branch, key, seeds);
  }
}

// Sets the first gradient, so that it overflows exactly if that is wanted.
void plant(Trial& trial, bool overflows) {
  for (Param* param : trial.params()) {
    std::vector<double> values(static_cast<size_t>(param->grad.elements()), 0.0);
    if (overflows && param == trial.params().front()) values.front() = HUGE_VAL;
    param->grad.set_values(values);
  }
}

}  // namespace

std::string npy_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "<f8";
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::i32:
      return "<i4";
    default:  // codes of other formats, as unsigned integers of their size
      HM_CHECK(!is_packed(dtype), std::string(name_of(dtype)) + " is packed and has no .npy type");
      return size_of(dtype) == 1 ? "|u1" : fmt::format("<u{}", size_of(dtype));
  }
}

std::string npy_text(const Tensor& tensor) {
  const std::vector<unsigned char> codes = tensor.codes();
  std::string shape;
  for (const int64_t extent : tensor.shape().extents()) shape += fmt::format("{}, ", extent);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", npy_type(tensor.dtype()), shape);
  constexpr size_t kLead = 10, kAlignment = 64;  // magic, version, length of the header
  header.append(kAlignment - (kLead + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  text += header;
  text.append(reinterpret_cast<const char*>(codes.data()), codes.size());
  return text;
}

void dump_steps(const TrialSpec& given, int64_t steps, const std::string& folder, const std::string& command,
                const ScalePattern& scales) {
  TrialSpec spec = given;
  if (!scales.pattern.empty()) {
    HM_CHECK(scales.pattern.find_first_not_of("01") == std::string::npos,
             fmt::format("--overflows {}: has characters other than 0 and 1, one for each step", scales.pattern));
    ScalerSpec scaler = spec.settings.scaler.value_or(spec.policy->scaler);
    HM_CHECK(scaler.kind == ScalerSpec::Kind::dynamic,
             "policy " + std::string(spec.policy->name) + " has no loss scale that overflows would change");
    if (scales.interval > 0) scaler.interval = scales.interval;
    spec.settings.scaler = scaler;
    steps = static_cast<int64_t>(scales.pattern.size());
  }
  NewFolder made(folder);
  Json tensors = Json::array(), taken = Json::array(), activations = Json::array();
  Dump dump(made, tensors, scales.pattern.empty());
  Trial trial(spec);
  bool is_first = true;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    if (is_first && name.starts_with("activation/"))
      activations.push_back(
          {{"layer", name.substr(std::string_view("activation/").size())}, {"dtype", name_of(tensor.dtype())}});
  });
  add_state(dump, -1, trial);
  for (int64_t step = 0; step < steps; ++step) {
    trial.load_batch(step);
    dump.add(step, "input", "", trial.input());
    dump.add(step, "target", "", trial.targets());
    const Tensor output = trial.forward();
    is_first = false;
    dump.add(step, "output", "", output);
    Json one = {{"step", step},
                {"loss", reports::json_number(trial.loss())},
                {"scale", static_cast<double>(trial.scaler().scale())}};
    // What dropout draws from: the seed of a layer is the key's child of the layer's name.
    Json seeds = Json::object();
    add_dropouts(spec.subject->network->layers, trial.forward_key(), seeds);
    one["dropout_seeds"] = seeds;
    trial.backward();
    if (!scales.pattern.empty()) plant(trial, scales.pattern[static_cast<size_t>(step)] == '1');
    dump.add(step, "output_gradient", "", trial.fixed_output_gradient());
    dump.add(step, "input_gradient", "", trial.scaled_input_gradient());
    for (const Param* param : trial.params()) dump.add(step, "scaled_gradient", param->name, param->grad);
    one["skipped"] = !trial.update();
    for (const Param* param : trial.params()) dump.add(step, "gradient", param->name, param->grad);
    add_state(dump, step, trial);
    const std::vector<Optimizer::State>& states = trial.optimizer().states();
    for (size_t i = 0; i < states.size(); ++i) {
      const std::string& name = trial.params()[i]->name;
      dump.add(step, "optimizer_first", name, states[i].first),
          dump.add(step, "optimizer_second", name, states[i].second);
      dump.add(step, "optimizer_compensation", name, states[i].compensation);
    }
    taken.push_back(std::move(one));
  }
  Json index = {{"halfmark_dump", 1},
                {"halfmark", environment_of({}, false)["halfmark"]},
                {"command", command},
                {"subject", spec.subject->id()},
                {"model", model_json(*spec.subject)},
                {"device", spec.device->name()},
                {"device_facts", device_facts(*spec.device)},
                {"policy", policy_json(*spec.policy)},
                {"seed", spec.seed},
                {"batchnorm_momentum", spec.settings.batchnorm_momentum},
                {"training", Json::object()},
                {"overflows", scales.pattern.empty()
                                  ? Json(nullptr)
                                  : Json{{"pattern", scales.pattern}, {"interval", spec.settings.scaler->interval}}},
                {"steps", taken},
                {"activations", activations},
                {"tensors", tensors}};
  for (const auto& [key, value] : arguments_of_training(spec.settings))
    index["training"][key] = Json::parse(models::text_of(value));
  made.write("dump.json", index.dump(1) + "\n");
  made.publish();
}

}  // namespace halfmark::bench
