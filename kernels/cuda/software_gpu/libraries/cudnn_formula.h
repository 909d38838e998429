// Graphs of several operations in the stand-in of cuDNN: convolutions forward, pointwise operations, reductions, products
// and reshapes of tensors with four axes. They are computed one after the other, each result rounded to the type of its tensor, so that a graph
// computes what it says and not what its author meant. Engines exist only for the graphs of attention, for
// pointwise operations, and for a convolution with bias and ReLU.
//
// Sources: backend API reference of cuDNN 9, "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR" and its neighbours. What
// has an engine was seen without a GPU for devices that are only described (cuDNN 9.19;
// ../../described_gpus compares it).
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_objects.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_problem.h"

namespace halfmark::kernels::software_gpu::cudnn {

struct FormulaTensor {
  int64_t id = 0, alignment = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<int64_t, 4> extents{}, strides{};
  bool is_virtual = false, by_value = false;  // virtual: without memory
};

enum class FormulaKind : uint8_t { convolution, pointwise, reduction, product, reshape };
struct FormulaStep {
  FormulaKind kind = FormulaKind::pointwise;
  int mode = 0;                                  // cudnnPointwiseMode_t or cudnnReduceTensorOp_t
  int64_t axis = 0;                              // of CUDNN_POINTWISE_GEN_INDEX
  bool keeps_nan = false;                        // of CUDNN_POINTWISE_RELU_FWD
  std::shared_ptr<const Problem> convolution{};  // without dtype
  std::vector<FormulaTensor> operands;
  FormulaTensor result;
};
using Formula = std::vector<FormulaStep>;

// In an order in which they can be computed, if every tensor without memory is the result of a step. BAD_PARAM: two steps
// have one result, or two tensors one id.
cudnnStatus_t make_formula(std::vector<FormulaStep> steps, Formula& formula);

std::vector<FormulaTensor> memory_of(const Formula& formula);  // each tensor with memory or a value once
// Whether it is attention in a form that has an engine on this GPU.
bool has_attention_engine(const Formula& formula, int architecture);
// Whether it is of pointwise operations alone, on images with the channels last.
bool has_pointwise_engine(const Formula& formula, int architecture);
// Whether it is a convolution and then a bias, ReLU or both.
bool has_fusion_engine(const Formula& formula, int architecture);
size_t attention_workspace(const Formula& formula);  // bytes

// The values of a tensor with memory, or of a number on the host, in the order of the axes; throws Fault.
std::vector<double> read_tensor(const FormulaTensor& tensor, const void* memory);
void write_tensor(const FormulaTensor& tensor, void* memory, const std::vector<double>& values);

// Throws Fault if an operand and a result, both packed, share memory.
void check_apart(const std::vector<FormulaTensor>& operands, const std::vector<FormulaTensor>& results,
                 const std::map<int64_t, void*>& pointers);

// How an engine computes.
struct FormulaEngine {
  bool is_faulty = false;  // with the faults that tests plant
  bool rounds_to_tf32 = false;
};
// As enqueued work; throws Fault. `pointers`: of memory_of(), by id.
void compute(const Formula& formula, const std::map<int64_t, void*>& pointers, const FormulaEngine& engine);

}  // namespace halfmark::kernels::software_gpu::cudnn
