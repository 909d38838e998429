// The traffic experiment: the bytes that each operation of a training step reads and writes, from the shapes and dtypes of
// its operands. A policy halves them only where both operands and results are narrow, and each cast adds some.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "kernels/number/error.h"
#include "kernels/ops/reorder_bytes.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& traffic_table() {
  static const std::vector<MetricRow> rows = {
      {"traffic.read", "B", Better::lower, Kind::exact,
       "bytes of the operands that the operations of a training step read; at PHASE (batch, forward, backward, "
       "optimizer) or PHASE/OPERATION, or of all. Each operand of a call counts once; what a row moves besides, such "
       "as "
       "a packed filter or widened operands, does not, and no cache is assumed"},
      {"traffic.written", "B", Better::lower, Kind::exact, "the same of what they write"},
      {"traffic.ratio", "1", Better::lower, Kind::exact, "read and written, divided by those under fp32"},
      {"traffic.casts", "1", Better::lower, Kind::exact, "share of casts in what is read and written"},
      {"traffic.reorders", "B", Better::lower, Kind::information,
       "bytes that a library reads and writes to change layouts inside the operations, at PHASE or of all; not in the "
       "other "
       "numbers, because they are of the processor and not of the policy"},
  };
  return rows;
}

struct Bytes {
  double read = 0, written = 0, reorders = 0;
  double sum() const { return read + written; }
};
using Traffic = std::map<std::string, Bytes>;  // by place; all of them at ""

// Of the first step after step 0 that the loss scaler does not skip; step 0 also allocates the state of the optimizer.
Traffic traffic_of(const TrialSpec& spec) {
  constexpr int kMostSteps = 40;  // a scale of 2^16 is below 1 after 17 skips
  Trial trial(spec);
  KernelLog log;
  kernels::ReorderBytes reorders;
  bool applied = false;
  for (int step = 0; step < kMostSteps && !(step > 1 && applied); ++step) {
    log.clear(), reorders.clear();
    applied = !trial.train_step(step).skipped;
  }
  HM_CHECK(applied, "traffic: the loss scaler skipped " + std::to_string(kMostSteps) + " steps");
  Traffic traffic;
  for (const kernels::LoggedKernel& entry : log.entries()) {
    const std::string phase = entry.phase.empty() ? "batch" : entry.phase;
    for (const std::string& at : {std::string(), phase, phase + "/" + entry.operation}) {
      Bytes& bytes = traffic[at];
      bytes.read += static_cast<double>(entry.read), bytes.written += static_cast<double>(entry.written);
    }
  }
  for (const kernels::ReorderBytes::Moved& moved : reorders.by_phase())
    for (const std::string& at : {std::string(), moved.phase.empty() ? "batch" : std::string(moved.phase)})
      traffic[at].reorders += static_cast<double>(moved.read + moved.written);
  return traffic;
}

Findings measure_traffic(const TrialSpec& spec) {
  const Traffic own = traffic_of(spec), wide = [&] {
    const LogPause pause;
    return traffic_of(spec.under(policy_named("fp32")));
  }();
  FindingsWriter out(traffic_table());
  double casts = 0;
  for (const auto& [at, bytes] : own) {
    out.number("traffic.read", at, bytes.read);
    out.number("traffic.written", at, bytes.written);
    if (at.find('/') == at.npos) out.number("traffic.reorders", at, bytes.reorders);
    if (at.ends_with("/cast")) casts += bytes.sum();
    const auto of_fp32 = wide.find(at);
    if (of_fp32 != wide.end() && of_fp32->second.sum() > 0)
      out.number("traffic.ratio", at, bytes.sum() / of_fp32->second.sum());
  }
  out.number("traffic.casts", "", casts / own.at("").sum());
  return out.take();
}

}  // namespace

Harness traffic_harness() {
  return {.name = "traffic",
          .about = "bytes that each operation of a training step reads and writes, beside fp32; counted from shapes",
          .axes = {},
          .metrics = traffic_table(),
          .measure = measure_traffic};
}

}  // namespace halfmark::accuracy
