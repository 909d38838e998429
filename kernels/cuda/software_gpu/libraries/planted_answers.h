// Wrong answers of the stand-ins, for tests of what the plugin makes of them. HALFMARK_SOFTWARE_LIBRARIES holds words that
// are separated by commas:
//   NAME                   the function of this name fails
//   ignores-mask           cublasLt's heuristic lists algorithms that the masks of the preference exclude
//   lists-backwards        it lists the slowest first
//   names-bf16-fp16        its algorithms report fp16 inputs for bf16, and compute in bf16
//   multiplies-bf16-as-fp16  they do what they report
//   names-fp32-tf32        its fastest algorithm for tf32 on sm_90 reports tf32, and computes in fp32
//   ignores-split-k        they do not keep a split-K that is set
//   plans-fail             cuDNN finalizes no execution plan
//   only-with-notes        its heuristics list no engine without numerical notes, except the fallback
//   multiplies-fp32-as-tf32, multiplies-tf32-as-fp32   cuBLAS takes the other format
//   loses-nan              the ReLU of cublasLt's epilogues makes 0 of NaN
//   no-cublas              cuBLAS is not installed
//   attention-loses-keys   products of the first usable engine of attention leave out the last term
//   attention-loses-row-of-ID, attention-loses-nan, attention-varies, attention-writes-once   its result with this id lacks the
//                          last row; it has 0 for NaN; every second run gives another bit; it stores only
//                          the first results
//   attention-ignores-strides   that engine reads queries, values and results as if heads were one after the other
//   attention-takes-no-strides   no engine of attention takes heads that are not one after the other
//   fusion-rounds-sums     the first usable engine of convolutions with bias and ReLU rounds their sums to the type of the image
//   norms-vary             every second run of a norm gives another bit
//   running-variance-is-biased, last-maximum-has-the-index   cuDNN does so in batch norm, and in max pooling
//   no-nccl, nccl-2.9, nccl-2.23   NCCL is not installed; has the types and operations of such a version
//   nccl-keeps-fp32        partial sums of an all-reduce are fp32, and only the last is rounded
//   nccl-tree, nccl-at-once   the ranks are added in halves; all at once and exactly, as a switch might
//   nccl-other-bits        the last rank gets another bit in the last element; nccl-varies: every second run, all ranks
//   nccl-async-error       the communicator of the last rank says later that its work has failed, and no sum ends
//   nccl-stops, nccl-never-ends   no sum ends, before ncclCommAbort or at all
//   faults                 cublasLtMatmul, convolutions and other graphs read memory that is not theirs
#pragma once

#include <string_view>

namespace halfmark::kernels::software_gpu {

bool planted(std::string_view word);  // now; tests change the variable

}  // namespace halfmark::kernels::software_gpu
