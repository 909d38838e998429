// Questions as elements of a buffer that is summed across devices; which elements are added in one order.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/probe/all_reduce.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {

int64_t EqualOrder::count() const {
  int64_t all = 0;
  for (const ElementRange& range : ranges) all += range.last - range.first + 1;
  return all;
}

std::string EqualOrder::text() const {
  constexpr size_t kMost = 3;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(ranges.size(), kMost); ++i)
    parts.push_back(ranges[i].first == ranges[i].last ? fmt::format("{}", ranges[i].first)
                                                      : fmt::format("{}-{}", ranges[i].first, ranges[i].last));
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (ranges.size() > kMost) text += fmt::format(" and {} more ranges", ranges.size() - kMost);
  return text;
}

AllReduceRunner::AllReduceRunner(std::span<const std::shared_ptr<Device>> devices, AllReduceGroup& group, DType dtype,
                                 int64_t elements)
    : group_(group), dtype_(dtype), elements_(elements) {
  HM_CHECK(devices.size() >= 2, "a sum across devices needs at least two of them");
  HM_CHECK(elements >= 1, "a buffer to be summed needs an element");
  for (const std::shared_ptr<Device>& device : devices) devices_.push_back(device.get());
}

std::vector<uint64_t> AllReduceRunner::codes(const std::vector<std::vector<double>>& numbers, ReduceOp op) {
  std::vector<Tensor> in, out;
  for (size_t r = 0; r < ranks(); ++r) {
    in.push_back(Tensor::from(*devices_[r], {elements_}, dtype_, numbers[r]));
    out.push_back(Tensor(*devices_[r], {elements_}, dtype_));
  }
  group_.run(in, out, op);
  group_.wait();
  ++runs_;
  std::vector<uint64_t> all(static_cast<size_t>(elements_));
  const std::vector<unsigned char> bytes = out[0].codes();
  for (size_t i = 0; i < all.size(); ++i) all[i] = load_code(dtype_, bytes.data(), i);
  for (size_t r = 1; r < ranks() && difference_.empty(); ++r) {
    const std::vector<unsigned char> other = out[r].codes();
    const auto at = static_cast<size_t>(std::mismatch(bytes.begin(), bytes.end(), other.begin()).first - bytes.begin());
    if (at == bytes.size()) continue;
    const size_t i = at / size_of(dtype_), digits = static_cast<size_t>(bits_of(dtype_)) / 4;
    difference_ = fmt::format("rank {} has {:0{}X} in element {}, rank 0 has {:0{}X}", r,
                              load_code(dtype_, other.data(), i), digits, i, all[i], digits);
  }
  return all;
}

std::optional<double> AllReduceRunner::seconds() {
  constexpr int kTimes = 11, kRuns = 10;
  std::vector<Tensor> in, out;
  for (Device* device : devices_) {
    // A CPU makes no sums across devices: what adds there is a test.
    if (!device->numerics().empty() || device->name() == "cpu") return {};
    in.push_back(Tensor::from(*device, {elements_}, dtype_, std::vector<double>(static_cast<size_t>(elements_), 1)));
    out.push_back(Tensor(*device, {elements_}, dtype_));
  }
  const auto work = [&] {
    for (int i = 0; i < kRuns; ++i) group_.run(in, out, ReduceOp::sum);
  };
  // Without the time of launches: the pause before it is lengthened until the host has enqueued all of it meanwhile.
  const auto time_with = [&](double pause) { return group_.time_after_pause(pause, work); };
  constexpr double kLongest = 0.1;
  double pause = 1e-3;
  while (!time_with(pause))
    if ((pause *= 10) > kLongest) return {};
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) {
    const std::optional<double> time = time_with(pause);
    if (!time) return {};
    times.push_back(*time / kRuns);
  }
  std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
  return times[kTimes / 2];
}

std::vector<EqualOrder> AllReduceRunner::orders() {
  const Format& format = format_of(dtype_);
  // As far apart as possible: 2^60 and 2^-40 suffice for every adder of up to 64 bits. The unit is a normal number.
  const double mask = std::ldexp(1.0, std::min(60, format.max_exponent() - 1)),
               unit = std::ldexp(1.0, std::max(-40, format.min_exponent()));
  const auto count = static_cast<size_t>(elements_);
  std::vector<std::vector<double>> numbers(ranks(), std::vector<double>(count, unit));
  std::vector<size_t> kinds(count, 0);
  for (size_t i = 0; i < ranks(); ++i)
    for (size_t j = i + 1; j < ranks(); ++j) {
      std::fill(numbers[i].begin(), numbers[i].end(), mask), std::fill(numbers[j].begin(), numbers[j].end(), -mask);
      const std::vector<uint64_t> answers = codes(numbers);
      std::fill(numbers[i].begin(), numbers[i].end(), unit), std::fill(numbers[j].begin(), numbers[j].end(), unit);
      // Elements stay of one kind while all their answers are equal.
      std::map<std::pair<size_t, uint64_t>, size_t> split;
      for (size_t e = 0; e < count; ++e)
        kinds[e] = split.try_emplace({kinds[e], answers[e]}, split.size()).first->second;
    }
  std::vector<EqualOrder> all;
  for (size_t e = 0; e < count; ++e) {
    if (kinds[e] >= all.size()) all.resize(kinds[e] + 1);  // kinds are numbered by their first element
    std::vector<ElementRange>& ranges = all[kinds[e]].ranges;
    const auto at = static_cast<int64_t>(e);
    if (!ranges.empty() && ranges.back().last == at - 1)
      ranges.back().last = at;
    else
      ranges.push_back({at, at});
  }
  return all;
}

BlackBox all_reduce_box(AllReduceRunner& runner, const EqualOrder& elements) {
  const Format& format = format_of(runner.dtype());
  BlackBox box{fmt::format("{} devices", runner.ranks()),
               fmt::format("{0}>{0}", name_of(runner.dtype())),
               fmt::format("all-reduce of {} elements", runner.elements()),
               format,
               kOne,
               format,
               format,
               runner.dtype(),
               false,
               runner.ranks(),
               {}};
  box.terms_only = true;
  box.answers = [&runner, elements](std::span<const Question> questions) {
    std::vector<uint64_t> codes;
    const auto size = static_cast<size_t>(runner.elements());
    std::vector<std::vector<double>> numbers(runner.ranks(), std::vector<double>(size, 0.0));
    while (codes.size() < questions.size()) {
      std::vector<size_t> places;
      for (const ElementRange& range : elements.ranges)
        for (int64_t e = range.first; e <= range.last && codes.size() + places.size() < questions.size(); ++e) {
          const Question& question = questions[codes.size() + places.size()];
          places.push_back(static_cast<size_t>(e));
          for (size_t r = 0; r < numbers.size(); ++r) numbers[r][places.back()] = question.a[r];
        }
      const std::vector<uint64_t> all = runner.codes(numbers);
      for (const size_t place : places) codes.push_back(all[place]);
    }
    return codes;
  };
  return box;
}

}  // namespace halfmark::accuracy::probe
