// A device that records work, for tests.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "kernels/cpu/cpu_device.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {

// Records by keeping the work itself. Good enough for steps that do not wait for a result.
class RepeatingDevice : public CpuDevice {
 public:
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override {
    struct Repeated : RecordedWork {
      Repeated(RepeatingDevice& recorder, std::function<void()> repeated)
          : device(recorder), work(std::move(repeated)) {}
      void run() override { ++device.runs, work(); }
      RecordedCounts counts() const override { return {.kernels = 30, .copies = 20, .fills = 10}; }
      RepeatingDevice& device;
      std::function<void()> work;
    };
    struct Recording {
      explicit Recording(bool& on) : is_on(on) { is_on = true; }
      ~Recording() { is_on = false; }
      bool& is_on;
    };
    {
      const Recording scope(recording);
      work();  // as in a capture, the host's part of the work runs now
    }
    ++recorded;
    return std::make_unique<Repeated>(*this, work);
  }
  void copy_out(void* host, const void* memory, size_t bytes) override {
    if (recording) throw Unsupported("the host waits for the device");
    CpuDevice::copy_out(host, memory, bytes);
  }
  bool recording = false;
  int recorded = 0, runs = 0;  // works, and how often one of them ran
};

}  // namespace halfmark::kernels
