// Runs the memory rules of a network's layers forward and backward, as a trial runs the layers: which tensors are there at
// each moment. For memory_prediction.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/tensor/memory.h"
#include "models/namespaces.h"
#include "models/network/layer_memory.h"
#include "models/network/network.h"
#include "models/policy.h"
#include "models/subject.h"

namespace halfmark::models {

// What is there now by purpose, and the split at the largest total so far.
class MemoryTotal {
 public:
  void add(Purpose purpose, size_t bytes) {
    now_.total += bytes, now_.by_purpose[static_cast<size_t>(purpose)] += bytes;
    moment({});
  }
  void remove(Purpose purpose, size_t bytes) {
    now_.total -= bytes, now_.by_purpose[static_cast<size_t>(purpose)] -= bytes;
  }
  // Everything that is there, and for a moment these temporary tensors.
  void moment(const StoredTensors& temporary) {
    size_t more = 0;
    for (const StoredTensor& one : temporary) more += one.bytes();
    if (now_.total + more <= peak_.total) return;
    peak_ = now_;
    peak_.total += more, peak_.by_purpose[static_cast<size_t>(Purpose::temporary)] += more;
  }
  const MemoryUse& now() const { return now_; }
  const MemoryUse& peak() const { return peak_; }

 private:
  MemoryUse now_, peak_;
};

// A tensor that lives as long as someone holds it.
class HeldTensor {
 public:
  HeldTensor(MemoryTotal& total, Purpose purpose, StoredTensor form) : total_(total), purpose_(purpose), form_(form) {
    total_.add(purpose_, form_.bytes());
  }
  ~HeldTensor() { total_.remove(purpose_, form_.bytes()); }
  HeldTensor(const HeldTensor&) = delete;
  HeldTensor& operator=(const HeldTensor&) = delete;

  DType dtype() const { return form_.dtype; }
  // A temporary tensor that is kept is a saved one. The bytes that this adds to those saved.
  size_t keep() {
    if (purpose_ != Purpose::temporary) return 0;
    total_.remove(purpose_, form_.bytes());
    purpose_ = Purpose::saved;
    total_.add(purpose_, form_.bytes());
    return form_.bytes();
  }

 private:
  MemoryTotal& total_;
  Purpose purpose_;
  StoredTensor form_;
};
using HeldTensorPtr = std::shared_ptr<HeldTensor>;

// Copies of weights, by name and dtype.
using WeightCasts = std::map<std::pair<std::string, DType>, HeldTensorPtr>;

struct KeptByForward {      // by one layer, for backward
  LayerMemory memory = {};  // of one without branches
  std::vector<HeldTensorPtr> tensors = {};
  int64_t elements = 0;                    // of the input
  DType given = DType::f32;                // of the input
  DType before_cast = DType::f32;          // of the input, before layer_input()
  std::vector<StoredTensor> results = {};  // of branches
};

// Runs the rules of a network's layers forward and backward.
class MemoryWalk {
 public:
  MemoryWalk(const Subject& subject, const Policy& policy, MemoryTotal& total);

  HeldTensorPtr fresh(int64_t elements, DType dtype) {
    return std::make_shared<HeldTensor>(total_, Purpose::temporary, StoredTensor{elements, dtype});
  }
  // x itself if it has the dtype.
  HeldTensorPtr cast(const HeldTensorPtr& x, int64_t elements, DType dtype) {
    return x->dtype() == dtype ? x : fresh(elements, dtype);
  }

  // `shape` becomes that of the result.
  HeldTensorPtr forward(const std::vector<LayerSpec>& layers, HeldTensorPtr x, Shape& shape, WeightCasts& casts,
                        bool keeps);
  // Takes what forward has kept, the last first. Empty: indices have no gradient.
  HeldTensorPtr backward(const std::vector<LayerSpec>& layers, const HeldTensorPtr& gradient, const Shape& input);

  LayerMemory memory_of(const LayerSpec& spec, const Shape& input, DType given) const;
  LayerMemory memory_of(const LayerSpec& spec, const Shape& input, const Shape& output, DType given) const;
  const std::vector<LayerFacts>& facts() const { return facts_; }
  const Shape& output_of(const LayerSpec& spec) const { return outputs_.at(&spec); }
  std::map<const LayerSpec*, size_t>& bytes_kept() { return bytes_kept_; }

 private:
  HeldTensorPtr forward(const LayerSpec& spec, const HeldTensorPtr& given, const Shape& input, WeightCasts& casts,
                        bool keeps);
  HeldTensorPtr layer_input(const HeldTensorPtr& x, int64_t elements);  // as Pass::layer_input

  // The widest of the dtypes of the branches; copies into one tensor are made one after the other.
  HeldTensorPtr join(const LayerSpec& spec, const HeldTensorPtr& x, const Shape& input, WeightCasts& casts, bool keeps,
                     bool copies);

  HeldTensorPtr backward(const LayerSpec& spec, const HeldTensorPtr& dy, const Shape& input);

  // The branches from the last to the first, and the sum of their gradients.
  HeldTensorPtr split(const LayerSpec& spec, const HeldTensorPtr& dy, const Shape& input, bool copies);

  // With the result of a side branch: their sum, or both one after the other.
  HeldTensorPtr join_waiting(const LayerSpec& spec, const HeldTensorPtr& given, const Shape& input, bool keeps);
  HeldTensorPtr split_waiting(const LayerSpec& spec, const HeldTensorPtr& dy);

  struct Waiting {
    HeldTensorPtr tensor;
    int64_t elements;
  };
  Waiting collect(const std::string& name);

  KeptByForward take();

  const Policy& policy_;
  MemoryTotal& total_;
  std::vector<LayerFacts> facts_;
  std::map<const LayerSpec*, Shape> outputs_;
  std::map<std::string, const LayerSpec*> layers_;  // by name
  std::map<std::string, Waiting> waiting_;          // results of side branches, or their gradients
  std::vector<KeptByForward> kept_;
  std::map<const LayerSpec*, size_t> bytes_kept_;
  std::map<std::string, int> gradients_;  // how many layers have given one in this step
};

}  // namespace halfmark::models
