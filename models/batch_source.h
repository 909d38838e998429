// The batches of a trial: drawn from its seed or read from files, and stored as its model and its loss take them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "models/data.h"
#include "models/files/read_ahead.h"
#include "models/namespaces.h"
#include "models/policy.h"
#include "models/trial_spec.h"

namespace halfmark::models {

// Held-out samples in batches that fit into memory, whatever the batch of the training. In evaluation mode no sample depends
// on another.
struct HeldOut {
  int64_t samples = 0;
  std::vector<Batch> batches{};
  std::vector<Shape> shapes{};  // of the input, one for each batch
};

class BatchSource {
 public:
  // `policy` is the spec's, with the settings that override it. Both must outlive this object.
  BatchSource(const TrialSpec& spec, const Policy& policy);
  ~BatchSource();

  // Training batch number `step`, of the subject's input shape.
  Batch training(int64_t step);
  // From now on, files are read by a thread; see Trial::read_ahead.
  void read_ahead();
  const ReadingTimes* reading_times() const;
  // As many samples as the files have, if that is fewer.
  HeldOut held_out(int64_t samples) const;

  // A batch of inputs of shape `given`.
  Tensor input(const Batch& batch, const Shape& given) const;
  // Its targets for a model that answers with a tensor of shape `result`.
  Tensor targets(const Batch& batch, const Shape& given, const Shape& result) const;
  // What the model and the loss take: indices as the kernels read them, all else as it is stored.
  Tensor given_to_model(const Tensor& stored) const;
  Tensor given_to_loss(const Tensor& stored) const;

  bool has_indices() const;  // as input
  Layout layout_of(const Shape& shape, DType dtype) const;

 private:
  DType target_dtype() const { return policy_of_layer(policy_, "loss").param; }  // of targets that are not labels
  Batch draw(std::string_view stream, int64_t number, const Shape& shape) const;
  Batch read(int64_t step);
  Batch changed(Batch drawn) const;
  Tensor one_hot(const std::vector<double>& classes, const Shape& result) const;

  const TrialSpec& spec_;
  const Policy& policy_;
  Device& device_;
  RandomKey key_;
  bool reads_ahead_ = false;
  std::unique_ptr<ReadAhead> ahead_;
};

}  // namespace halfmark::models
