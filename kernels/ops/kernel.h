// A kernel is a row: a name, whether its time is meaningful, when and why it refuses, and what it does. A device offers
// an ordered list of rows for each operation; the first that does not refuse runs.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

enum class Speed : uint8_t { real, emulated };  // emulated: its time says nothing about the arithmetic it emulates
std::string_view name_of(Speed speed);

// Whether a row gives the same bits every time on one machine with one number of threads.
// by_construction: each element is computed by one thread in a fixed order, whatever the other threads do.
enum class Repeats : uint8_t { unproved, by_construction };

using Refusal = std::optional<std::string>;  // empty = supports the operation, else why not

template <class Op>
struct Kernel {
  std::string_view name;
  Speed speed;
  // Depends only on shapes, dtypes, layouts and attributes, never on values, because the answer is cached.
  Refusal (*refuses)(const Device&, const Op&);
  // May materialise outputs of layout `any` here, in the layout that suits the row.
  void (*run)(Device&, const Op&);
  Repeats repeats = Repeats::unproved;
  bool flushes_subnormals = false;  // a result that is subnormal in its format may be zero of the same sign
  // May round once more, to the dtype of the result, between a product and what follows: the sum with a bias, another
  // product.
  bool rounds_between = false;
  // What a library chose for an operation that the row supports, for the record: "32x48x64: algorithm 3 ...". Or null.
  std::string (*choice)(const Device&, const Op&) = nullptr;
};

// Everything except the values that distinguishes two calls of one operation: the key for cached choices, plans and
// packed weights.
class Signature {
 public:
  Signature() { words_.reserve(48); }  // enough for the longest operation: one allocation per call
  void add(int64_t word) {
    words_.push_back(word);
    hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 29;
  }
  void add(const Tensor& tensor);
  void add(const Format& format) { add(format.key()); }
  uint64_t hash() const { return hash_; }
  friend bool operator==(const Signature& a, const Signature& b) { return a.hash_ == b.hash_ && a.words_ == b.words_; }

 private:
  std::vector<int64_t> words_;
  uint64_t hash_ = 0x243F6A8885A308D3u;
};

struct SignatureHash {
  size_t operator()(const Signature& signature) const { return signature.hash(); }
};

// An operation is a struct with a name, a check of its shapes, and visit(v), which shows every member once:
// v.input(name, tensor), v.output(name, tensor) and v.attribute(name, value). Absent operands are empty tensors.
template <class Op>
concept Operation = requires(const Op& op) {
  { Op::name } -> std::convertible_to<std::string_view>;
  op.check();
};

// What ran, for the record. Every run(op) in this thread is logged here while the object exists.
struct LoggedKernel {
  std::string operation, phase, dtypes, row;
  Speed speed = Speed::real;
  uint64_t calls = 0;
  std::vector<std::string> refusals;  // "row: reason"
  // Bytes of the operands of all calls, each counted once in each direction that it goes. What a row moves besides, by
  // operations of its own too, and what a cache saves, is not in it.
  uint64_t read = 0, written = 0;
  std::map<std::string, double> flops{};  // of products, by their type (product_work.h); otherwise as the bytes
  std::vector<std::string> choices{};     // Kernel::choice, of each different operation
};

class KernelLog {
 public:
  KernelLog();
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;
  std::vector<LoggedKernel> entries() const;  // in order of first use
  bool any_emulated() const;
  // Whether both logs hold the same calls: the same choices of rows for operations of equal shapes, dtypes and
  // attributes, in the same phases, equally often. The trials must have run on one device.
  bool has_same_calls(const KernelLog& other) const;
  void clear() { counts_.clear(); }

 private:
  friend struct Dispatch;
  static void count(const void* choice, const LoggedKernel& what);  // in every log of this thread
  struct Count {
    const void* choice;
    std::string_view phase;
    bool nested;  // called by the row of another operation
    uint64_t calls;
    LoggedKernel what;
  };
  mutable std::vector<Count> counts_;  // a const log records too
  KernelLog* outer_;
};

// While this object exists a row runs: operations that start now are its own.
class RowScope {
 public:
  RowScope();
  ~RowScope();
  static bool is_inside();  // in this thread
  RowScope(const RowScope&) = delete;
  RowScope& operator=(const RowScope&) = delete;
};

// Whether every operation that ran in this thread while the object exists repeats by construction; also those that are
// not logged.
class RepeatsWatch {
 public:
  RepeatsWatch();
  ~RepeatsWatch();
  RepeatsWatch(const RepeatsWatch&) = delete;
  RepeatsWatch& operator=(const RepeatsWatch&) = delete;
  bool all_repeat() const { return all_; }

 private:
  friend struct Dispatch;
  static void see(Repeats repeats);
  bool all_ = true;
  RepeatsWatch* outer_;
};

// While this object exists nothing is logged: an oracle's or fp64 reference's operations do not belong to the trial.
class LogPause {
 public:
  LogPause();
  ~LogPause();
  LogPause(const LogPause&) = delete;
  LogPause& operator=(const LogPause&) = delete;

 private:
  KernelLog* paused_;
};

// Names the phase in the log: "forward", "backward", "optimizer", ... The text must outlive the log (a literal).
class PhaseScope {
 public:
  explicit PhaseScope(std::string_view phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  std::string_view outer_;
};

}  // namespace halfmark::kernels
