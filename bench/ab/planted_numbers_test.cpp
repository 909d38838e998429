// Numeric changes planted in one of two otherwise equal builds: the gate must detect each of them.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/case_processes.h"
#include "bench/run/run_case.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/devices.h"
#include "reports/gate/gate.h"

namespace halfmark::bench {
namespace {

// A device that uses the reference kernels first and changes their arithmetic or their results.
enum class Plant { nothing, sums_toward_zero, one_element };

class PlantedDevice : public HostDevice {
 public:
  explicit PlantedDevice(Plant plant) {
    add_reference_rows(kernels_);
    if (plant == Plant::sums_toward_zero) put_first<Matmul>(&sum_toward_zero);
    if (plant == Plant::one_element) put_first<BiasGradient>(&change_one_element);
  }
  std::string name() const override { return "cpu"; }
  std::vector<std::pair<std::string, std::string>> describe() const override { return {}; }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  template <class Op>
  void put_first(void (*run)(Device&, const Op&)) {
    KernelList<Op>& rows = kernels_.of<Op>();
    rows.insert(rows.begin(), {rows.back().name, rows.back().speed, rows.back().refuses, run});
  }
  // The same sums, stored with truncation instead of rounding to nearest.
  static void sum_toward_zero(Device& device, const Matmul& op) {
    Tensor wide(device, op.out.shape(), DType::f32);
    const Matmul exact{.a = op.a,
                       .b = op.b,
                       .out = wide,
                       .transpose_a = op.transpose_a,
                       .transpose_b = op.transpose_b,
                       .math = op.math};
    device.kernels().of<Matmul>().back().run(device, exact);
    if (op.out.layout() == Layout::any) op.out.materialize(Layout::plain);
    op.out.set_values(wide.values(), Rounding::toward_zero);
  }
  static void change_one_element(Device& device, const BiasGradient& op) {
    device.kernels().of<BiasGradient>().back().run(device, op);
    std::vector<unsigned char> codes = op.dbias.codes();
    codes[0] ^= 1;  // the last bit of the first element
    op.dbias.set_codes(codes);
  }

  KernelTable kernels_;
};

using Change = std::function<void(Policy&)>;

// The report of a build measured twice, as by two processes; the device is shared, the trials are not.
NamedReport build_with(const std::string& id, const std::shared_ptr<Device>& device, const Change& change) {
  Case one = case_of(id);
  Policy policy = *one.policy;
  if (change) change(policy);
  one.policy = &policy;
  Report report;
  report.records.push_back(
      with_process(with_process(std::nullopt, run_case(one, device, 0)), run_case(one, device, 0)));
  return {"planted", report};
}

struct Planted {
  const char* name;
  const char* id;
  Change change;
  Plant plant;
  bool breaks_rules;  // true: fails the default rules. false: is reported as changed bits and fails with --strict-bits
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class PlantedNumbers : public testing::TestWithParam<Planted> {};

TEST_P(PlantedNumbers, AreDetectedByTheGate) {
  const Planted& planted = GetParam();
  const bool real = planted.plant == Plant::nothing;
  const auto device = [&](Plant plant) -> std::shared_ptr<Device> {
    return real ? open_device("cpu") : std::make_shared<PlantedDevice>(plant);
  };
  const NamedReport before = build_with(planted.id, device(Plant::nothing), {});
  ASSERT_EQ(before.report.records[0].status, Status::ok) << before.report.records[0].reason;
  const NamedReport after = build_with(planted.id, device(planted.plant), planted.change);
  const GateRules rules = load_gate_rules("default");

  const Judgement same =
      judge(before, build_with(planted.id, device(Plant::nothing), {}), rules, {.strict_bits = true});
  EXPECT_EQ(same.exit_code, 0) << same.lines.front().words << ": nothing was planted";
  const Judgement strict = judge(before, after, rules, {.strict_bits = true});
  EXPECT_EQ(strict.exit_code, 1) << "with --strict-bits";
  const Judgement usual = judge(before, after, rules);
  EXPECT_EQ(usual.exit_code, planted.breaks_rules ? 1 : 0) << usual.lines.front().words;
  EXPECT_LE(usual.lines.front().outcome, Outcome::changed) << usual.lines.front().words;
}

INSTANTIATE_TEST_SUITE_P(
    SlowGate, PlantedNumbers,
    testing::Values(
        Planted{"SumsInFp16", "linear/b64_i1024_o1024/cpu/fp16/error",
                [](Policy& policy) { policy.math.accumulate = policy.math.partial = kFp16; }, Plant::nothing, true},
        Planted{"RoundingTowardZero", "linear/b8_i32_o16/cpu/fp16/error", {}, Plant::sums_toward_zero, true},
        Planted{"SplitK", "linear/b64_i1024_o1024/cpu/amp-fp16/error",
                [](Policy& policy) { policy.math.split_k = 4, policy.math.partial = kFp16; }, Plant::nothing, true},
        Planted{"MasterWeightsDropped", "mlp/b8_i16_h24_o10/cpu/amp-bf16/training/control=small_rate",
                [](Policy& policy) { policy.param = DType::bf16; }, Plant::nothing, true},
        Planted{"LossScaleOff", "mlp/b8_i16_h24_o10/cpu/amp-fp16/training/control=underflow",
                [](Policy& policy) { policy.scaler.kind = ScalerSpec::Kind::none; }, Plant::nothing, true},
        Planted{"BatchNormStatisticsInHalf", "batchnorm2d/b4_c3_s4/cpu/amp-fp16/batchnorm_drift/momentum=0.01",
                [](Policy& policy) { policy.state = DType::f16; }, Plant::nothing, true},
        Planted{"OneElementOfAGradient", "linear/b8_i32_o16/cpu/fp32/error", {}, Plant::one_element, false}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace halfmark::bench
