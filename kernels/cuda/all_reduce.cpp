#include "kernels/cuda/all_reduce.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "kernels/cuda/hardware.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

NcclGroup::NcclGroup(std::vector<CudaDevice*> devices, NcclLibrary library)
    : devices_(std::move(devices)), library_(std::move(library)) {
  std::vector<int> list;
  for (const CudaDevice* device : devices_) {
    device->activate();
    list.push_back(device->index());
  }
  std::vector<nccl::Comm> comms(devices_.size(), nullptr);
  try {
    library_.call<nccl::CommInitAll>("ncclCommInitAll", comms.data(), static_cast<int>(list.size()), list.data());
  } catch (const Unsupported& refusal) {
    throw_if_lost(refusal);
    throw;
  }
  comms_ = std::move(comms);
}

// Nothing of a communicator can be ended after a failed call or without its GPU: that would wait for the other ranks. What
// it has is left to the end of the process.
NcclGroup::~NcclGroup() {
  for (CudaDevice* device : devices_) broken_ = broken_ || !device->lost().empty();
  if (broken_) return;
  for (size_t i = 0; i < comms_.size(); ++i) {
    ignore(cudaSetDevice(devices_[i]->index()));
    (void)library_.status<nccl::CommDestroy>("ncclCommDestroy", comms_[i]);
  }
}

std::string NcclGroup::library() const {
  return (hardware_described().empty() ? "NCCL " : "stand-in of NCCL ") + library_.version();
}

std::vector<std::pair<std::string, std::string>> NcclGroup::settings() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** one = ::environ; one && *one; ++one) {
    const std::string_view text = *one;
    const size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != text.npos)
      all.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(all.begin(), all.end());
  return all;
}

void NcclGroup::run(std::span<const Tensor> in, std::span<Tensor> out, ReduceOp op) {
  HM_CHECK(!broken_, "a group of devices is not used again after a call that failed");
  HM_CHECK(in.size() == devices_.size() && out.size() == devices_.size(),
           "a sum across devices needs a tensor of each of them");
  const DType dtype = in[0].dtype();
  for (size_t i = 0; i < devices_.size(); ++i)
    for (const Tensor* one : {&in[i], static_cast<const Tensor*>(&out[i])})
      HM_CHECK(&one->device() == devices_[i] && one->dtype() == dtype && one->elements() == in[0].elements() &&
                   one->layout() == Layout::plain,
               "a sum across devices needs plain tensors of one dtype and size, each on its device");
  const auto type = nccl_type(dtype);
  if (!type) throw Unsupported("NCCL has no sums of " + std::string(name_of(dtype)));
  if (in[0].elements() == 0) return;
  for (const CudaDevice* device : devices_) device->activate();
  try {
    enqueue(in, out, *type, op == ReduceOp::sum ? nccl::kSum : nccl::kAvg);
  } catch (const Unsupported& refusal) {
    throw_if_lost(refusal);
    throw;
  }
  for (Tensor& one : out) one.touch();
}

// A group that was started is ended whatever happens: the calls of this thread would never begin otherwise.
void NcclGroup::enqueue(std::span<const Tensor> in, std::span<Tensor> out, int type, int op) {
  library_.call<nccl::GroupStart>("ncclGroupStart");
  try {
    for (size_t i = 0; i < devices_.size(); ++i)
      library_.call<nccl::AllReduce>("ncclAllReduce", in[i].data(), out[i].data(),
                                     static_cast<size_t>(in[i].elements()), type, op, comms_[i], devices_[i]->stream());
  } catch (const Unsupported&) {
    (void)library_.status<nccl::GroupEnd>("ncclGroupEnd");  // says the same, or that ranks are missing
    throw;
  }
  library_.call<nccl::GroupEnd>("ncclGroupEnd");
}

void NcclGroup::wait() {
  try {
    for (CudaDevice* device : devices_) device->synchronize();
  } catch (const Error& error) {
    throw_if_lost(error);
    throw;
  }
  try {
    for (const nccl::Comm comm : comms_) {
      int result = nccl::kSuccess;
      library_.call<nccl::CommGetAsyncError>("ncclCommGetAsyncError", comm, &result);
      if (result != nccl::kSuccess) library_.fail("ncclAllReduce", result);
    }
  } catch (const Unsupported& refusal) {
    throw_if_lost(refusal);
    throw;
  }
}

void NcclGroup::throw_if_lost(const Error& cause) {
  broken_ = true;
  for (CudaDevice* device : devices_)
    if (const std::string lost = device->lost(); !lost.empty())
      throw Error(device->name() + " is lost: " + lost + " (" + cause.what() + ")");
}

}  // namespace halfmark::kernels::cuda
