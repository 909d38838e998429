// How devices add across each other: an element of an all-reduce is a sum of one number from each device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/namespaces.h"
#include "accuracy/probe/probe.h"
#include "kernels/tensor/all_reduce.h"

namespace halfmark::accuracy::probe {

// Elements `first` to `last` of a buffer.
struct ElementRange {
  int64_t first = 0, last = 0;
};
// Elements whose sums are added in one order.
struct EqualOrder {
  std::vector<ElementRange> ranges;
  int64_t count() const;
  std::string text() const;  // "0-255, 1024-1279 and 14 more ranges"
};

// A buffer on each device that is summed again and again.
class AllReduceRunner {
 public:
  // Throws Error unless there are two devices at least, of a group in this order.
  AllReduceRunner(std::span<const std::shared_ptr<Device>> devices, AllReduceGroup& group, DType dtype,
                  int64_t elements);
  size_t ranks() const { return devices_.size(); }
  DType dtype() const { return dtype_; }
  int64_t elements() const { return elements_; }

  // numbers[r] are those of rank r, as many as the buffer has elements. The codes that rank 0 gets.
  std::vector<uint64_t> codes(const std::vector<std::vector<double>>& numbers, ReduceOp op = ReduceOp::sum);
  // "rank 2 has 3F81 in element 17, rank 0 has 3F80": the first difference in any run. Empty: there was none.
  const std::string& difference() const { return difference_; }
  int64_t runs() const { return runs_; }

  // Seconds of one sum of the buffer, between events of rank 0: the median of several times. Nothing where the time of a
  // device means nothing, or the host takes too long to launch.
  std::optional<double> seconds();

  // The elements by the order of addition, from masks and units in every element at once (summation_tree.cpp): one run for
  // each pair of ranks.
  std::vector<EqualOrder> orders();

 private:
  std::vector<Device*> devices_;
  AllReduceGroup& group_;
  DType dtype_;
  int64_t elements_, runs_ = 0;
  std::string difference_;
};

// Questions to the sums in these elements: a holds a number from each rank.
BlackBox all_reduce_box(AllReduceRunner& runner, const EqualOrder& elements);

// What was found of elements that are added in one order.
struct OrderReport {
  std::string elements, order, evidence;  // "0-255", ranks in their order: "1-3, 0"
  int64_t count = 0;
  std::vector<Finding> findings;  // those that differ from the first report's
  size_t replayed = 0, replays = 0;
};

struct AllReduceReport {
  std::string devices, dtype, library;  // "cuda:0,cuda:1", "bf16", "NCCL 2.28.9"
  int64_t elements = 0;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<OrderReport> orders;
  std::vector<Finding> findings;
  std::string fingerprint, hash;  // of orders with all their elements, findings and answers to fixed questions

  const Finding* find(std::string_view parameter) const;
};
// Afterwards the group is not used again: the last question may be one that the library refuses.
AllReduceReport examine_all_reduce(std::span<const std::shared_ptr<Device>> devices, AllReduceGroup& group, DType dtype,
                                   int64_t elements, const Options& options);

}  // namespace halfmark::accuracy::probe
