#include "models/subject.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/network/loss_arguments.h"
#include "models/network/training_arguments.h"

namespace halfmark::models {

namespace {

template <class T>
void check_names(const Subject& subject, std::string_view what, const std::vector<T*>& items) {
  std::set<std::string_view> names;
  for (const T* item : items)
    HM_CHECK(names.insert(item->name).second,
             "subject " + subject.id() + ": two " + std::string(what) + " are named '" + item->name + "'");
}

}  // namespace

Subject subject_of_network(const Shape& input, DataKind data, int64_t classes, Network network) {
  const auto shared = std::make_shared<const Network>(std::move(network));
  return {.name = "",
          .sizes = "",
          .input = input,
          .data = data,
          .classes = classes,
          .make = [=](const Init& init,
                      const Settings& settings) { return build(*shared, "model", input, init, settings); },
          .network = shared};
}

namespace {
// "conv1, bn1, relu1, ..."
std::string first_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text + (names.size() > kShown ? ", ..." : "");
}
}  // namespace

std::optional<std::string> unmatched_layer(const Policy& policy, const Subject& subject) {
  if (policy.layers.empty()) return {};
  if (!subject.network)
    return "subject " + subject.id() + " is a function of a program; its layers have no policies of their own";
  const std::vector<std::string> names = layers_with_policy(*subject.network);
  for (const LayerPolicy& one : policy.layers) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return matches_layer(one.pattern, name); })) continue;
    const bool is_pattern = one.pattern.find('*') != std::string::npos;
    std::string near = hint(one.pattern, names);
    if (near.empty()) near = "; it has " + first_of(names);
    return "subject " + subject.id() + " has no layer with a policy of its own " + (is_pattern ? "like '" : "'") +
           one.pattern + "'" + near;
  }
  return {};
}

std::optional<std::string> unquantised_layer(const Policy& policy, const Subject& subject) {
  if (!subject.network) return {};
  const std::vector<std::string> names = quantised_layers(*subject.network);
  for (const LayerPolicy& one : policy.layers) {
    if (!one.policy->products) continue;
    if (std::ranges::any_of(names, [&](const std::string& name) { return entry_of_layer(policy, name) == &one; }))
      continue;
    return "policy " + std::string(one.policy->name) + " of '" + one.pattern +
           "' quantises linear layers without weight norm; " +
           (names.empty() ? subject.id() + " has none"
                          : "of " + first_of(names) + " in " + subject.id() + " it is given to none");
  }
  return {};
}

void check_loss(DataKind data, const LossSpec& loss) {
  HM_CHECK(data != DataKind::speech || loss.kind != LossKind::ctc || loss.blank == 0,
           "blank is " + std::to_string(loss.blank) + ": the labels of speech have the blank 0");
  HM_CHECK(data != DataKind::streets || loss.kind != LossKind::cross_entropy || loss.ignored == kUnlabelled,
           "the labels of streets have 255 where a pixel has no label, which counts as a class; set \"ignored\": 255");
}

std::string definition_of(const Subject& subject) {
  if (!subject.network) return "";
  const std::string text = subject.input.text() + " " + std::string(row_of(subject.data).name) + " " +
                           std::to_string(subject.classes) + " " + text_of(subject.loss) + " " +
                           text_of_training(subject.settings) + " " + text_of(*subject.network);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash_of(text));
  return digits;
}

LayerPtr make_model(const Subject& subject, const Init& init, const Settings& settings) {
  LayerPtr model;
  try {
    check_loss(subject.data, subject.loss);
    if (const auto what = unmatched_layer(init.policy, subject)) throw Error(*what);
    model = subject.make(init, settings);
  } catch (const Unsupported&) {  // the device lacks an operation or a dtype: no error of the subject
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error("subject " + subject.id() + ": " + error.what());
  }
  HM_CHECK(model, "subject " + subject.id() + ": its function `make` returns no layer");
  check_names(subject, "parameters", model->params());
  check_names(subject, "states", model->states());
  return model;
}

}  // namespace halfmark::models
