// What a library plans on a GPU without the memory for a trial: the refusal lasts as long as the shortage. Needs a software
// GPU with little memory (software_gpu.cmake).
#include "kernels/cuda/kept_plans.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

class Shortage : public LibraryRows {
 protected:
  void SetUp() override {
    LibraryRows::SetUp();
    if (IsSkipped()) return;
    for (const auto& [key, value] : gpu().describe())
      if (key == "memory" && std::stoll(value) > int64_t{1} << 30) GTEST_SKIP() << "the GPU has too much memory";
  }
  // Takes all that is left.
  void fill() {
    for (int64_t bytes = 64 << 20; bytes >= 512; bytes /= 2) {
      try {
        for (;;) taken_.emplace_back(gpu(), Shape{bytes}, DType::u8);
      } catch (const Error&) {  // not so much
      }
    }
  }
  void give_back() { taken_.clear(); }

  // Of every library row: why it refuses, "takes it" if it does not.
  template <class Op>
  std::string answer(const std::string& name, const Op& op) {
    for (const Kernel<Op>& row : gpu().kernels().of<Op>())
      if (row.name == name) return row.refuses(gpu(), op).value_or("takes it");
    return "no such row";
  }
  template <class Op>
  void expect_refused_until_there_is_memory(const std::string& row, const Op& op) {
    SCOPED_TRACE(row + " " + std::string(Op::name));
    fill();
    const std::string said = answer(row, op);
    EXPECT_NE(said.find("out of memory"), said.npos) << said;
    EXPECT_EQ(answer(row, op), said) << "nothing has changed";
    give_back();
    EXPECT_EQ(answer(row, op), "takes it");
    fill();
    EXPECT_EQ(answer(row, op), "takes it") << "what was planned stays";
    give_back();
  }

 private:
  std::vector<Tensor> taken_;
};

TEST_F(Shortage, ARefusalLastsAsLongAsIt) {
  const auto zeros = [&](const Shape& shape, DType dtype) { return Tensor::zeros(gpu(), shape, dtype); };
  const Tensor a = zeros({512, 512}, DType::f32), b = zeros({512, 512}, DType::f32);
  Tensor product(gpu(), {512, 512}, DType::f32);
  expect_refused_until_there_is_memory("cublas", Matmul{.a = a, .b = b, .out = product});

  const Tensor none, x = zeros({1024, 256}, DType::f32), scale = zeros({256}, DType::f32);
  Tensor out(gpu(), x.shape(), DType::f32), mean(gpu(), {1024}, DType::f32), inverse(gpu(), {1024}, DType::f32);
  expect_refused_until_there_is_memory("cudnn", NormalizeRows{.x = x,
                                                              .scale = scale,
                                                              .shift = none,
                                                              .out = out,
                                                              .mean = mean,
                                                              .inverse = inverse,
                                                              .width = 256,
                                                              .centred = true});

  const Tensor q = zeros({2, 4, 64, 64}, DType::f16);
  Tensor attended(gpu(), q.shape(), DType::f16), log_sum(gpu(), {2, 4, 64}, DType::f32);
  expect_refused_until_there_is_memory(
      "cudnn", Attention{.q = q, .k = q, .v = q, .mask = none, .out = attended, .log_sum = log_sum, .scale = 0.125});
}

// A refusal of another kind is kept, however much memory there is.
TEST_F(Shortage, OtherRefusalsAreKept) {
  const Tensor a = Tensor::zeros(gpu(), {96, 96}, DType::f32);
  Tensor out(gpu(), {96, 96}, DType::f32);
  const Matmul product{.a = a, .b = a, .out = out};
  {
    const Planted planted("multiplies-fp32-as-tf32");
    EXPECT_EQ(answer("cublas", product), "does not multiply in fp32");
  }
  fill();
  give_back();
  EXPECT_EQ(answer("cublas", product), "does not multiply in fp32");
}

// The row of an operation is chosen once, until its choices are forgotten between cases.
TEST_F(Shortage, RunsTakeTheRowAgain) {
  const Tensor x = Tensor::from(gpu(), {300, 300}, DType::bf16, std::vector<double>(90000, 1));
  Tensor out(gpu(), {300, 300}, DType::bf16);
  const auto row = [&] {
    const KernelLog log;
    run(Matmul{.a = x, .b = x, .out = out});
    return log.entries().at(0).row;
  };
  const Planted planted("names-bf16-fp16");
  fill();
  const std::string first = row();
  EXPECT_NE(first, "cublaslt") << "which has no memory to try that its algorithms multiply bf16";
  give_back();
  EXPECT_EQ(row(), first);
  gpu().dispatch.reset();
  EXPECT_EQ(row(), "cublaslt");
}

}  // namespace
}  // namespace halfmark::kernels
