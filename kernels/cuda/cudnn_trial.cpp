#include "kernels/cuda/cudnn_trial.h"

#include "kernels/cuda/hardware.h"

namespace halfmark::kernels::cuda {

CudnnChoice choose_engine(const CudaDevice& device, Trial& trial, std::vector<CudnnCandidate>& found,
                          const std::function<cudnnStatus_t(const CudnnCandidate&)>& run) {
  CudnnChoice choice;
  double fastest = 0;
  int ran = 0;
  for (CudnnCandidate& candidate : found) {
    const cudnnStatus_t status = run(candidate);
    wait_for(device);  // a fault of the device is no refusal
    if (status == CUDNN_STATUS_ALLOC_FAILED) device.note_shortage();
    if (status != CUDNN_STATUS_SUCCESS) {
      choice.refusal = std::string("failed when it was tried: cudnnBackendExecute: ") + cudnnGetErrorString(status);
      choice.failed += "; number " + std::to_string(candidate.place) + " " + choice.refusal;
      continue;
    }
    ++ran;
    const bool timed = hardware_compares_times() && found.size() > 1;
    const double seconds = timed ? trial.seconds([&] { check(run(candidate), "cudnnBackendExecute"); }) : 0;
    if (!choice.best || (timed && seconds < kClearlyFaster * fastest)) choice.best = &candidate, fastest = seconds;
    if (!timed || (ran == 1 && fastest < kWorthComparing)) break;  // the library's first that runs
  }
  if (choice.best) choice.refusal.clear();
  if (ran > 1) choice.tried = ", the fastest of " + std::to_string(ran) + " tried";
  return choice;
}

}  // namespace halfmark::kernels::cuda
