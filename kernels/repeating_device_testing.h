// A device that records work, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "kernels/cpu/cpu_device.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {

// Records by keeping the work itself. Good enough for steps that do not wait for a result. As kernels it counts operations,
// and two copies and a fill for each recording.
class RepeatingDevice : public CpuDevice {
 public:
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override {
    struct Repeated : RecordedWork {
      Repeated(RepeatingDevice& recorder, std::function<void()> repeated, const RecordedCounts& what)
          : device(recorder), work(std::move(repeated)), counted(what) {}
      void run() override { ++device.runs, work(); }
      RecordedCounts counts() const override { return counted; }
      RepeatingDevice& device;
      std::function<void()> work;
      RecordedCounts counted;
    };
    struct Recording {
      explicit Recording(bool& on) : is_on(on) { is_on = true; }
      ~Recording() { is_on = false; }
      bool& is_on;
    };
    RecordedCounts counts{.kernels = 0, .copies = 2, .fills = 1};
    {
      const Recording scope(recording);
      const KernelLog log;
      work();  // as in a capture, the host's part of the work runs now
      for (const LoggedKernel& one : log.entries()) counts.kernels += static_cast<int64_t>(one.calls);
    }
    ++recorded;
    return std::make_unique<Repeated>(*this, work, counts);
  }
  void copy_out(void* host, const void* memory, size_t bytes) override {
    if (recording) throw Unsupported("the host waits for the device");
    CpuDevice::copy_out(host, memory, bytes);
  }
  bool recording = false;
  int recorded = 0, runs = 0;  // works, and how often one of them ran
};

}  // namespace halfmark::kernels
