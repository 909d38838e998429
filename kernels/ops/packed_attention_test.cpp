// Attention of q, k and v in one memory: the numbers of attention on copies, its wrong operands, and what it counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/packed_attention_testing.h"
#include "kernels/ops/product_work.h"

namespace halfmark::kernels {
namespace {

TEST(PackedAttention, TheSeparateRowsHaveTheBitsOfAttentionOnCopies) {
  for (const char* name : {"cpu", "sim:hopper"}) {
    const std::shared_ptr<Device> device = open_device(name);
    for (const PackedCase& one : packed_cases())
      EXPECT_EQ(expect_bits_of_attention_on_copies(*device, one), 2) << name << " " << one.text();
  }
}

// Each operand is counted once, and the copies of the row are none of the operation's.
TEST(PackedAttention, CountsItsOperandsOnceAndTheWorkOfAttention) {
  const std::shared_ptr<Device> device = open_device("cpu");
  const PackedCase form{2, 6, 3, 8, DType::f32, true, 'n'};
  const PackedSample sample(*device, form);
  Tensor out(*device, sample.out.shape(), form.dtype), log_sum(*device, sample.log_sum.shape(), DType::f32),
      dqkv(*device, sample.qkv.shape(), form.dtype);
  const KernelLog log;
  run(sample.forward(out, log_sum)), run(sample.backward(dqkv));
  const uint64_t values = 2 * 6 * 3 * 8, bytes = 4 * values, sums = 4 * 2 * 3 * 6;
  const double pairs = 2.0 * 3 * 6 * 6 * 8;
  uint64_t read = 0, written = 0, copies = 0;
  double flops = 0;
  for (const LoggedKernel& one : log.entries()) {
    read += one.read, written += one.written;
    for (const auto& [type, count] : one.flops) flops += count;
    if (one.operation == "permute") copies += one.calls;
  }
  EXPECT_EQ(read, 3 * bytes + (3 * bytes + bytes + sums + bytes));
  EXPECT_EQ(written, bytes + sums + 3 * bytes);
  EXPECT_EQ(copies, 6u) << "qkv and the result; qkv, out, dout and the gradient";
  EXPECT_EQ(flops, 2 * 2 * pairs + 4 * 2 * pairs);
  EXPECT_EQ(product_work(sample.backward(dqkv)).type, "f32");
}

TEST(PackedAttention, WrongOperandsAreNamed) {
  const std::shared_ptr<Device> device = open_device("cpu");
  const auto tensor = [&](const Shape& shape) { return Tensor::zeros(*device, shape, DType::f32); };
  const Tensor good = tensor({2, 5, 3, 4, 6}), none;
  const auto message = [&](const Tensor& qkv, const Tensor& mask, Tensor out, Tensor sums, bool backward) {
    try {
      Tensor dqkv = tensor(good.shape());
      const Tensor kept = out;
      if (backward)
        run(PackedAttentionBackward{
            .qkv = qkv, .mask = mask, .out = kept, .log_sum = sums, .dout = kept, .dqkv = dqkv});
      else
        run(PackedAttention{.qkv = qkv, .mask = mask, .out = out, .log_sum = sums});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  for (const bool backward : {false, true}) {
    const std::string name = backward ? "packed_attention_backward: " : "packed_attention: ";
    EXPECT_EQ(message(good, none, tensor({2, 5, 4, 6}), tensor({2, 4, 5}), backward), "none");
    EXPECT_EQ(message(tensor({2, 5, 2, 4, 6}), none, tensor({2, 5, 4, 6}), tensor({2, 4, 5}), backward),
              name + "qkv must be [n, t, 3, heads, d] with at least one position, not [2, 5, 2, 4, 6]");
    EXPECT_EQ(message(good, none, tensor({2, 4, 5, 6}), tensor({2, 4, 5}), backward),
              name + "out must be [n, t, heads, d], not [2, 4, 5, 6]");
    EXPECT_EQ(message(good, none, tensor({2, 5, 4, 6}), tensor({2, 5, 4}), backward),
              name + "log_sum must be [n, heads, t]");
    EXPECT_NE(
        message(good, tensor({2, 1, 6}), tensor({2, 5, 4, 6}), tensor({2, 4, 5}), backward).find("the mask must be"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace halfmark::kernels
