// Samples from a user's files, in place of drawn data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/tensor/random.h"
#include "kernels/tensor/shape.h"
#include "models/data.h"
#include "models/namespaces.h"

namespace halfmark::models {

// A file that was opened and whose samples cannot be read: a broken picture. No fault of the case that reads it.
class DataError : public Error {
 public:
  using Error::Error;
};

enum class Split : uint8_t {
  training,
  held_out,  // the files' own test or validation part; of text the last tenth
};

// What a record says about the data that it was measured on.
struct DataFacts {
  std::string kind;           // of files: "mnist", "cifar10", ...
  std::string name;           // of the folder or file, without the path to it
  std::string hash;           // 16 hexadecimal digits
  std::string hashed;         // what the hash is of: "contents", or "names and sizes"
  std::string normalisation;  // how bytes become the numbers that a model sees
  std::string unit;           // what is counted: "images", "characters"
  int64_t training = 0, held_out = 0;
};

class DataSet {
 public:
  DataSet() = default;
  virtual ~DataSet() = default;
  DataSet(const DataSet&) = delete;
  DataSet& operator=(const DataSet&) = delete;

  virtual const DataFacts& facts() const = 0;

  // What a subject must have, apart from its batch.
  struct Needs {
    std::vector<int64_t> sample;  // the extents of its input without the batch; empty: any
    int64_t classes = 0;          // at least
    std::string what;             // for messages: "images [1, 28, 28] of 10 classes"
  };
  // Of a subject of this kind of data and input. Throws Error where no sample of that shape can be made at all.
  virtual Needs needs(DataKind kind, const Shape& input) const = 0;

  // Below: for an input that fits.
  virtual int64_t samples(Split split, const Shape& input) const = 0;
  // Writes x, of one sample of `input`, and its labels, as many as one sample of target_shape has. Called by several
  // threads at once. Throws Error, naming the file, where one cannot be read.
  virtual void sample(Split split, int64_t index, const Shape& input, double* x, double* labels) const = 0;
};

// Training batch number `step`: input[0] samples of a sequence of epochs, each a permutation of all samples that depends
// on the key. A batch may hold the end of one epoch and the beginning of the next, so that no sample is left out.
// `own_thread`: reads in the calling thread alone and leaves the others to the computation. Throws DataError for a sample that
// cannot be read.
Batch training_batch(const DataSet& data, DataKind kind, const Shape& input, RandomKey key, int64_t step,
                     bool own_thread = false);

// `input[0]` held-out samples from place `first` of one permutation that depends on the key. Throws likewise.
Batch held_out_batch(const DataSet& data, DataKind kind, const Shape& input, RandomKey key, int64_t first);

}  // namespace halfmark::models
