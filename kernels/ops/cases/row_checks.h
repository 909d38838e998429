// Runs one row of a device on cases and collects its errors as sentences: results that differ from fp64, writes outside
// a tensor, changed inputs, exceptions. For any device; included only by tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/ops/cases/cases.h"
#include "kernels/tensor/guard_bytes.h"

namespace halfmark::kernels::ops_cases {

struct Operand {
  std::string_view name;
  Tensor tensor;  // shares the memory, also memory that a row allocates for an output
  bool output;
  std::vector<unsigned char> bytes = {};  // its memory before the run
};

struct OperandVisitor {
  std::vector<Operand>& operands;
  void input(std::string_view name, const Tensor& tensor) { add(name, tensor, false); }
  void output(std::string_view name, const Tensor& tensor) { add(name, tensor, true); }
  void attribute(const auto&) {}
  void add(std::string_view name, const Tensor& tensor, bool output) {
    if (!tensor.empty()) operands.push_back({name, tensor, output});
  }
};

// One case without the type of its operation, so that the code below is compiled once.
struct CaseUnderTest {
  std::function<void()> check;
  std::function<Refusal()> refuses;
  std::function<std::vector<Operand>()> operands;
  std::function<void()> run;
};

class Findings {
 public:
  Findings(Device& device, std::string row, bool flushes_subnormals)
      : device_(device), row_(std::move(row)), flushes_subnormals_(flushes_subnormals), guard_(device) {}

  void run(const std::string& name, const CaseUnderTest& one, const Comparison& compare);

  int taken() const { return taken_; }
  const std::set<std::string>& refusals() const { return refusals_; }
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  void add(const std::string& name, const std::string& what) { findings_.push_back(row_ + ", " + name + ": " + what); }
  void look_at_inputs(const std::string& name, const std::vector<Operand>& operands,
                      const std::map<uint64_t, std::vector<double>>& outputs);
  void look_at_padding(const std::string& name, const std::vector<Operand>& operands);

  Device& device_;
  std::string row_;
  bool flushes_subnormals_;
  GuardBytes guard_;
  int taken_ = 0;
  std::set<std::string> refusals_;
  std::vector<std::string> findings_;
};

template <Operation Op>
class RowUnderTest : public Findings {
 public:
  RowUnderTest(Device& device, const Kernel<Op>& row)
      : Findings(device, std::string(Op::name) + ", row " + std::string(row.name), row.flushes_subnormals),
        device_(device),
        row_(row) {}

  // Runs every case that the row does not refuse. Returns no findings if everything is correct.
  void run_all(const Axes& axes, bool strict) {
    Cases<Op>::each(
        {device_, axes, strict, true, row_.rounds_between},
        [this](const std::string& name, const Op& op, const Comparison& compare) { run_case(name, op, compare); });
  }

  void run_case(const std::string& name, const Op& op, const Comparison& compare) {
    run(name,
        {.check = [&] { op.check(); },
         .refuses = [&] { return row_.refuses(device_, op); },
         .operands =
             [&] {
               std::vector<Operand> operands;
               op.visit(OperandVisitor{operands});
               return operands;
             },
         .run = [&] { run_with(row_, op); }},
        compare);
  }

 private:
  Device& device_;
  const Kernel<Op>& row_;
};

}  // namespace halfmark::kernels::ops_cases
