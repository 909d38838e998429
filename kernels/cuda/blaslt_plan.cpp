#include "kernels/cuda/blaslt_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/blaslt_scratch.h"
#include "kernels/cuda/hardware.h"
#include "kernels/cuda/kept_plans.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // NVIDIA's recommendation for Hopper; the most a heuristic may request
constexpr int kCandidates = 8;

// cublasLt's objects by value; destroyed with the plan.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  ~Owned() {
    if (handle) destroy(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  HM_CUBLAS(cublasLtMatmulDescSetAttribute(desc.handle, attribute, &value, sizeof value));
}
template <class T>
void set(const MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  HM_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout.handle, attribute, &value, sizeof value));
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  HM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value));
}
// 0 for an attribute that an algorithm does not have.
template <class T>
T configured(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, nullptr);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

struct Candidate {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
  uint64_t flags = 0;
  int place = 0;  // in the library's order, from 1
};

class Plan final : public BlasltPlan {
 public:
  Plan(CudaDevice& device, const BlasltProblem& problem) : problem_(problem) {
    try {
      prepare(device);
    } catch (const Error& error) {
      throw_if_lost(device, error);
      refusal_ = std::string("failed: ") + error.what();
    }
  }

  void run(const CudaDevice& device, const BlasltPointers& pointers, void* workspace) const override {
    check(launch(device, pointers, algorithm_, workspace, workspace_), "cublasLtMatmul");
  }

 private:
  void prepare(CudaDevice& device) {
    describe();
    Trial trial(device);
    const std::optional<BlasltScratch> scratch = scratch_in(device, trial);
    // The heuristic wants to know that these exist and how they are aligned, and does not read them.
    void* any = this;
    set_pointers(scratch ? scratch->pointers()
                         : BlasltPointers{.scale_a = any, .scale_b = any, .bias = any, .aux = any});
    std::string refusal;
    for (const uint64_t mask : implementation_masks(problem_.arithmetic)) {
      int listed = 0;
      const std::vector<Candidate> found = candidates(device, mask, listed);
      if (scratch && !found.empty())
        choose(device, found, listed, trial, *scratch);
      else if (!found.empty())
        take_untried(found, listed);
      if (!choice_.empty()) return;
      if (refusal.empty() || listed > 0) refusal = refusal_;
      if (listed > 0) others_ = "; nothing of an earlier request could be used";
    }
    refusal_ = refusal;
    wait_for(device);  // the reason may be a fault
  }

  // Without memory for another set of operands: the first that needs no proof.
  void take_untried(const std::vector<Candidate>& found, int listed) {
    for (const Candidate& candidate : found) {
      if (must_prove_range(problem_.arithmetic, candidate.flags))
        refusal_ = "has no memory to try an algorithm that may multiply bf16 as fp16";
      else if (must_prove_tf32(problem_.arithmetic, candidate.flags))
        refusal_ = "has no memory to try an algorithm that may multiply in fp32 and not in tf32";
      else
        return refusal_.clear(), take(candidate, ", not tried: " + untried_, listed);
    }
  }

  void take(const Candidate& candidate, const std::string& tried, int listed) {
    algorithm_ = candidate.algorithm, workspace_ = candidate.workspace;
    choice_ = text_of(candidate, listed) + tried;
  }

  void describe() {
    HM_CUBLAS(cublasLtMatmulDescCreate(&desc_.handle, problem_.arithmetic.compute, problem_.arithmetic.scale));
    set<int32_t>(desc_, CUBLASLT_MATMUL_DESC_TRANSA, problem_.b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    set<int32_t>(desc_, CUBLASLT_MATMUL_DESC_TRANSB, problem_.a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (problem_.fast_accumulate) set<int8_t>(desc_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1);
    if (problem_.device_factor) set<int32_t>(desc_, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    if (problem_.mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) {
      set<int32_t>(desc_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, problem_.mode_b);
      set<int32_t>(desc_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, problem_.mode_a);
    }
    if (problem_.epilogue != CUBLASLT_EPILOGUE_DEFAULT) describe_epilogue();
    describe(a_, problem_.b), describe(b_, problem_.a), describe(out_, problem_.out);
  }

  // The rows of `out` are the library's columns, so its vectors along rows have an entry for each column of `out`.
  void describe_epilogue() const {
    set<uint32_t>(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, problem_.epilogue);
    if (problem_.bias_bytes) set<int32_t>(desc_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, blaslt_type(problem_.bias_type));
    if (problem_.aux_bytes) set<int64_t>(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem_.aux_ld);
  }

  // A row-major matrix is its own transpose by columns.
  void describe(MatrixLayout& layout, const BlasltProblem::Matrix& matrix) const {
    HM_CUBLAS(cublasLtMatrixLayoutCreate(&layout.handle, blaslt_type(matrix.dtype),
                                         static_cast<uint64_t>(matrix.columns), static_cast<uint64_t>(matrix.rows),
                                         matrix.columns));
    if (problem_.batch == 1) return;
    set<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(problem_.batch));
    set<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.rows * matrix.columns);
  }

  void set_pointers(const BlasltPointers& pointers) const {
    if (problem_.bias_bytes) set<const void*>(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
    if (problem_.aux_bytes) set<const void*>(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointers.aux);
    if (problem_.scale_bytes_b) set<const void*>(desc_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointers.scale_b);
    if (problem_.scale_bytes_a) set<const void*>(desc_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointers.scale_a);
  }

  // Nothing if there is not enough memory for another set of operands.
  std::optional<BlasltScratch> scratch_in(CudaDevice& device, Trial& trial) {
    try {
      return std::optional<BlasltScratch>(std::in_place, device, trial, problem_);
    } catch (const Error& error) {
      throw_if_lost(device, error);
      untried_ = error.what();
      return {};
    }
  }

  // What the library lists under the mask; the mask is a request, so every algorithm is checked as well.
  std::vector<Candidate> candidates(CudaDevice& device, uint64_t mask, int& listed) {
    Preference preference;
    HM_CUBLAS(cublasLtMatmulPreferenceCreate(&preference.handle));
    set<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    set<uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, problem_.arithmetic.reductions);
    set<uint64_t>(preference, CUBLASLT_MATMUL_PREF_IMPL_MASK, mask);
    set<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem_.b.alignment);
    set<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem_.a.alignment);
    set<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem_.out.alignment);
    set<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem_.out.alignment);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(device.blaslt(), desc_.handle, a_.handle, b_.handle, out_.handle, out_.handle,
                                       preference.handle, kCandidates, results.data(), &listed);
    if (status != CUBLAS_STATUS_SUCCESS || listed == 0) {
      refusal_ =
          "has no algorithm with this arithmetic (cublasLtMatmulAlgoGetHeuristic: " +
          std::string(cublasLtGetStatusString(status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status)) +
          ")";
      return {};
    }
    std::vector<Candidate> kept;
    for (int i = 0; i < listed; ++i) {
      const auto& result = results[static_cast<size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS) {
        refusal_ = std::string("has no algorithm for this (") + cublasLtGetStatusString(result.state) + ")";
        continue;
      }
      Candidate candidate{result.algo, result.workspaceSize, 0, i + 1};
      if (std::string reason = why_not(device, candidate); reason.empty())
        kept.push_back(candidate);
      else
        refusal_ = std::move(reason);
    }
    if (!kept.empty()) refusal_.clear();
    return kept;
  }

  // Nothing, and a word in the choice, if the library does not tell.
  template <class T>
  std::optional<T> capability(const Candidate& candidate, cublasLtMatmulAlgoCapAttributes_t attribute) {
    T value{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCapGetAttribute(&candidate.algorithm, attribute, &value, sizeof value, nullptr);
    if (status == CUBLAS_STATUS_SUCCESS) return value;
    others_ += "; number " + std::to_string(candidate.place) + " failed to state what it can (" +
               "cublasLtMatmulAlgoCapGetAttribute: " + cublasLtGetStatusString(status) + ")";
    return std::nullopt;
  }

  std::string why_not(CudaDevice& device, Candidate& candidate) {
    const BlasltArithmetic& arithmetic = problem_.arithmetic;
    const std::optional<uint64_t> flags = capability<uint64_t>(candidate, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS);
    if (!flags) return "lists an algorithm that failed to state its arithmetic (cublasLtMatmulAlgoCapGetAttribute)";
    candidate.flags = *flags;
    if (const std::string broken = broken_promise(arithmetic, *flags); !broken.empty())
      return "lists an algorithm with other arithmetic than it was asked for (" + text_of_flags(*flags) + ")";
    if (arithmetic.split_k > 1)
      if (std::string reason = split(device, candidate); !reason.empty()) return reason;
    const auto splits = configured<int32_t>(candidate.algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    const auto reduction = configured<uint32_t>(candidate.algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    if (reduction & ~arithmetic.reductions || (splits > 1 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE))
      return "lists an algorithm that keeps partial sums in another format";
    return {};
  }

  // Sets split-K of an algorithm that can.
  std::string split(CudaDevice& device, Candidate& candidate) {
    const int32_t wanted = problem_.arithmetic.split_k;
    const uint32_t scheme = problem_.arithmetic.reductions;
    cublasLtMatmulAlgo_t& algorithm = candidate.algorithm;
    if (!capability<int32_t>(candidate, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT).value_or(0) ||
        !(capability<uint32_t>(candidate, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK).value_or(0) & scheme))
      return "has no algorithm that splits these sums";
    HM_CUBLAS(
        cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &wanted, sizeof wanted));
    HM_CUBLAS(cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                   sizeof scheme));
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(device.blaslt(), desc_.handle, a_.handle, b_.handle,
                                                          out_.handle, out_.handle, &algorithm, &result);
    const std::string cannot = "does not split these sums into " + std::to_string(wanted);
    if (status != CUBLAS_STATUS_SUCCESS)
      return cannot + ": cublasLtMatmulAlgoCheck: " + cublasLtGetStatusString(status);
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspace) return cannot;
    if (configured<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) != wanted)
      return "has no algorithm that keeps split_k " + std::to_string(wanted);
    candidate.workspace = result.workspaceSize;
    return {};
  }

  void choose(CudaDevice& device, const std::vector<Candidate>& found, int listed, Trial& trial,
              const BlasltScratch& scratch) {
    size_t most = 0;
    for (const Candidate& candidate : found) most = std::max(most, candidate.workspace);
    void* workspace = most ? trial.memory(most, 0) : nullptr;
    const Candidate* best = nullptr;
    double fastest = 0;
    int ran = 0;
    for (const Candidate& candidate : found) {
      const auto status_of = [&] {
        return launch(device, scratch.pointers(), candidate.algorithm, workspace, candidate.workspace);
      };
      const auto multiply = [&] { check(status_of(), "cublasLtMatmul"); };
      const cublasStatus_t status = status_of();
      wait_for(device);  // a fault of the device is no refusal
      if (status == CUBLAS_STATUS_ALLOC_FAILED) device.note_shortage();
      if (status != CUBLAS_STATUS_SUCCESS) {
        refusal_ = std::string("failed when it was tried: cublasLtMatmul: ") + cublasLtGetStatusString(status);
        others_ += "; number " + std::to_string(candidate.place) + " " + refusal_;
        continue;
      }
      if (must_prove_range(problem_.arithmetic, candidate.flags) && !scratch.has_range()) {
        refusal_ = "lists an algorithm that multiplies bf16 as fp16 (" + text_of_flags(candidate.flags) + ")";
        others_ += "; number " + std::to_string(candidate.place) + " multiplies bf16 as fp16";
        continue;
      }
      if (must_prove_tf32(problem_.arithmetic, candidate.flags) && !scratch.rounds_to_tf32(multiply)) {
        refusal_ =
            "lists an algorithm that multiplies in fp32 and not in tf32 (" + text_of_flags(candidate.flags) + ")";
        others_ += "; number " + std::to_string(candidate.place) + " multiplies in fp32";
        continue;
      }
      ++ran;
      const bool timed = hardware_compares_times() && found.size() > 1;
      const double seconds = timed ? seconds_on_random_numbers(trial, scratch, multiply) : 0;
      if (!best || (timed && seconds < kClearlyFaster * fastest)) best = &candidate, fastest = seconds;
      if (!timed || (ran == 1 && fastest < kWorthComparing)) break;  // the library's first that runs
    }
    if (!best) return;
    const auto multiply = [&] {
      check(launch(device, scratch.pointers(), best->algorithm, workspace, best->workspace), "cublasLtMatmul");
    };
    if (mask_passes_zero(device, scratch, multiply)) {
      refusal_ = "keeps a mask of ReLU that lets the gradient pass where the sum is 0";
      return;
    }
    refusal_.clear();
    const bool compared = ran > 1;
    const std::string tried = compared ? ", the fastest of " + std::to_string(ran) + " tried" : std::string();
    take(*best, tried + others_ + about_nan(scratch, multiply), listed);
  }

  // The next algorithm is tried on the constants again.
  static double seconds_on_random_numbers(Trial& trial, const BlasltScratch& scratch,
                                          const std::function<void()>& multiply) {
    scratch.set_random();
    const double seconds = trial.seconds(multiply);
    scratch.set_constants();
    return seconds;
  }

  // The gradient of ReLU is 0 at 0. cublasLt.h does not say what the mask has there; on an H200 cublasLt 13.1 has 1.
  bool mask_passes_zero(CudaDevice& device, const BlasltScratch& scratch, const std::function<void()>& multiply) const {
    if ((problem_.epilogue & CUBLASLT_EPILOGUE_RELU_AUX) != CUBLASLT_EPILOGUE_RELU_AUX) return false;
    scratch.fill_a(0);
    multiply();
    unsigned char mask = 0;
    device.copy_out(&mask, scratch.pointers().aux, 1);
    return (mask & 1) != 0;
  }

  // cublasLt.h says of ReLU only "x:=max(x, 0)", which may lose a NaN.
  std::string about_nan(const BlasltScratch& scratch, const std::function<void()>& multiply) const {
    if (!(problem_.epilogue & CUBLASLT_EPILOGUE_RELU)) return {};
    scratch.fill_a(0xFF);
    multiply();
    return std::isnan(scratch.first_result()) ? "; ReLU of NaN is NaN" : "; ReLU of NaN is 0";
  }

  std::string text_of(const Candidate& candidate, int listed) const {
    const cublasLtMatmulAlgo_t& algorithm = candidate.algorithm;
    const auto number = [&]<class T>(T, const char* name, cublasLtMatmulAlgoConfigAttributes_t attribute) {
      const T value = configured<T>(algorithm, attribute);
      return value ? std::string(", ") + name + " " + std::to_string(value) : std::string();
    };
    const int64_t m = problem_.out.rows, n = problem_.out.columns,
                  k = problem_.a.transpose ? problem_.a.rows : problem_.a.columns;
    std::string text = problem_.batch == 1 ? "" : std::to_string(problem_.batch) + " of ";
    text += std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + ": algorithm " +
            std::to_string(configured<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID));
    text += number(uint32_t{}, "tile", CUBLASLT_ALGO_CONFIG_TILE_ID);
    text += number(uint32_t{}, "stages", CUBLASLT_ALGO_CONFIG_STAGES_ID);
    text += number(uint16_t{}, "inner shape", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
    text += number(uint16_t{}, "cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
    text += number(uint32_t{}, "swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
    text += number(uint32_t{}, "option", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
    text += number(int32_t{}, "split-K", CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    text += number(uint32_t{}, "reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return text + " (" + text_of_flags(candidate.flags) + "); the library's number " + std::to_string(candidate.place) +
           " of " + std::to_string(listed);
  }

  cublasStatus_t launch(const CudaDevice& device, const BlasltPointers& p, const cublasLtMatmulAlgo_t& algorithm,
                        void* workspace, size_t workspace_bytes) const {
    set_pointers(p);
    const Scalar alpha(problem_.arithmetic.scale, p.alpha), beta(problem_.arithmetic.scale, p.beta);
    const void* factors[2] = {alpha.bytes, beta.bytes};
    if (problem_.device_factor) factors[0] = p.factor, factors[1] = p.factor + 1;
    return cublasLtMatmul(device.blaslt(), desc_.handle, factors[0], p.b, a_.handle, p.a, b_.handle, factors[1], p.out,
                          out_.handle, p.out, out_.handle, &algorithm, workspace, workspace_bytes, device.stream());
  }

  BlasltProblem problem_;
  MatmulDesc desc_;
  MatrixLayout a_, b_, out_;  // as the library names them
  cublasLtMatmulAlgo_t algorithm_{};
  std::string others_;   // algorithms before it that failed to state what they can, or when they were tried
  std::string untried_;  // why there is no scratch memory
};

}  // namespace

std::unique_ptr<BlasltPlan> make_blaslt_plan(CudaDevice& device, const BlasltProblem& problem) {
  device.activate();
  return std::make_unique<Plan>(device, problem);
}

const BlasltPlan& blaslt_plan(const Device& device, const Signature& key, const BlasltProblem& problem) {
  const CudaDevice& cuda = of(device);
  return plans_in<BlasltPlan>(cuda.blaslt_plans).of(cuda, key, [&](CudaDevice& tried_on) {
    return make_blaslt_plan(tried_on, problem);
  });
}

}  // namespace halfmark::kernels::cuda
