// A program with all commands of halfmark, one more subject and one more harness. Try:
//   mysuite list subjects
//   mysuite run residual_mlp -o report.json && mysuite show report.json
//   mysuite run mlp update_size
#include <halfmark/bench/halfmark.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace halfmark::bench;

// relu(x W + b) + x. The same code runs under every policy: the layers inside it cast as the policy requires.
LayerPtr block(const Init& init, const std::string& name, int64_t width) {
  std::vector<LayerPtr> body;
  body.push_back(linear(init, name + ".fc", width, width));
  body.push_back(relu(name + ".relu"));
  return residual(name, sequential(name + ".body", std::move(body)));
}

// A subject that the suite does not have: 32 samples of 64 numbers in ten classes, two blocks and a linear head.
Subject residual_mlp() {
  return {
      .name = "residual_mlp",
      .sizes = "b32_i64_o10",
      .input = {32, 64},
      .data = DataKind::points,
      .classes = 10,
      .make =
          [](const Init& init, const Settings&) {
            std::vector<LayerPtr> layers;
            layers.push_back(block(init, "block1", 64));
            layers.push_back(block(init, "block2", 64));
            layers.push_back(linear(init, "head", 64, 10));
            return sequential("residual_mlp", std::move(layers));
          },
  };
}

// A harness that the suite does not have: how large an update is relative to the weight that it changes. Where this is
// below half a unit in the last place of the weights' format, the weight does not change.
const std::vector<MetricRow>& update_table() {
  static const std::vector<MetricRow> rows = {
      {"update_size.ratio", "1", Better::neither, Kind::bounded,
       "root mean square of weight after one step - weight before, over that of the weight before; per parameter"},
  };
  return rows;
}

Findings measure_update(const TrialSpec& spec) {
  Trial trial(spec);
  std::vector<std::vector<double>> before;
  for (const Param* param : trial.params()) before.push_back(param->value.values());
  trial.train_step(0);

  FindingsWriter out(update_table());
  size_t i = 0;
  for (const Param* param : trial.params()) {
    const std::vector<double> after = param->value.values();
    double moved = 0, size = 0;
    for (size_t k = 0; k < after.size(); ++k) {
      moved += std::pow(after[k] - before[i][k], 2);
      size += std::pow(before[i][k], 2);
    }
    if (size > 0) out.number("update_size.ratio", param->name, std::sqrt(moved / size));
    ++i;
  }
  return out.take();
}

Harness update_size() {
  return {.name = "update_size",
          .about = "size of the first update relative to the weights",
          .axes = {},
          .metrics = update_table(),
          .refuses = {},
          .measure = measure_update};
}

}  // namespace

int main(int argc, char** argv) {
  return run_command_line(
      argc, argv, {.name = "mysuite", .version = "1.0", .subjects = {residual_mlp()}, .harnesses = {update_size()}});
}
