// The probe of sums across devices on groups with known orders and roundings: rings, trees, wide partial sums, sums that are
// made at once, ranks and runs that differ.
#include "accuracy/probe/all_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

// What element `at` of `count` becomes, from the numbers by rank.
struct Place {
  int64_t at = 0, count = 0;
  int run = 0;
};
using Sum = std::function<double(std::vector<double> numbers, const Place& place)>;

// A library that adds in this way, on any devices.
class SampleGroup : public AllReduceGroup {
 public:
  explicit SampleGroup(Sum sum) : sum_(std::move(sum)) {}
  std::string library() const override { return "a sample"; }
  std::vector<std::pair<std::string, std::string>> settings() const override { return {{"SAMPLE", "1"}}; }
  void wait() override {}
  void run(std::span<const Tensor> in, std::span<Tensor> out, ReduceOp op) override {
    if (op == ReduceOp::average && average == Average::refused) throw Unsupported("no averages");
    ++runs_;
    std::vector<std::vector<double>> numbers, results(in.size());
    for (const Tensor& one : in) numbers.push_back(one.values());
    const DType dtype = in[0].dtype();
    const auto rounded = [&](double x) { return decode(dtype, encode(dtype, x)); };
    const auto n = static_cast<double>(in.size());
    for (int64_t i = 0; i < in[0].elements(); ++i) {
      std::vector<double> here;
      for (const auto& of_rank : numbers) here.push_back(of_rank[static_cast<size_t>(i)]);
      if (op == ReduceOp::average && average == Average::before)
        for (double& x : here) x = rounded(x * rounded(1 / n));
      double total = sum_(here, {i, in[0].elements(), runs_});
      if (op == ReduceOp::average && average == Average::after) total = rounded(rounded(total) / n);
      for (auto& of_rank : results) of_rank.push_back(total);
    }
    for (size_t r = 0; r < out.size(); ++r) out[r].set_values(results[r]);
    if (other_rank) {
      std::vector<unsigned char> codes = out[*other_rank].codes();
      codes[7 * size_of(dtype)] ^= 1;
      out[*other_rank].set_codes(codes);
    }
  }

  enum class Average { before, after, refused } average = Average::before;
  std::optional<size_t> other_rank;  // gets another bit in element 7

 private:
  Sum sum_;
  int runs_ = 0;
};

double rounded(DType dtype, double x) { return decode(dtype, encode(dtype, x)); }

// One after another from `first` on, each sum in `partial`.
double chain(const std::vector<double>& numbers, size_t first, DType partial) {
  double sum = numbers[first % numbers.size()];
  for (size_t i = 1; i < numbers.size(); ++i) sum = rounded(partial, sum + numbers[(first + i) % numbers.size()]);
  return sum;
}
Sum ring(DType partial) {
  return [partial](const std::vector<double>& numbers, const Place& place) {
    const int64_t n = static_cast<int64_t>(numbers.size()), chunk = (place.count + n - 1) / n;
    return chain(numbers, static_cast<size_t>(place.at / chunk) + 1, partial);
  };
}
Sum halves(DType partial) {
  return [partial](const std::vector<double>& numbers, const Place&) {
    std::vector<double> sums = numbers;
    while (sums.size() > 1) {
      std::vector<double> next;
      for (size_t i = 0; i < sums.size(); i += 2) next.push_back(rounded(partial, sums[i] + sums[i + 1]));
      sums = next;
    }
    return sums[0];
  };
}

AllReduceReport report_of(AllReduceGroup& group, size_t ranks, DType dtype, int64_t elements = 40,
                          size_t replays = 400) {
  std::vector<std::shared_ptr<Device>> devices;
  for (size_t r = 0; r < ranks; ++r) devices.push_back(open_device("cpu"));
  Options options;
  options.replays = replays;
  return examine_all_reduce(devices, group, dtype, elements, options);
}
AllReduceReport report_of(const Sum& sum, size_t ranks, DType dtype, int64_t elements = 40, size_t replays = 400) {
  SampleGroup group(sum);
  return report_of(group, ranks, dtype, elements, replays);
}

std::string value_of(const AllReduceReport& report, std::string_view parameter) {
  const Finding* finding = report.find(parameter);
  return finding ? finding->value : "no such line";
}
void expect_replayed(const AllReduceReport& report) {
  for (const OrderReport& order : report.orders) {
    EXPECT_GT(order.replays, 0u) << order.elements << ": " << order.order << ", " << order.evidence;
    EXPECT_EQ(order.replayed, order.replays) << order.elements << ": " << order.order << "\n" << report.fingerprint;
  }
}

TEST(AllReduceProbe, FindsTheOrderOfARingInEachPartOfTheBuffer) {
  const AllReduceReport report = report_of(ring(DType::f32), 4, DType::f32);
  EXPECT_EQ(value_of(report, "orders of addition"), "4");
  ASSERT_EQ(report.orders.size(), 4u);
  const char* expected[][2] = {{"0-9", "1-3, 0"}, {"10-19", "2-3, 0-1"}, {"20-29", "0 3, 1-2"}, {"30-39", "0-3"}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(report.orders[i].elements, expected[i][0]);
    EXPECT_EQ(report.orders[i].order, expected[i][1]);
    EXPECT_EQ(report.orders[i].count, 10);
  }
  EXPECT_EQ(value_of(report, "format of sums"), "fp32");
  EXPECT_EQ(value_of(report, "rounding of sums"), "near_even");
  EXPECT_EQ(value_of(report, "ranks"), "the same bits");
  EXPECT_EQ(value_of(report, "run to run"), "the same bits");
  EXPECT_EQ(value_of(report, "elements"), kAlike);
  expect_replayed(report);
}

TEST(AllReduceProbe, FindsEachTypeRoundedAfterEachSum) {
  for (const size_t ranks : {3, 4, 8})
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
      SCOPED_TRACE(testing::Message() << ranks << " " << name_of(dtype));
      const AllReduceReport report = report_of(ring(dtype), ranks, dtype);
      EXPECT_EQ(value_of(report, "orders of addition"), std::to_string(ranks));
      EXPECT_EQ(value_of(report, "format of sums"), format_of(dtype).name);
      EXPECT_EQ(value_of(report, "subnormal operands"), "honoured");
      EXPECT_EQ(value_of(report, "subnormal results"), "honoured");
      EXPECT_EQ(value_of(report, "overflow in between"), "stays");
      expect_replayed(report);
    }
}

TEST(AllReduceProbe, FindsPartialSumsThatAreWiderThanTheResult) {
  for (const size_t ranks : {3, 4, 8})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << ranks << " " << name_of(dtype));
      const AllReduceReport report = report_of(ring(DType::f32), ranks, dtype);
      EXPECT_EQ(value_of(report, "format of sums"), "fp32");
      EXPECT_EQ(value_of(report, "overflow in between"), dtype == DType::f16 ? "passes" : "stays");
      expect_replayed(report);
      EXPECT_NE(report.hash, report_of(ring(dtype), ranks, dtype).hash);
    }
}

// One sum shows no more than its result.
TEST(AllReduceProbe, OfTwoDevicesSaysWhatCannotBeSeen) {
  const AllReduceReport narrow = report_of(ring(DType::bf16), 2, DType::bf16);
  EXPECT_EQ(narrow.orders.size(), 1u);
  EXPECT_EQ(value_of(narrow, "format of sums"), "bf16, or wider and rounded once");
  EXPECT_EQ(value_of(narrow, "orders of addition"), "one in the whole buffer");
  expect_replayed(narrow);
  EXPECT_EQ(narrow.hash, report_of(ring(DType::f32), 2, DType::bf16).hash);
}

TEST(AllReduceProbe, FindsATreeInTheWholeBuffer) {
  const AllReduceReport four = report_of(halves(DType::bf16), 4, DType::bf16);
  ASSERT_EQ(four.orders.size(), 1u);
  EXPECT_EQ(four.orders[0].order, "(0-1) + (2-3)");
  EXPECT_EQ(four.orders[0].elements, "0-39");
  expect_replayed(four);
  const AllReduceReport eight = report_of(halves(DType::f32), 8, DType::f32);
  EXPECT_EQ(eight.orders[0].order, "((0-1) + (2-3)) + ((4-5) + (6-7))");
  expect_replayed(eight);
}

TEST(AllReduceProbe, FindsOtherRoundings) {
  const auto cut = [](const std::vector<double>& numbers, const Place&) {
    double sum = numbers[0];
    for (size_t i = 1; i < numbers.size(); ++i) sum = round_to(kBf16, sum + numbers[i], Rounding::toward_zero);
    return sum;
  };
  const AllReduceReport report = report_of(cut, 4, DType::bf16);
  EXPECT_EQ(value_of(report, "rounding of sums"), "toward_zero");
  expect_replayed(report);
}

// As adders in a switch may do it: exact, and rounded once. fp64 holds these sums of bf16 numbers.
TEST(AllReduceProbe, SaysWhereNoOrderIsSeen) {
  const auto at_once = [](std::vector<double> numbers, const Place&) {
    std::sort(numbers.begin(), numbers.end(), [](double x, double y) { return std::fabs(x) > std::fabs(y); });
    return std::accumulate(numbers.begin(), numbers.end(), 0.0);
  };
  const AllReduceReport report = report_of(at_once, 4, DType::bf16);
  ASSERT_EQ(report.orders.size(), 1u);
  EXPECT_EQ(report.orders[0].order, kNotObservable);
  EXPECT_EQ(report.orders[0].replays, 0u);
  EXPECT_EQ(value_of(report, "overflow in between"), "no such line");
}

TEST(AllReduceProbe, FindsSubnormalsThatAreFlushed) {
  const auto flushing = [](const std::vector<double>& numbers, const Place&) {
    const auto flushed = [](double x) { return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; };
    double sum = flushed(numbers[0]);
    for (size_t i = 1; i < numbers.size(); ++i) sum = flushed(rounded(DType::f32, sum + flushed(numbers[i])));
    return sum;
  };
  const AllReduceReport report = report_of(flushing, 3, DType::f32);
  EXPECT_EQ(value_of(report, "subnormal operands"), "flushed to zero");
  EXPECT_EQ(value_of(report, "subnormal results"), "flushed to zero");
  expect_replayed(report);
}

TEST(AllReduceProbe, NamesARankThatGetsOtherBits) {
  SampleGroup group(ring(DType::f16));
  group.other_rank = 2;
  const AllReduceReport report = report_of(group, 3, DType::f16);
  EXPECT_EQ(value_of(report, "ranks"), "get different bits");
  EXPECT_EQ(report.find("ranks")->evidence.find("rank 2 has "), 0u) << report.find("ranks")->evidence;
  EXPECT_NE(report.find("ranks")->evidence.find(" in element 7, rank 0 has "), std::string::npos);
}

TEST(AllReduceProbe, FindsRunsThatDiffer) {
  const Sum same = ring(DType::f32);
  const auto varying = [&](const std::vector<double>& numbers, const Place& place) {
    const double sum = same(numbers, place);
    return place.at == 3 && place.run % 2 == 0 ? std::nextafter(static_cast<float>(sum), 1e30f) : sum;
  };
  EXPECT_EQ(value_of(report_of(varying, 3, DType::f32), "run to run"), "differs");
}

// Elements of one order that round in another way, as the ends of a loop over packs might.
TEST(AllReduceProbe, FindsElementsThatAddDifferentlyInOneOrder) {
  const Sum usual = halves(DType::bf16);
  const auto ends = [&](const std::vector<double>& numbers, const Place& place) {
    if (place.at + 1 < place.count) return usual(numbers, place);
    return halves(DType::f32)(numbers, place);
  };
  const AllReduceReport report = report_of(ends, 4, DType::bf16);
  EXPECT_EQ(report.orders.size(), 1u);
  EXPECT_EQ(value_of(report, "elements"), "add differently");
}

// The second half of the buffer keeps fp32: its own findings are listed beside its order.
TEST(AllReduceProbe, ExaminesAnOrderThatRoundsInAnotherWay) {
  const auto mixed = [](const std::vector<double>& numbers, const Place& place) {
    return place.at < place.count / 2 ? chain(numbers, 0, DType::bf16) : chain(numbers, 1, DType::f32);
  };
  const AllReduceReport report = report_of(mixed, 4, DType::bf16);
  ASSERT_EQ(report.orders.size(), 2u);
  EXPECT_EQ(value_of(report, "format of sums"), "bf16");
  const auto& own = report.orders[1].findings;
  EXPECT_TRUE(std::any_of(own.begin(), own.end(),
                          [](const Finding& one) { return one.parameter == "format of sums" && one.value == "fp32"; }));
  expect_replayed(report);
}

TEST(AllReduceProbe, FindsHowAnAverageIsDivided) {
  for (const size_t ranks : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e5m2}) {
      SampleGroup group(ring(dtype));
      EXPECT_EQ(value_of(report_of(group, ranks, dtype), "average"), "each number is scaled first")
          << ranks << " " << name_of(dtype);
      group.average = SampleGroup::Average::after;
      EXPECT_EQ(value_of(report_of(group, ranks, dtype), "average"), "the sum is scaled") << ranks << name_of(dtype);
    }
  SampleGroup refusing(ring(DType::f32));
  refusing.average = SampleGroup::Average::refused;
  const AllReduceReport report = report_of(refusing, 3, DType::f32);
  EXPECT_EQ(value_of(report, "average"), "refused");
  EXPECT_EQ(report.find("average")->evidence, "no averages");
}

TEST(AllReduceProbe, HasAFingerprintOfOrdersAndRoundings) {
  const auto hash = [](const Sum& sum, int64_t elements = 40) { return report_of(sum, 4, DType::bf16, elements).hash; };
  EXPECT_EQ(hash(ring(DType::bf16)), hash(ring(DType::bf16)));
  EXPECT_NE(hash(ring(DType::bf16)), hash(halves(DType::bf16)));
  EXPECT_NE(hash(ring(DType::bf16)), hash(ring(DType::f32)));
  EXPECT_NE(hash(ring(DType::bf16)), hash(ring(DType::bf16), 44));
  const auto turned = [](const std::vector<double>& numbers, const Place& place) {
    return chain(numbers, static_cast<size_t>(place.at / 10), DType::bf16);
  };
  EXPECT_NE(hash(ring(DType::bf16)), hash(turned));
}

TEST(AllReduceProbe, WorksOnOneElementAndWithoutAReplay) {
  const AllReduceReport report = report_of(ring(DType::f32), 3, DType::f32, 1, 0);
  ASSERT_EQ(report.orders.size(), 1u);
  EXPECT_EQ(report.orders[0].elements, "0");
  EXPECT_EQ(report.orders[0].order, "1-2, 0");
  EXPECT_EQ(report.orders[0].replays, 0u);
  EXPECT_EQ(report.library, "a sample");
  EXPECT_EQ(report.devices, "cpu,cpu,cpu");
  EXPECT_EQ(report.settings.size(), 1u);
}

TEST(AllReduceProbe, NamesManyRangesShortly) {
  const auto striped = [](const std::vector<double>& numbers, const Place& place) {
    return chain(numbers, static_cast<size_t>(place.at % 3), DType::f32);
  };
  const AllReduceReport report = report_of(striped, 3, DType::f32, 30, 50);
  ASSERT_EQ(report.orders.size(), 3u);
  EXPECT_EQ(report.orders[1].elements, "1, 4, 7 and 7 more ranges");
  EXPECT_EQ(report.orders[1].count, 10);
  expect_replayed(report);
}

// Gradients that are sent as bf16 and added as fp32.
TEST(AllReduceProbe, FindsNumbersThatAreRoundedBeforeTheyAreAdded) {
  const auto compressed = [](std::vector<double> numbers, const Place&) {
    for (double& x : numbers) x = rounded(DType::bf16, x);
    return chain(numbers, 1, DType::f32);
  };
  const AllReduceReport report = report_of(compressed, 4, DType::f32);
  EXPECT_EQ(value_of(report, "operands"), "rounded to nearest even to bf16");
  EXPECT_EQ(value_of(report, "format of sums"), "fp32");
  EXPECT_EQ(report.orders[0].order, "1-3, 0");
  expect_replayed(report);
  // Numbers of fewer digits are still multiplied by nothing but 1.
  SampleGroup group(compressed);
  const std::vector<std::shared_ptr<Device>> devices = {open_device("cpu"), open_device("cpu")};
  AllReduceRunner runner(devices, group, DType::f32, 4);
  RecordingBox recorder(all_reduce_box(runner, {{{0, 3}}}));
  recorder.narrow_operands(7);
  EXPECT_EQ(recorder.box().a.fraction_bits, 7);
  EXPECT_EQ(recorder.box().b, kOne);
}

// An adder of many terms: all of them are cut 24 bits below the largest one, and the sum is rounded.
TEST(AllReduceProbe, FindsABlockThatAddsAllRanksAndCutsThem) {
  const auto block = [](const std::vector<double>& numbers, const Place&) {
    double largest = 0, sum = 0;
    for (const double x : numbers) largest = std::max(largest, std::fabs(x));
    if (largest == 0) return numbers[0];
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 24);
    for (const double x : numbers) sum += std::trunc(x / unit) * unit;
    return rounded(DType::f32, sum);
  };
  const AllReduceReport report = report_of(block, 8, DType::f32);
  ASSERT_EQ(report.orders.size(), 1u);
  EXPECT_EQ(report.orders[0].order, "{0-7}");
  EXPECT_EQ(value_of(report, "kept fraction bits"), "24");
  expect_replayed(report);
}

// Each element in an order of its own.
TEST(AllReduceProbe, ExaminesSomeOfVeryManyOrders) {
  const auto shuffled = [](const std::vector<double>& numbers, const Place& place) {
    std::vector<size_t> order(numbers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int64_t i = 0; i < place.at; ++i) std::next_permutation(order.begin(), order.end());
    double sum = numbers[order[0]];
    for (size_t i = 1; i < order.size(); ++i) sum = rounded(DType::f32, sum + numbers[order[i]]);
    return sum;
  };
  const AllReduceReport report = report_of(shuffled, 6, DType::f32, 200, 20);
  EXPECT_EQ(report.orders.size(), 64u);
  EXPECT_GT(std::stoi(value_of(report, "orders of addition")), 64);
  EXPECT_NE(report.find("orders of addition")->evidence.find("; only the first 64 are examined"), std::string::npos);
  expect_replayed(report);
}

// Nodes are examined in one order; the others only need their tree and a replay.
TEST(AllReduceProbe, ExaminesTheOtherOrdersBriefly) {
  const auto runs_of = [](size_t ranks) {
    const std::string evidence = report_of(ring(DType::f32), ranks, DType::f32, 4000).find("ranks")->evidence;
    return std::stoi(evidence.substr(3));  // "in 118 runs"
  };
  EXPECT_LT(runs_of(8) - runs_of(4), 80);
}

// Also those that the text of an order does not name.
TEST(AllReduceProbe, FingerprintsCoverAllRangesOfAnOrder) {
  const auto alternating = [](int64_t last) {
    return [last](const std::vector<double>& numbers, const Place& place) {
      return chain(numbers, static_cast<size_t>(place.at < last ? place.at / 4 % 2 : 0), DType::f32);
    };
  };
  const AllReduceReport one = report_of(alternating(40), 3, DType::f32),
                        same = report_of(alternating(40), 3, DType::f32),
                        other = report_of(alternating(36), 3, DType::f32);
  EXPECT_EQ(one.orders.at(0).elements, "0-3, 8-11, 16-19 and 2 more ranges");
  EXPECT_EQ(other.orders.at(0).elements, one.orders[0].elements);
  EXPECT_EQ(one.orders.at(1).elements, "4-7, 12-15, 20-23 and 2 more ranges");
  EXPECT_EQ(one.hash, same.hash);
  EXPECT_NE(one.hash, other.hash);
  EXPECT_NE(one.fingerprint, other.fingerprint);
  EXPECT_EQ(report_of(halves(DType::f32), 2, DType::f32, 1).find("orders of addition")->evidence,
            "masks and units in every element, 1 run");
}

TEST(AllReduceProbe, RefusesASingleDevice) { EXPECT_THROW(report_of(ring(DType::f32), 1, DType::f32), Error); }

}  // namespace
}  // namespace halfmark::accuracy::probe
