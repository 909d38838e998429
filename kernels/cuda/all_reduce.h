// Sums across GPUs of this process by NCCL: a communicator on each device, calls in groups.
#pragma once

#include <functional>
#include <optional>
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
  std::optional<double> time_after_pause(double pause, const std::function<void()>& work) override;

 private:
  void enqueue(std::span<const Tensor> in, std::span<Tensor> out, int type, int op);
  bool are_done();                                 // asks every stream and every communicator
  std::vector<size_t> unfinished(double seconds);  // ranks whose streams still have work after so long
  std::string name_of_rank(size_t rank) const;     // "rank 1 (cuda:1)"
  // Gives up what has not ended. Throws if a device is lost, as the reason for what failed.
  void give_up(const Error& cause);

  std::vector<CudaDevice*> devices_;
  NcclLibrary library_;
  std::vector<nccl::Comm> comms_;
  bool broken_ = false;  // a call has failed: the communicators are gone
};

}  // namespace halfmark::kernels::cuda
