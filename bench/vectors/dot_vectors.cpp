#include "bench/vectors/dot_vectors.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/vectors/csv.h"
#include "bench/vectors/hex_digits.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::bench {
namespace {

constexpr size_t kBatch = size_t{1} << 20;  // codes of one operand per call of the device

// tf32 operands are stored as f32.
DType dot_dtype(std::string_view option, const std::string& name) {
  if (name == kTf32.name) return DType::f32;
  for (const DType dtype : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2, DType::e2m1, DType::f64})
    if (name_of(dtype) == name) return dtype;
  throw Error(fmt::format("--{} {}: operands are f16, bf16, tf32, e4m3, e5m2, e2m1 or f64", option, name));
}

DType sum_dtype(std::string_view option, const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64})
    if (name_of(dtype) == name) return dtype;
  throw Error(fmt::format("--{} {}: sums are f32, f16 or f64", option, name));
}

// Scales are unsigned: ue4m3 is stored as e4m3, and ue8m0 is e8m0.
DType scale_dtype(const std::string& name) {
  if (name == "ue8m0") return DType::e8m0;
  if (name == "ue4m3") return DType::e4m3;
  throw Error(fmt::format("--scale-type {}: scales are ue8m0 or ue4m3", name));
}

// One column of a batch, converted to a tensor.
class Column {
 public:
  Column(Device& device, DType dtype) : device_(device), dtype_(dtype) {}
  void read(const CsvReader& rows, size_t field) {
    rows.hex_list(field, hex_digits(dtype_), row_);
    codes_.insert(codes_.end(), row_.begin(), row_.end());
  }
  size_t size() const { return codes_.size(); }
  void clear() { codes_.clear(); }
  DType dtype() const { return dtype_; }

  Tensor tensor(const Shape& shape) const {
    std::vector<unsigned char> bytes(bytes_for(dtype_, codes_.size()));
    for (size_t i = 0; i < codes_.size(); ++i) store_code(dtype_, bytes.data(), i, codes_[i]);
    Tensor tensor(device_, shape, dtype_);
    tensor.set_codes(bytes);
    return tensor;
  }

 private:
  Device& device_;
  DType dtype_;
  std::vector<uint64_t> codes_, row_;
};

class DotBatch {
 public:
  DotBatch(Device& device, const DotQuestion& question)
      : device_(device),
        question_(question),
        scaled_(!question.scale_type.empty()),
        a_(device, dot_dtype("a", question.a)),
        b_(device, dot_dtype("b", question.b)),
        c_(device, sum_dtype("c", question.c)),
        scale_a_(device, scaled_ ? scale_dtype(question.scale_type) : DType::e8m0),
        scale_b_(device, scale_a_.dtype()),
        result_(sum_dtype("d", question.d)) {
    if (scaled_ != (question.scale_block > 0)) throw Error("--scale-type and --scale-block go together");
  }

  std::vector<std::string> columns() const {
    if (scaled_) return {"a", "b", "c", "scale_a", "scale_b"};
    return {"a", "b", "c"};
  }

  // Adds a row. If its K differs from the previous rows, these are answered first.
  void add(const CsvReader& rows, Answers& answers) {
    const size_t k = rows.field(0).size() / static_cast<size_t>(hex_digits(a_.dtype()));
    if (k != k_ || a_.size() >= kBatch) flush(answers);
    k_ = k;
    if (k == 0) rows.fail(0, "contains no operand");
    const size_t before = a_.size();
    a_.read(rows, 0), b_.read(rows, 1), c_.read(rows, 2);
    if (b_.size() != a_.size())
      rows.fail(
          1, fmt::format("contains {} operands, but column 'a' contains {}", b_.size() - before, a_.size() - before));
    if (c_.size() != ++rows_) rows.fail(2, "must contain one number");
    if (question_.instruction != MatrixInstruction::usual) {
      const auto depth = static_cast<size_t>(depth_of(question_.instruction));
      if (k % depth != 0)
        rows.fail(
            0, fmt::format("contains {} operands, not a multiple of the K of {}", k, name_of(question_.instruction)));
    }
    if (!scaled_) return;
    const auto block = static_cast<size_t>(question_.scale_block);
    if (k % block != 0)
      rows.fail(0, fmt::format("contains {} operands, not a multiple of the scale block of {}", k, block));
    const size_t scales = scale_a_.size();
    scale_a_.read(rows, 3), scale_b_.read(rows, 4);
    for (const auto& [column, field] : {std::pair{&scale_a_, size_t{3}}, std::pair{&scale_b_, size_t{4}}})
      if (column->size() != scales + k / block) rows.fail(field, fmt::format("must contain {} scales", k / block));
  }

  void flush(Answers& answers) {
    if (rows_ == 0) return;
    const auto n = static_cast<int64_t>(rows_), k = static_cast<int64_t>(k_);
    Tensor scale_a, scale_b;
    if (scaled_) scale_a = scale_a_.tensor({n, k / question_.scale_block}), scale_b = scale_b_.tensor(scale_a.shape());
    const Tensor a = a_.tensor({n, k}), b = b_.tensor({n, k}), c = c_.tensor({n});
    Tensor d(device_, {n}, result_);
    run(DotProducts{.a = a,
                    .b = b,
                    .scale_a = scale_a,
                    .scale_b = scale_b,
                    .c = c,
                    .out = d,
                    .instruction = question_.instruction});
    const std::vector<unsigned char> codes = d.codes();
    for (size_t i = 0; i < rows_; ++i) {
      answers.hex(load_code(result_, codes.data(), i), hex_digits(result_));
      answers.end_row();
    }
    for (Column* column : {&a_, &b_, &c_, &scale_a_, &scale_b_}) column->clear();
    rows_ = 0;
  }

 private:
  Device& device_;
  const DotQuestion& question_;
  bool scaled_;
  Column a_, b_, c_, scale_a_, scale_b_;
  DType result_;
  size_t rows_ = 0, k_ = 0;
};

}  // namespace

void answer_dots(std::istream& in, std::ostream& out, Device& device, const DotQuestion& question) {
  DotBatch batch(device, question);
  CsvReader rows(in, batch.columns());
  Answers answers(out);
  answers.text("d\n");
  while (rows.next()) batch.add(rows, answers);
  batch.flush(answers);
  answers.finish();
}

}  // namespace halfmark::bench
