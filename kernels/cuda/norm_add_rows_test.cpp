// A norm and an addition in one kernel, before a norm and after its gradient: the bits of the two operations, and no other operation
// where the rows fit registers.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

class NormAddRows : public LibraryRows {
 protected:
  Tensor drawn(const Shape& shape, DType dtype, uint64_t seed) {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(seed).normal(i);
    return Tensor::from(gpu(), shape, dtype, values);
  }
};

struct Form {
  int64_t rows, width;
  DType x, dy;
  bool in_registers;  // one kernel
};

TEST_F(NormAddRows, HaveTheBitsOfANormAndAnAddition) {
  using enum DType;
  const Form forms[] = {{5, 768, f32, bf16, true},  {5, 768, f32, f16, true},    {9, 40, f32, f32, true},
                        {9, 40, f16, f16, true},    {3, 1024, bf16, bf16, true}, {4, 24, f64, f64, true},
                        {2, 4096, f32, bf16, true}, {3, 7, f32, f32, false},     {3, 8, f16, f32, false}};
  for (const Form& form : forms)
    for (const bool centred : {true, false}) {
      const std::string name = std::to_string(form.width) + " " + std::string(name_of(form.x)) + " " +
                               std::string(name_of(form.dy)) + (centred ? " centred" : "");
      const Shape shape{form.rows, form.width}, entries{form.width}, rows{form.rows};
      const DType wide = form.x == f64 ? f64 : f32;
      const Tensor x = drawn(shape, form.x, 1), dy = drawn(shape, form.dy, 2), addend = drawn(shape, form.x, 3),
                   scale = drawn(entries, wide, 4), mean = centred ? drawn(rows, wide, 5) : Tensor(),
                   inverse = drawn(rows, wide, 6);
      const auto results = [&](bool together, KernelLog& log) {
        Tensor dx(gpu(), shape, form.x), out(gpu(), shape, form.x), dscale(gpu(), entries, wide),
            dshift = centred ? Tensor(gpu(), entries, wide) : Tensor();
        const NormalizeRowsBackwardAdd op{.x = x,
                                          .dy = dy,
                                          .addend = addend,
                                          .scale = scale,
                                          .mean = mean,
                                          .inverse = inverse,
                                          .out = out,
                                          .dscale = dscale,
                                          .dshift = dshift,
                                          .width = form.width,
                                          .centred = centred};
        log.clear();
        if (together)
          run(op);
        else
          run(op.norm(dx)), run(Add{.a = dx, .b = addend, .out = out});
        std::vector<std::vector<unsigned char>> codes{out.codes(), dscale.codes()};
        if (centred) codes.push_back(dshift.codes());
        return codes;
      };
      KernelLog log;
      const auto apart = results(false, log), together = results(true, log);
      EXPECT_EQ(together, apart) << name;
      EXPECT_EQ(log.entries().size() == 1, form.in_registers) << name;
      EXPECT_EQ(log.entries().back().operation, NormalizeRowsBackwardAdd::name) << name;
      EXPECT_EQ(log.entries().back().row, "cuda") << name;
    }
}

struct SumForm {
  int64_t rows, width;
  DType a, b, sum, out;
  bool in_registers;  // one kernel
  DType parameters = DType::f32;
};

TEST_F(NormAddRows, SumBranchesBeforeTheNormWithTheBitsOfAnAddition) {
  using enum DType;
  const SumForm forms[] = {{5, 768, bf16, f32, f32, bf16, true},
                           {5, 768, f32, bf16, f32, bf16, true},
                           {5, 768, f16, f32, f32, f16, true},
                           {9, 40, f32, f16, f32, f32, true},
                           {9, 40, f32, f32, f32, bf16, true},
                           {9, 40, f32, f32, f32, f32, true},
                           {7, 40, f16, f16, f16, f16, true},
                           {3, 1024, bf16, bf16, bf16, bf16, true},
                           {3, 1024, bf16, bf16, bf16, bf16, true, bf16},
                           {4, 24, f64, f64, f64, f64, true, f64},
                           {2, 4096, bf16, f32, f32, bf16, true},
                           {1, 8192, bf16, bf16, bf16, bf16, true},
                           {3, 7, f32, f32, f32, f32, false},
                           {3, 8, f16, bf16, f16, f16, false},
                           {3, 8, f16, f32, f32, bf16, false},
                           {3, 8, f32, f32, f32, f64, false}};
  for (const SumForm& form : forms)
    for (const bool centred : {true, false}) {
      const std::string name = std::to_string(form.width) + " " + std::string(name_of(form.a)) + " " +
                               std::string(name_of(form.b)) + " " + std::string(name_of(form.out)) +
                               (centred ? " centred" : "");
      const Shape shape{form.rows, form.width}, entries{form.width}, rows{form.rows};
      const DType wide = form.sum == f64 ? f64 : f32;
      const Tensor a = drawn(shape, form.a, 1), b = drawn(shape, form.b, 2), scale = drawn(entries, form.parameters, 4),
                   shift = centred ? drawn(entries, form.parameters, 5) : Tensor();
      const auto results = [&](bool together, KernelLog& log) {
        Tensor sum(gpu(), shape, form.sum), out(gpu(), shape, form.out), inverse(gpu(), rows, wide),
            mean = centred ? Tensor(gpu(), rows, wide) : Tensor();
        const AddNormalizeRows op{.a = a,
                                  .b = b,
                                  .scale = scale,
                                  .shift = shift,
                                  .sum = sum,
                                  .out = out,
                                  .mean = mean,
                                  .inverse = inverse,
                                  .width = form.width,
                                  .centred = centred};
        log.clear();
        if (together)
          run(op);
        else
          run(op.add()), run(op.norm(sum));
        std::vector<std::vector<unsigned char>> codes{sum.codes(), out.codes(), inverse.codes()};
        if (centred) codes.push_back(mean.codes());
        return codes;
      };
      KernelLog log;
      const auto apart = results(false, log), together = results(true, log);
      EXPECT_EQ(together, apart) << name;
      EXPECT_EQ(log.entries().size() == 1, form.in_registers) << name;
      EXPECT_EQ(log.entries().back().operation, AddNormalizeRows::name) << name;
      EXPECT_EQ(log.entries().back().row, "cuda") << name;
    }
}

// One of the operands begins four bytes behind a boundary of 16: the kernel reads packs, so another one has to run.
TEST_F(NormAddRows, HaveTheBitsOfAnAdditionWhereverTheirOperandsBegin) {
  const Shape shape{4, 40}, rows{4}, entries{40};
  const auto shifted = [&](const Tensor& values, bool moves) {
    const int64_t count = shape.elements();
    Tensor memory(gpu(), {count + 4}, DType::f32);
    Tensor own = memory.slice(moves ? 1 : 0, count).reshaped(shape);
    run(Cast{.x = values, .out = own});
    return own;
  };
  const Tensor scale = drawn(entries, DType::f32, 4), shift = drawn(entries, DType::f32, 5);
  const auto results = [&](int moved, bool together, KernelLog& log) {
    const Tensor a = shifted(drawn(shape, DType::f32, 1), moved == 0),
                 b = shifted(drawn(shape, DType::f32, 2), moved == 1);
    Tensor sum = shifted(Tensor::zeros(gpu(), shape, DType::f32), moved == 2),
           out = shifted(Tensor::zeros(gpu(), shape, DType::f32), moved == 3), inverse(gpu(), rows, DType::f32),
           mean(gpu(), rows, DType::f32);
    const AddNormalizeRows op{.a = a,
                              .b = b,
                              .scale = scale,
                              .shift = shift,
                              .sum = sum,
                              .out = out,
                              .mean = mean,
                              .inverse = inverse,
                              .width = 40,
                              .epsilon = 1e-2};
    log.clear();
    if (together)
      run(op);
    else
      run(op.add()), run(op.norm(sum));
    return std::vector{sum.codes(), out.codes(), inverse.codes(), mean.codes()};
  };
  KernelLog log;
  for (int moved = 0; moved <= 4; ++moved) {
    EXPECT_EQ(results(moved, true, log), results(moved, false, log)) << moved;
    results(moved, true, log);
    EXPECT_EQ(log.entries().size() == 1, moved == 4) << moved << ": of operand " << moved;
  }
}

}  // namespace
}  // namespace halfmark::kernels
