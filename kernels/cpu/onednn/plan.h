// Plans: a primitive, created once per signature of an operation, and the call that converts its operands to the
// primitive's layouts. The files of rows describe an operation to oneDNN; all memory handling is here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/onednn/dnnl.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::onednn {

DataType type_of(DType dtype);                       // throws Error for dtypes that oneDNN lacks
Desc plain_desc(const Dims& dims, DataType type);    // row-major
Desc open_desc(const Shape& shape, DType dtype);     // the primitive chooses
Desc desc_of(const Tensor& tensor);                  // for a tensor that has memory
Dims filter_dims(const Shape& shape, int groups);    // [o, i, h, w], or [g, o / g, i, h, w]
Desc filter_desc(const Tensor& filter, int groups);  // layouts plain and nhwc (ohwi)
Dims dims_of(const Shape& shape);
bool same_memory(const Desc& a, const Desc& b);  // the same elements at the same addresses
Desc like(const Desc& desc, const Dims& dims,
          DataType type);  // other extents in the same layout; nhwc if it has no name

// Gives a tensor without memory the layout; plain and nhwc by their own names.
void materialize_as(Tensor& tensor, const Desc& desc);

// The layout that an elementwise operation works in: that of the first operand that is not plain.
Desc common_desc(const Tensor& a, const Tensor& b);

// The layouts in which oneDNN may be fast for plain images, best first.
std::vector<Desc> image_layouts(const Tensor& image);

// Code that oneDNN has for completeness: several times to a hundred times slower than its other code.
bool is_reference(const std::string& implementation);

Refusal refuses_dtype(DType dtype);  // no fp64, no fp8; bf16 and fp16 only if the CPU computes in them
Refusal refuses_math(const Math& math, DType operand);  // fp32 accumulation, products of the operands as stored

struct Plan {
  dnnl::primitive primitive;
  std::string implementation;
  Desc scratch;
  Desc x, w, y,
      workspace;  // layouts the primitive needs: source, weights (second source), result or its gradient, workspace
};

dnnl::primitive_attr attributes();  // halfmark provides the scratch memory, so that it is counted

// primitive_desc -> plan; the caller sets the layouts.
template <class Primitive>
Plan plan_of(const typename Primitive::primitive_desc& description) {
  Plan plan;
  plan.primitive = Primitive(description);
  plan.implementation = description.impl_info_str();
  plan.scratch = description.scratchpad_desc();
  return plan;
}

const Plan* find_plan(const Signature& signature);
const Plan& keep_plan(const Signature& signature, Plan plan);
Signature plan_signature(Signature signature, std::string_view operation);

template <Operation Op>
const Plan& plan_for(const Op& op, Plan (*make)(const Op&)) {
  const Signature signature = plan_signature(signature_of(op), Op::name);
  if (const Plan* plan = find_plan(signature)) return *plan;
  return keep_plan(signature, checked("no primitive", [&] { return make(op); }));
}

// The refusal of a row that supports everything for which oneDNN can create a primitive.
template <Operation Op>
Refusal refuses_plan(const Op& op, Plan (*make)(const Op&)) {
  try {
    plan_for(op, make);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// One execution. Operands in other layouts are reordered; results are copied to their tensors after run().
class Call {
 public:
  Call(Device& device, const Plan& plan) : device_(device), plan_(plan) {}

  void in(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted);
  // The same for a primitive that sees the memory of `wanted` as `seen`: an image as the matrix of its pixels.
  void in(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted, const Desc& seen);
  void in(int argument, const Tensor& tensor, const Desc& wanted) { in(argument, tensor, desc_of(tensor), wanted); }
  // As in(), and the reordered copy is kept until the tensor is written or released.
  void packed(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted);
  void vector(int argument, const Tensor& tensor);                                // [c] read as fp32
  void out(int argument, Tensor& tensor, const Desc& given, const Desc& wanted);  // for a tensor that has memory
  void out(int argument, Tensor& tensor, const Desc& wanted);  // or for one that takes the needed layout
  void vector_out(int argument, Tensor& tensor);               // [c] written as fp32, rounded once to its dtype
  void run();

 private:
  struct Late {  // a result in a buffer until the primitive has run
    Tensor tensor;
    Desc given, wanted;
    Tensor buffer;
    bool vector;
  };
  void bind(int argument, const Desc& desc, const void* memory);
  Tensor buffer(size_t bytes);

  Device& device_;
  const Plan& plan_;
  Arguments arguments_;
  std::vector<Tensor> buffers_;
  std::vector<Late> late_;
};

// target <- source in another layout; counted and logged.
void reorder(const Desc& given, const void* source, const Desc& wanted, void* target, DType dtype);

// The same without log and count: for inspecting a tensor.
void reorder_quietly(const Desc& given, const void* source, const Desc& wanted, void* target);
void count_reorder();

}  // namespace halfmark::kernels::onednn
