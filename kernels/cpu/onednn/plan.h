// Plans: a primitive, made once for each signature of an operation, and the call that brings its operands into the
// layouts the primitive wants. Files of rows describe an operation to oneDNN; everything about memory is here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/onednn/dnnl.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::onednn {

// ---- layouts
// -------------------------------------------------------------------------------------------------------------

DataType type_of(DType dtype);                       // throws Error for those oneDNN has not
Desc plain_desc(const Dims& dims, DataType type);    // row-major
Desc open_desc(const Shape& shape, DType dtype);     // the primitive chooses
Desc desc_of(const Tensor& tensor);                  // of a tensor that has memory
Dims filter_dims(const Shape& shape, int groups);    // [o, i, h, w], or [g, o / g, i, h, w]
Desc filter_desc(const Tensor& filter, int groups);  // plain and nhwc (ohwi) ones
Dims dims_of(const Shape& shape);
bool same_memory(const Desc& a, const Desc& b);  // the same elements at the same places
Desc like(const Desc& desc, const Dims& dims,
          DataType type);  // other extents in the same layout; nhwc where it has no name

// Gives an open tensor the layout; plain and nhwc are called by their names.
void materialize_as(Tensor& tensor, const Desc& desc);

// The layout an elementwise operation works in: that of the first operand which is not plain.
Desc common_desc(const Tensor& a, const Tensor& b);

// The layouts in which oneDNN may be fast for images that have come plain, best first.
std::vector<Desc> image_layouts(const Tensor& image);

// Code that oneDNN keeps for completeness: several times to a hundred times slower than its other code.
bool is_reference(const std::string& implementation);

// ---- what the rows refuse
// ------------------------------------------------------------------------------------------------

Refusal refuses_dtype(DType dtype);  // no fp64, no fp8; bf16 and fp16 only where the CPU computes in them
Refusal refuses_math(const Math& math, DType operand);  // fp32 accumulation, products of the operands as they are

// ---- plans
// ---------------------------------------------------------------------------------------------------------------

struct Plan {
  dnnl::primitive primitive;
  std::string implementation;
  Desc scratch;
  Desc x, w, y,
      workspace;  // what the primitive wants: source, weights (second source), result or its gradient, workspace
};

dnnl::primitive_attr attributes();  // the scratch memory is ours, so that it is counted

// primitive_desc -> plan; the layouts are left to the caller.
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

// The refusal of a row that takes whatever oneDNN makes a primitive for.
template <Operation Op>
Refusal refuses_plan(const Op& op, Plan (*make)(const Op&)) {
  try {
    plan_for(op, make);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// One execution. Operands in other layouts than wanted are reordered, results are put where they belong after run().
class Call {
 public:
  Call(Device& device, const Plan& plan) : device_(device), plan_(plan) {}

  void in(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted);
  void in(int argument, const Tensor& tensor, const Desc& wanted) { in(argument, tensor, desc_of(tensor), wanted); }
  // As in(), and the reordered copy is kept until the tensor is written or gone.
  void packed(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted);
  void vector(int argument, const Tensor& tensor);                                // [c] read as fp32
  void out(int argument, Tensor& tensor, const Desc& given, const Desc& wanted);  // of a tensor that has memory
  void out(int argument, Tensor& tensor, const Desc& wanted);  // or of one that takes the wanted layout
  void vector_out(int argument, Tensor& tensor);               // [c] written as fp32, rounded once to its dtype
  void run();

 private:
  struct Late {  // a result that lies in a buffer until the primitive has run
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

// target <- source in another layout; counted, and a line of the kernel log.
void reorder(const Desc& given, const void* source, const Desc& wanted, void* target, DType dtype);

// The same without log and count: for looking at a tensor.
void reorder_quietly(const Desc& given, const void* source, const Desc& wanted, void* target);
void count_reorder();

}  // namespace halfmark::kernels::onednn
