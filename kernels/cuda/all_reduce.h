// Sums across GPUs of this process by NCCL: a communicator on each device, calls in groups.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/nccl_library.h"
#include "kernels/tensor/all_reduce.h"

namespace halfmark::kernels::cuda {

class NcclGroup : public AllReduceGroup {
 public:
  NcclGroup(std::vector<CudaDevice*> devices, NcclLibrary library);
  ~NcclGroup() override;

  std::string library() const override;
  std::vector<std::pair<std::string, std::string>> settings() const override;
  void run(std::span<const Tensor> in, std::span<Tensor> out, ReduceOp op) override;
  void wait() override;

 private:
  void enqueue(std::span<const Tensor> in, std::span<Tensor> out, int type, int op);
  void throw_if_lost(const Error& cause);  // of a device, as the reason for what failed

  std::vector<CudaDevice*> devices_;
  NcclLibrary library_;
  std::vector<nccl::Comm> comms_;
  bool broken_ = false;  // a call has failed: other ranks may wait for it
};

}  // namespace halfmark::kernels::cuda
