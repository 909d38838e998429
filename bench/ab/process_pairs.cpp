#include "bench/ab/process_pairs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

using Clock = std::chrono::steady_clock;

void shuffle(std::vector<size_t>& order, std::mt19937_64& random) {
  // std::shuffle may give different orders in different standard libraries.
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

// `count` random cores of this process; empty, which means all cores, if count is 0 or not smaller than their number.
std::vector<int> some_cores(int count, std::mt19937_64& random) {
  std::vector<int> cores = own_cores();
  if (count <= 0 || static_cast<size_t>(count) >= cores.size()) return {};
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) std::swap(cores[i], cores[i + random() % (cores.size() - i)]);
  cores.resize(static_cast<size_t>(count));
  return cores;
}

}  // namespace

ProcessSample ProcessPairs::ask(SamplerProcess& process, size_t index, bool is_a) {
  try {
    ProcessSample sample = process.ask(options_.ids[index]);
    if (!sample.reason.empty()) throw CaseLost(index, is_a, sample.reason);
    if (shared_pages_.empty()) shared_pages_ = sample.shared_pages;
    return sample;
  } catch (const ProcessLost& loss) {
    throw CaseLost(index, is_a, loss.what());
  }
}

// The time of a is the median over its slices. The time of b is
// this median times the median of the ratios of adjacent slices.
ProcessPairs::Asked ProcessPairs::ask_both(SamplerProcess& a, SamplerProcess& b, size_t index, bool a_first) {
  std::vector<double> of_a, ratios;
  double stolen[2] = {}, wall[2] = {};
  for (int slice = 0; slice < options_.slices; ++slice) {
    double seconds[2] = {};
    const bool first_is_a = a_first == (slice % 2 == 0);
    for (const bool is_a : {first_is_a, !first_is_a}) {
      const ProcessSample sample = ask(is_a ? a : b, index, is_a);
      seconds[is_a] = sample.seconds;
      stolen[is_a] += sample.stolen, wall[is_a] += sample.wall;
    }
    of_a.push_back(seconds[true]);
    ratios.push_back(seconds[false] / seconds[true]);
  }
  const double middle = median(std::move(of_a));
  return {{middle, middle * median(std::move(ratios))},
          stolen[0] > kStolenShare * wall[0] || stolen[1] > kStolenShare * wall[1]};
}

const std::vector<std::string>& ProcessPairs::command(bool of_a, size_t pair) const {
  const auto& layouts = of_a ? options_.layouts_a : options_.layouts_b;
  if (!layouts.empty()) return layouts[pair % layouts.size()];
  return of_a ? options_.command_a : options_.command_b;
}

ProcessPairs::Answers ProcessPairs::one_pair(size_t pair, const std::vector<size_t>& order,
                                             const std::map<size_t, bool>& a_first, const std::vector<int>& cores,
                                             std::map<size_t, int>& may_repeat) {
  Answers answers;
  const auto start = [&](bool a) {
    return std::make_unique<SamplerProcess>(command(a, pair), options_.timeout, cores);
  };
  const bool first_is_a = a_first.at(order.front());
  if (!options_.side_by_side) {
    for (const bool a : {first_is_a, !first_is_a}) {
      const auto process = start(a);
      for (const size_t i : order) (a ? answers[i].a : answers[i].b) = ask(*process, i, a).seconds;
    }
    return answers;
  }
  auto first = start(first_is_a), second = start(!first_is_a);
  SamplerProcess &process_a = first_is_a ? *first : *second, &process_b = first_is_a ? *second : *first;
  for (const size_t i : order)
    while (true) {
      const Asked asked = ask_both(process_a, process_b, i, a_first.at(i));
      answers[i] = asked.pair;
      if (!asked.disturbed) break;
      if (may_repeat[i]-- <= 0) {
        ++disturbed_;
        break;
      }
      ++repeated_;
    }
  return answers;
}

std::vector<ProcessPairs::Trouble> ProcessPairs::rehearse() {
  std::vector<Trouble> found;
  for (const bool of_a : {true, false}) {
    std::unique_ptr<SamplerProcess> process;
    for (size_t i = 0; i < options_.ids.size(); ++i) {
      if (!process)
        process = std::make_unique<SamplerProcess>(of_a ? options_.command_a : options_.command_b, options_.timeout);
      ProcessSample sample;
      try {
        sample = process->ask(options_.ids[i]);
      } catch (const ProcessLost& loss) {
        sample.reason = loss.what();
        process.reset();
      }
      if (sample.reason.empty()) continue;
      auto known = std::find_if(found.begin(), found.end(), [&](const Trouble& one) { return one.index == i; });
      if (known == found.end()) known = found.insert(found.end(), {i, true, "", ""});
      known->refused = known->refused && sample.refused;
      (of_a ? known->in_a : known->in_b) = sample.reason;
    }
  }
  for (Trouble& one : found) one.refused = one.refused && !one.in_a.empty() && !one.in_b.empty();
  return found;
}

std::vector<std::vector<Pair>> ProcessPairs::measure(std::span<const size_t> cases, int pairs) {
  ++stage_;
  std::mt19937_64 random(options_.seed * 1000 + stage_);
  std::map<size_t, std::vector<bool>> a_first;
  std::map<size_t, int> may_repeat;
  for (const size_t i : cases) {
    a_first[i] = balanced_order(pairs, random());
    may_repeat[i] = static_cast<int>(kMostRepeated * pairs);
  }
  std::vector<size_t> order(cases.begin(), cases.end());
  std::map<size_t, std::vector<Pair>> found;
  const auto begin = Clock::now();
  for (int pair = 0; pair < pairs; ++pair) {
    const double spent = std::chrono::duration<double>(Clock::now() - begin).count();
    options_.progress({pair, pairs, cases.size(), pair ? spent / pair * (pairs - pair) : NAN});
    shuffle(order, random);
    std::map<size_t, bool> first;
    for (const size_t i : order) first[i] = a_first.at(i)[static_cast<size_t>(pair)];
    for (const auto& [i, both] :
         one_pair(static_cast<size_t>(pair), order, first, some_cores(options_.cores, random), may_repeat))
      found[i].push_back(both);
  }
  std::vector<std::vector<Pair>> result;
  for (const size_t i : cases) result.push_back(std::move(found[i]));
  return result;
}

}  // namespace halfmark::bench
