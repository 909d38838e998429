// One forward pass of a network under a policy, in training and in evaluation mode, compared with the same pass in fp64.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// A tensor or a running statistic of one layer in one mode.
struct TensorError {
  std::string layer{};      // "conv1", "loss"
  std::string what{};       // "output", "running_variance"
  bool evaluation = false;  // else of training mode
  // Root of the NMSE to fp64, of at most kCompared elements at equal distances; infinite if any element is not finite.
  double error = 0;
  // Shares of all elements; `zeroed` and `subnormal` of those that are not zero and not subnormal in fp64.
  double nonfinite = 0, zeroed = 0, subnormal = 0;
  double largest = 0;  // |x| in fp64
};
inline constexpr size_t kCompared = 4096;

struct PassErrors {
  // Roots of NMSE to fp64 over all elements: of the output in training mode, and in evaluation mode with the running
  // statistics of that one step. A value that is not finite is an infinite error.
  double training = 0, evaluation = 0;
  // |loss - loss in fp64| / max(|loss in fp64|, root mean square of the output in fp64); 0 for a subject without labels.
  double loss = 0;
  std::vector<TensorError> tensors;                    // in the order in which they were computed
  std::vector<std::vector<unsigned char>> codes = {};  // of both outputs and the loss, to compare bits

  double largest() const;
  const TensorError* worst_of(std::string_view layer) const;  // null: no tensor of it is known
};

class PassComparison {
 public:
  // Runs the fp64 reference on batch 0.
  explicit PassComparison(TrialSpec spec);
  PassErrors under(const Policy& policy);
  int passes() const { return passes_; }  // with that of the reference

 private:
  struct Values {
    std::vector<double> training, evaluation;
    double loss = 0;
    std::map<std::string, std::vector<double>> compared;  // by place
    std::map<std::string, double> largest, zero, subnormal;
  };
  TrialSpec spec_;
  Values reference_;
  int passes_ = 0;
};

// "fp16" with layers of its own: fp16+precision=LAYERS; the policy itself for no text.
const Policy& with_precision(const Policy& policy, const std::string& layers);

}  // namespace halfmark::accuracy
